"""Automatic layout: columns from left to right, broken into rows like lines of text.

For files without positions and for "Lay out". The caller passes sizes in canvas pixels.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import partial

from msgspec import Struct

from app.builder.graph import Graph
from app.diagram.layered import Layered, acyclic
from app.diagram.layout_model import Link, Rows, Spacing, Vertex
from app.util.frozen import FrozenMap

Point = tuple[float, float]

GRID = 8
GAP = 104  # between columns: a shape label and 24
NEXT_GAP = 128  # beside a node that one is added to: room for the label of four long sizes, and for a longer name
LANE_GAP = 40  # between nodes of one column
FRAME_GAP = (
    104  # between rows of two frames: room for a title, and for the wire between them
)
ROW_GAP = 72  # between rows: the gutter of the wire that runs back
FOLD_GAP = 64  # between the rows of a fold, where wires run back on both sides
PAST = 24  # between a node and a wire that goes past it, and beyond that wire
TRACK = 36  # between two wires that run back between two rows: a shape label and what keeps it clear
ROW_WIDTH = 1080
WIDEST = (
    1.4  # a row may be that much wider, where it keeps together what belongs together
)
WIDTHS = (
    1.0,
    1.4,
    2.0,
    2.8,
    4.0,
    5.6,
)  # of rows, in widths of a room; of two as good the first is taken
SAME_ROW = 32  # nodes with port lines nearer than this are in one row


class Size(Struct, frozen=True):
    """A node's size; `anchor` is the offset of its ports from its top, which is aligned."""

    width: float
    height: float
    anchor: float


DEFAULT = Size(136, 72, 36)


def arrange(
    graph: Graph,
    sizes: Mapping[str, Size],
    row_width: float = ROW_WIDTH,
    groups: Mapping[str, str] | None = None,
) -> FrozenMap[str, Point]:
    """Return the top left corner of each node; lines of ports lie on the grid.

    `groups` maps nodes to frames: rows end at the end of a frame, and frames do not overlap.
    """
    return Arrangement(graph, sizes, groups).places(row_width)


class Arrangement:
    """A layout of one graph at several row widths."""

    def __init__(
        self,
        graph: Graph,
        sizes: Mapping[str, Size],
        groups: Mapping[str, str] | None = None,
    ) -> None:
        self._graph = graph
        self._sizes = [sizes.get(node, DEFAULT) for node in graph.nodes]
        framed = groups or {}
        vertices = [
            Vertex(
                size.width, size.height, line=size.anchor, frame=framed.get(node, "")
            )
            for node, size in zip(graph.nodes, self._sizes, strict=True)
        ]
        spacing = Spacing(
            column=GAP,
            box=LANE_GAP,
            bend=PAST,
            band=ROW_GAP,
            frame=FRAME_GAP,
            fold=FOLD_GAP,
            edge=PAST,
            track=TRACK,
            grid=GRID,
        )
        # The canvas leads the wires, as it does wherever the user places the nodes.
        self._layered = Layered(
            vertices, _links(graph, self._sizes), spacing, routed=False
        )
        self._rows = partial(Rows, widest=WIDEST, folds=True)

    def places(self, row_width: float) -> FrozenMap[str, Point]:
        """Return the top left corners by node id, in pixels of the canvas."""
        return FrozenMap(zip(self._graph.nodes, self._corners(row_width), strict=True))

    def best_width(self, room: Size) -> float:
        """Return the smallest row width that shows the graph at the largest scale in a viewport."""
        tries = [self._rows(room.width * times) for times in WIDTHS]
        best, largest = tries[0].limit, 0.0
        for most, rows in self._layered.by_scale_bound(
            tries, (room.width, room.height)
        ):
            if min(most, 1.0) < largest:
                break  # nor does any further one come up to it
            zoom = self._scale_in(rows.limit, room)
            if zoom > largest or (zoom == largest and rows.limit < best):
                best, largest = rows.limit, zoom
        return best

    def _corners(self, row_width: float) -> list[Point]:
        return self._layered.arrange(self._rows(row_width)).corners

    def _scale_in(self, row_width: float, room: Size) -> float:
        """Return the scale at which the graph fits a viewport, 1 at most."""
        placed = list(zip(self._corners(row_width), self._sizes, strict=True))
        right = max((x + size.width for (x, _), size in placed), default=0.0)
        bottom = max((y + size.height for (_, y), size in placed), default=0.0)
        top = min((y for (_, y), _ in placed), default=0.0)
        return min(
            room.width / max(right, 1.0), room.height / max(bottom - top, 1.0), 1.0
        )


