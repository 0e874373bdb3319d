"""Lay out a sheet: some of its nodes or all, with their comments and frames; large ones before they are shown."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, TypeVar, cast

from msgspec.structs import replace

from app.builder.arrange import (
    DEFAULT,
    GRID,
    ROW_GAP,
    ROW_WIDTH,
    Arrangement,
    Size,
    arrange,
    snapped,
)
from app.builder.blocks import Blocks
from app.builder.edits import comments as notes_edits
from app.builder.edits import edits
from app.builder.edits.edits import P
from app.builder.graph import Graph, Node
from app.builder.sheet import FRAME, Comment, Comments, Point, Positions, Sheet
from app.util.frozen import FrozenMap

LEAST_ROW = 640.0  # the rows of a selection are as wide as it was, but not narrower


def laid_out(
    sheet: P,
    nodes: Collection[str],
    sizes: Mapping[str, Size],
    row_width: float = ROW_WIDTH,
) -> P:
    """Return the sheet with nodes in rows; a selection keeps its top left corner.

    Bends of moved nodes' wires are dropped, frames are fitted to their nodes, and comments move with them.
    """
    chosen = set(nodes)
    selected = [node for node in sheet.graph.nodes if node in chosen]
    if not selected:
        return sheet
    if len(selected) == len(sheet.graph.nodes):
        positions = arrange(sheet.graph, sizes, row_width, _groups(sheet, sizes))
    else:
        positions = _of_some(sheet.graph, sheet.positions, selected, sizes)
    moved = {
        node for node, point in positions.items() if point != sheet.positions.get(node)
    }
    comments = (
        notes_edits.carried(
            sheet.comments, sheet.positions, positions, sizes, fit_frames=True
        )
        if sheet.comments
        else sheet.comments
    )
    stay = {
        e: points
        for e, points in sheet.bends.items()
        if e.source not in moved and e.target not in moved
    }
    return edits.changed(
        sheet, positions=positions, comments=comments, bends=FrozenMap(stay)
    )


def current_row_width(
    sheet: Sheet, sizes: Mapping[str, Size], widths: Collection[float]
) -> float | None:
    """Return the row width at which the whole sheet was laid out; None if nodes were moved since."""
    for node, (x, y) in sheet.positions.items():
        if x % GRID or (y + sizes.get(node, DEFAULT).anchor) % GRID:
            return None
    arrangement = Arrangement(sheet.graph, sizes, _groups(sheet, sizes))
    return next(
        (width for width in widths if arrangement.places(width) == sheet.positions),
        None,
    )


def row_width(sheet: Sheet, sizes: Mapping[str, Size], room: Size) -> float:
    """Return the row width that shows the whole sheet at the largest scale in a viewport."""
    return Arrangement(sheet.graph, sizes, _groups(sheet, sizes)).best_width(room)


def _groups(sheet: Sheet, sizes: Mapping[str, Size]) -> dict[str, str]:
    """Return the outermost frame of each node."""
    framed = notes_edits.framed(sheet.comments, sheet.positions, sizes)
    inward = sorted(
        framed, key=lambda key: sheet.comments[key].width * sheet.comments[key].height
    )
    return {node: key for key in inward for node in framed[key]}


def _of_some(
    graph: Graph, positions: Positions, selected: list[str], sizes: Mapping[str, Size]
) -> Positions:
    positioned = [node for node in selected if node in positions]
    left = min((positions[node][0] for node in positioned), default=0.0)
    top = min((positions[node][1] for node in positioned), default=0.0)
    right = max(
        (positions[node][0] + sizes.get(node, DEFAULT).width for node in positioned),
        default=0.0,
    )
    corners = arrange(graph.part(selected), sizes, max(right - left, LEAST_ROW))
    dx, dy = (
        snapped(left - min(x for x, _ in corners.values())),
        snapped(top - min(y for _, y in corners.values())),
    )
    return positions.update(
        {node: (x + dx, y + dy) for node, (x, y) in corners.items()}
    )


# --- Modules that no forward calls


TITLE = "Not used by forward"
FRAME_ID = "c1"
GAP, BELOW, PAD, HEAD = 24.0, 104.0, 24.0, 48.0


def used_part(graph: Graph) -> Graph:
    """Return the graph without unconnected uncalled modules."""
    alone = {
        node.id
        for node in graph.nodes.values()
        if node.kept and not graph.into(node.id) and not graph.out_of(node.id)
    }
    if not alone:
        return graph
    return replace(
        graph,
        nodes=FrozenMap(
            {key: node for key, node in graph.nodes.items() if key not in alone}
        ),
    )


def with_uncalled(
    graph: Graph, positions: Mapping[str, Point], sizes: Mapping[str, Size]
) -> tuple[Positions, Comments]:
    """Add positions of uncalled modules, in rows below the drawing, and the frame around them if there are any."""
    left = [node for node in graph.nodes if node not in positions]
    if not left:
        return FrozenMap(positions), FrozenMap()
    size = {node: sizes.get(node, DEFAULT) for node in (*left, *positions)}
    begin = min((x for x, _ in positions.values()), default=0.0)
    end = max((x + size[node].width for node, (x, _) in positions.items()), default=0.0)
    top = (
        max(
            (y + size[node].height for node, (_, y) in positions.items()),
            default=-BELOW,
        )
        + BELOW
        + HEAD
    )
    top = -(-top // GRID) * GRID
    width = max(end - begin, 6 * (DEFAULT.width + GAP))
    extended, x, y, lowest = dict(positions), begin + PAD, top, 0.0
    widest = x
    for node in left:
        if x > begin + PAD and x + size[node].width > begin + width:
            x, y, lowest = begin + PAD, y + lowest + GAP, 0.0
        extended[node] = (x, y)
        widest = max(widest, x + size[node].width)
        x += -(-(size[node].width + GAP) // GRID) * GRID
        lowest = max(lowest, size[node].height)
    frame = Comment(
        TITLE,
        begin,
        top - HEAD,
        widest + PAD - begin,
        y + lowest + PAD - (top - HEAD),
        FRAME,
    )
    return FrozenMap({node: extended[node] for node in graph.nodes}), FrozenMap(
        {FRAME_ID: frame}
    )


MANY = 200  # unplaced nodes; fewer are laid out by the canvas, with their real sizes
LETTER, BESIDE = (
    8,
    56,
)  # px per letter of a node's title, and px of the padding and icons next to it
WIDEST = 240  # px
COLUMN = 190  # approximate px per column, for a drawing about as wide as high

S = TypeVar("S", bound=Sheet)


def with_places(project: S) -> S:
    """Return the project with a position for every node of its large sheets."""
    blocks = cast(Blocks, getattr(project, "blocks", FrozenMap()))
    blocks_with_positions = {
        name: _with_positions(block) for name, block in blocks.items()
    }
    if any(blocks_with_positions[name] is not block for name, block in blocks.items()):
        project = cast(
            S, replace(cast(Any, project), blocks=FrozenMap(blocks_with_positions))
        )
    return _with_positions(project)


def _with_positions(sheet: S) -> S:
    missing = [node for node in sheet.graph.nodes if node not in sheet.positions]
    if len(missing) <= MANY:
        return sheet
    return cast(
        S,
        replace(
            cast(Any, sheet),
            positions=_positions(sheet.graph, sheet.positions, missing),
        ),
    )


def _positions(graph: Graph, positions: Positions, missing: list[str]) -> Positions:
    """Return the known positions, with the missing nodes laid out below them."""
    width = max(ROW_WIDTH, COLUMN * len(missing) ** 0.5)
    subgraph = graph if len(missing) == len(graph.nodes) else graph.part(missing)
    arranged = arrange(
        subgraph, {node: _size(graph.nodes[node]) for node in missing}, width
    )
    there = {node: positions[node] for node in graph.nodes if node in positions}
    if not there:
        return arranged
    left = min(x for x, _ in there.values())
    below = max(y for _, y in there.values()) + DEFAULT.height + ROW_GAP
    left, below = snapped(left), snapped(below)
    return FrozenMap(
        {**there, **{node: (x + left, y + below) for node, (x, y) in arranged.items()}}
    )


def _size(node: Node) -> Size:
    """About how large it will be drawn."""
    return replace(
        DEFAULT, width=min(max(DEFAULT.width, len(node.name) * LETTER + BESIDE), WIDEST)
    )
