"""Lay out a sheet: some of its nodes or all, with their comments and frames."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from app.builder.edits import comments as notes_edits
from app.builder.edits import edits
from app.builder.edits.edits import P
from app.builder.graph import Graph
from app.builder.layout.arrange import (
    DEFAULT,
    GRID,
    ROW_WIDTH,
    Arrangement,
    Size,
    arrange,
    snapped,
)
from app.builder.sheet import Positions, Sheet
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
        notes_edits.carried(sheet, positions, sizes)
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