def _links(graph: Graph, sizes: Collection[Size]) -> list[Link]:
    """Return one link per pair of wired nodes; wires into a lower port are routed below, as on the canvas."""
    number = {node: n for n, node in enumerate(graph.nodes)}
    above: dict[tuple[str, str], bool] = {}
    for node in graph.nodes:
        for index, edge in enumerate(graph.into(node)):
            if edge.source != node:
                above[edge.source, node] = (
                    above.get((edge.source, node), False) or not index
                )
    line = [size.anchor for size in sizes]
    ends = (
        (number[source], number[target], high)
        for (source, target), high in above.items()
    )
    return [Link(a, b, line[a], line[b], below=not high) for a, b, high in ends]


def complete(
    graph: Graph,
    positions: Mapping[str, Point],
    sizes: Mapping[str, Size],
    row_width: float = ROW_WIDTH,
) -> FrozenMap[str, Point]:
    """Return `positions` with one for each node that lacks it: on its wire, next to its source, else below everything.

    Nodes behind one inserted on a wire move right as far as needed.
    """
    missing = [node for node in graph.nodes if node not in positions]
    if (
        not missing
        and isinstance(positions, FrozenMap)
        and len(positions) == len(graph.nodes)
    ):
        return positions
    if not missing:
        return FrozenMap({node: positions[node] for node in graph.nodes})
    if len(missing) == len(graph.nodes):
        return arrange(graph, sizes, row_width)
    positioned = {node: positions[node] for node in graph.nodes if node in positions}
    for node in _in_order(graph, missing):
        source = next(
            (e.source for e in graph.into(node) if e.source in positioned), None
        )
        target = next(
            (e.target for e in graph.out_of(node) if e.target in positioned), None
        )
        if source and target:
            _put_between(positioned, sizes, source, target, node)
        else:
            positioned[node] = _free_place(
                positioned,
                sizes,
                node,
                _preferred_position(positioned, sizes, source, target, node),
            )
    return FrozenMap(positioned)


def closed_up(
    wires: Iterable[tuple[str, str]],
    positions: Mapping[str, Point],
    sizes: Mapping[str, Size],
    gone: Mapping[str, Point],
) -> dict[str, Point]:
    """Return positions without the gap that a node at its position in `gone` left on one of these wires in its row."""
    closed = dict(positions)
    for source, target in wires:
        line, limit = _line(closed, sizes, source), closed[target][0]
        right = closed[source][0] + sizes.get(source, DEFAULT).width
        between = any(
            right < gone[node][0] < limit and _is_in_row(gone, sizes, node, line)
            for node in gone
        )
        shift = _snapped_up(right + NEXT_GAP) - limit
        if between and shift < 0 and _is_in_row(closed, sizes, target, line):
            shifted = dict(closed)
            _shift_row(shifted, sizes, limit, line, shift)
            if not _collides(shifted, sizes, closed):
                closed = shifted
    return closed


def _collides(
    positions: Mapping[str, Point],
    sizes: Mapping[str, Size],
    before: Mapping[str, Point],
) -> bool:
    """Return whether a node that is elsewhere than `before` overlaps one that is not."""
    moved = {node for node, at in positions.items() if at != before[node]}
    rest = {node: at for node, at in positions.items() if node not in moved}
    return any(
        _free_place(rest, sizes, node, positions[node]) != positions[node]
        for node in moved
    )


def _is_in_row(
    positions: Mapping[str, Point], sizes: Mapping[str, Size], node: str, line: float
) -> bool:
    return abs(_line(positions, sizes, node) - line) <= SAME_ROW


def _shift_row(
    positions: dict[str, Point],
    sizes: Mapping[str, Size],
    left: float,
    line: float,
    shift: float,
) -> None:
    """Shift what is in a row from `left` on."""
    for node, (x, y) in positions.items():
        if x >= left and _is_in_row(positions, sizes, node, line):
            positions[node] = (x + shift, y)


def _put_between(
    positions: dict[str, Point],
    sizes: Mapping[str, Size],
    source: str,
    target: str,
    node: str,
) -> None:
    """Insert a node between two of a row, or before the first of a row that another feeds, and shift the row."""
    size, line = sizes.get(node, DEFAULT), _line(positions, sizes, target)
    right, limit = (
        positions[source][0] + sizes.get(source, DEFAULT).width,
        positions[target][0],
    )
    left = limit
    if _is_in_row(positions, sizes, source, line) and limit > right:
        line = _line(positions, sizes, source)
        left = max(right + NEXT_GAP, (right + limit - size.width) / 2)
    shift = _snapped_up(left + size.width + NEXT_GAP - limit)
    if shift > 0:
        _shift_row(positions, sizes, limit, line, shift)
    positions[node] = _free_place(
        positions, sizes, node, (_snapped_up(left), line - size.anchor)
    )


def _preferred_position(
    positions: Mapping[str, Point],
    sizes: Mapping[str, Size],
    source: str | None,
    target: str | None,
    node: str,
) -> Point:
    """Return the position after a node's source, before its target, or below everything."""
    size = sizes.get(node, DEFAULT)
    if source:
        x = positions[source][0] + sizes.get(source, DEFAULT).width + NEXT_GAP
        return _snapped_up(x), _line(positions, sizes, source) - size.anchor
    if target:
        return -_snapped_up(size.width + NEXT_GAP - positions[target][0]), _line(
            positions, sizes, target
        ) - size.anchor
    left = min((x for x, _ in positions.values()), default=0.0)
    bottom = max(
        (y + sizes.get(n, DEFAULT).height for n, (_, y) in positions.items()),
        default=0.0,
    )
    return left, snapped(bottom + ROW_GAP + size.anchor) - size.anchor


def _line(
    positions: Mapping[str, Point], sizes: Mapping[str, Size], node: str
) -> float:
    return positions[node][1] + sizes.get(node, DEFAULT).anchor


def _free_place(
    positions: Mapping[str, Point], sizes: Mapping[str, Size], node: str, wished: Point
) -> Point:
    """Return the wished position, or the first below it without overlap."""
    size = sizes.get(node, DEFAULT)
    x, y = wished
    for _ in range(len(positions) + 1):
        hit = [
            other_y + sizes.get(other, DEFAULT).height
            for other, (other_x, other_y) in positions.items()
            if x < other_x + sizes.get(other, DEFAULT).width + GRID
            and other_x < x + size.width + GRID
            and y < other_y + sizes.get(other, DEFAULT).height + GRID
            and other_y < y + size.height + GRID
        ]
        if not hit:
            break
        y = _snapped_up(max(hit) + LANE_GAP / 2 + size.anchor) - size.anchor
    return x, y


def _in_order(graph: Graph, nodes: list[str]) -> list[str]:
    """Sort nodes topologically."""
    _, rank = acyclic(len(graph.nodes), _links(graph, [DEFAULT] * len(graph.nodes)))
    ranks = dict(zip(graph.nodes, rank, strict=True))
    return sorted(nodes, key=ranks.__getitem__)


def snapped(value: float) -> float:
    """Round to the grid."""
    return float(round(value / GRID) * GRID)


def _snapped_up(value: float) -> float:
    return -(-value // GRID) * GRID
