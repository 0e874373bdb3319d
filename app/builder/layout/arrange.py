"""A place for every node: columns from left to right, broken into rows like lines of text.

For files without positions and for "Lay out". Sizes come from whoever draws, in canvas pixels.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby, pairwise

from app.builder.graph import Graph
from app.builder.layout import skip_layout
from app.util.frozen import FrozenMap
from app.util.late_dataclass import dataclass

Point = tuple[float, float]

GRID = 8
GAP = 104  # between columns: a shape label and 24
LANE_GAP = 40  # between nodes of one column
FRAME_GAP = 104  # between rows of two frames: room for a title, and for the wire between them
ROW_GAP = 72  # between rows: the gutter of the wire that runs back
FOLD_GAP = 64  # between the rows of a fold, where wires run back on both sides
SKIP_ROOM = 48  # above or below a row in which a wire goes past nodes on that side
ROW_WIDTH = 1080
WIDEST = 1.4  # a row may be that much wider, where it keeps together what belongs together
FURTHER = 0.25  # what a further wire of the same value counts, where a row ends
SAME_ROW = 32  # nodes whose port lines are nearer than this stand in one row


@dataclass(frozen=True)
class Size:
    """A node's extent; `anchor` is the height of its ports under its top, which is what is aligned."""

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
    """Top left corners by node id. Nodes in a row share a line on which their ports lie, on the grid.

    `groups` says which nodes stand in one frame: a row ends where a frame does, and frames keep apart.
    """
    columns = _columns(graph)
    lanes = _lanes(graph, columns)
    places: dict[str, Point] = {}
    y = 0.0
    levels = _levels(graph, columns, sizes, row_width)
    if levels:
        return FrozenMap(_folded(levels, columns, lanes, graph, sizes))
    framed = _framed(columns, groups or {})
    parts = _parts(columns, framed, sizes, row_width)
    crossing = _crossings(graph, columns)
    rows = [row for part in parts for row in _rows(columns, part, crossing, framed, sizes, row_width)]
    above = False
    for row in rows:
        in_frame = any(framed[i] for i in row)
        y += FRAME_GAP - ROW_GAP if places and (above or in_frame) else 0
        y = _place_row([columns[i] for i in row], lanes, graph, sizes, y, places) + ROW_GAP
        above = in_frame
    return FrozenMap(places)


def _framed(columns: list[list[str]], groups: Mapping[str, str]) -> list[str]:
    """The group of each column, "" where it stands in no frame or in several."""
    found = [{groups.get(node, "") for node in column} for column in columns]
    return [next(iter(names)) if len(names) == 1 else "" for names in found]


def _parts(columns: list[list[str]], framed: list[str], sizes: Mapping[str, Size], row_width: float) -> list[range]:
    """The columns in ranges, so that a frame that is too wide for one row has its rows to itself."""
    parts, start = [], 0
    for group, members in groupby(range(len(columns)), key=lambda i: framed[i]):
        inside = list(members)
        if group and _width([columns[i] for i in inside], sizes) > WIDEST * row_width:
            parts += [range(start, inside[0]), range(inside[0], inside[-1] + 1)]
            start = inside[-1] + 1
    return [part for part in (*parts, range(start, len(columns))) if part]


def complete(
    graph: Graph, positions: Mapping[str, Point], sizes: Mapping[str, Size], row_width: float = ROW_WIDTH
) -> FrozenMap[str, Point]:
    """`positions` with a place for each node that lacks one: on its wire, beside what feeds it, else under everything.

    A node on a wire has the row behind it move to the right as far as it needs.
    """
    missing = [node for node in graph.nodes if node not in positions]
    if not missing and isinstance(positions, FrozenMap) and len(positions) == len(graph.nodes):
        return positions
    if not missing:
        return FrozenMap({node: positions[node] for node in graph.nodes})
    if len(missing) == len(graph.nodes):
        return arrange(graph, sizes, row_width)
    places = {node: positions[node] for node in graph.nodes if node in positions}
    for node in _in_order(graph, missing):
        source = next((e.source for e in graph.into(node) if e.source in places), None)
        target = next((e.target for e in graph.out_of(node) if e.target in places), None)
        if source and target:
            _put_between(places, sizes, source, target, node)
        else:
            places[node] = _free_place(places, sizes, node, _wished(places, sizes, source, target, node))
    return FrozenMap(places)


def _put_between(places: dict[str, Point], sizes: Mapping[str, Size], source: str, target: str, node: str) -> None:
    """Put a node between two of a row, or before the first of a row that another leads to; the row makes way."""
    size, line = sizes.get(node, DEFAULT), _line(places, sizes, target)
    right, limit = places[source][0] + sizes.get(source, DEFAULT).width, places[target][0]
    left = limit
    if abs(_line(places, sizes, source) - line) <= SAME_ROW and limit > right:
        line = _line(places, sizes, source)
        left = max(right + GAP, (right + limit - size.width) / 2)
    shift = _snap_up(left + size.width + GAP - limit)
    if shift > 0:
        for other, (x, y) in places.items():
            if x >= limit and abs(_line(places, sizes, other) - line) <= SAME_ROW:
                places[other] = (x + shift, y)
    places[node] = _free_place(places, sizes, node, (_snap(left), line - size.anchor))


def _wished(
    places: Mapping[str, Point], sizes: Mapping[str, Size], source: str | None, target: str | None, node: str
) -> Point:
    """Behind what feeds it, or before what it feeds, or under everything."""
    size = sizes.get(node, DEFAULT)
    if source:
        x = places[source][0] + sizes.get(source, DEFAULT).width + GAP
        return _snap(x), _line(places, sizes, source) - size.anchor
    if target:
        return _snap(places[target][0] - size.width - GAP), _line(places, sizes, target) - size.anchor
    left = min((x for x, _ in places.values()), default=0.0)
    bottom = max((y + sizes.get(n, DEFAULT).height for n, (_, y) in places.items()), default=0.0)
    return left, _snap(bottom + ROW_GAP + size.anchor) - size.anchor


def _line(places: Mapping[str, Point], sizes: Mapping[str, Size], node: str) -> float:
    return places[node][1] + sizes.get(node, DEFAULT).anchor


def _free_place(places: Mapping[str, Point], sizes: Mapping[str, Size], node: str, wished: Point) -> Point:
    """The wished place, or the first below it where the node overlaps no other."""
    size = sizes.get(node, DEFAULT)
    x, y = wished
    for _ in range(len(places) + 1):
        hit = [
            other_y + sizes.get(other, DEFAULT).height
            for other, (other_x, other_y) in places.items()
            if x < other_x + sizes.get(other, DEFAULT).width + GRID
            and other_x < x + size.width + GRID
            and y < other_y + sizes.get(other, DEFAULT).height + GRID
            and other_y < y + size.height + GRID
        ]
        if not hit:
            break
        y = _snap_up(max(hit) + LANE_GAP / 2 + size.anchor) - size.anchor
    return x, y


# --- Columns and lanes ------------------------------------------------------------------------------------------


def _in_order(graph: Graph, nodes: list[str]) -> list[str]:
    depth = _depths(graph)
    return sorted(nodes, key=lambda node: depth[node])


def _depths(graph: Graph) -> dict[str, int]:
    """The longest way from a start to each node; nodes in a loop count as starts."""
    waiting = {node: len({e.source for e in graph.into(node)}) for node in graph.nodes}
    depth = dict.fromkeys(graph.nodes, 0)
    ready = [node for node, count in waiting.items() if count == 0]
    while ready:
        node = ready.pop()
        for target in dict.fromkeys(edge.target for edge in graph.out_of(node)):
            depth[target] = max(depth[target], depth[node] + 1)
            waiting[target] -= 1
            if waiting[target] == 0:
                ready.append(target)
    return depth


def _columns(graph: Graph) -> list[list[str]]:
    """Nodes by depth. One that feeds only deeper nodes (a second input) is pulled up to them."""
    depth = _depths(graph)
    for node in sorted(graph.nodes, key=lambda n: -depth[n]):
        if not graph.into(node) and graph.out_of(node):
            depth[node] = max(depth[node], min(depth[e.target] for e in graph.out_of(node)) - 1)
    columns: list[list[str]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for node in graph.nodes:
        columns[depth[node]].append(node)
    return [column for column in columns if column]


def _lanes(graph: Graph, columns: list[list[str]]) -> dict[str, int]:
    """The line on which each node stands: that of what feeds it if it is free, so that chains are straight."""
    lanes: dict[str, int] = {}
    for column in columns:
        taken: set[int] = set()
        wishes = []
        for order, node in enumerate(column):
            feeding = [lanes[e.source] for e in graph.into(node) if e.source in lanes]
            wishes.append((min(feeding, default=0), order, node))
        for wish, _, node in sorted(wishes):
            lane = wish
            while lane in taken:
                lane += 1
            taken.add(lane)
            lanes[node] = lane
    return lanes


# --- Rows -------------------------------------------------------------------------------------------------------


def _rows(
    columns: list[list[str]],
    part: range,
    crossing: list[float],
    framed: list[str],
    sizes: Mapping[str, Size],
    row_width: float,
) -> list[range]:
    """Columns broken into rows as a paragraph is broken into lines: evenly full, and where the fewest wires cross."""
    widths = [max(sizes.get(node, DEFAULT).width for node in columns[i]) for i in part]
    broken = _costs_of_breaks(part, crossing, framed)
    count = len(part)
    least = [0.0] * (count + 1)  # the cost of the rows from each column on, and where the first of them ends
    ends = [count] * (count + 1)
    for start in range(count - 1, -1, -1):
        least[start], width = float("inf"), -float(GAP)
        for end in range(start + 1, count + 1):
            width += GAP + widths[end - 1]
            if width > WIDEST * row_width and end > start + 1:
                break
            over = max(0.0, width / row_width - 1)
            slack = 1.0 + 2.0 * over if over else (1 - width / row_width) ** 2
            cost = slack * (1 if over or end < count else 0.3) + broken[end] + 0.2 + least[end]
            if cost < least[start]:
                least[start], ends[start] = cost, end
    rows, start = [], 0
    while start < count:
        rows.append(part[start : ends[start]])
        start = ends[start]
    return rows


def _costs_of_breaks(part: range, crossing: list[float], framed: list[str]) -> list[float]:
    """What it costs to end a row before each column of a part. A frame that fits a row is not broken."""
    costs = [2.0 * max(0.0, wires - 1) for wires in crossing[part.start : part.stop + 1]]
    costs[-1] = 0.0
    if len({framed[i] for i in part}) > 1:
        for number, (before, after) in enumerate(pairwise(part), start=1):
            if framed[before] and framed[before] == framed[after]:
                costs[number] += 100.0
    return costs


def _width(columns: list[list[str]], sizes: Mapping[str, Size]) -> float:
    widths = [max(sizes.get(node, DEFAULT).width for node in column) for column in columns]
    return sum(_snap_up(width + GAP) for width in widths) - GAP


def _levels(
    graph: Graph, columns: list[list[str]], sizes: Mapping[str, Size], row_width: float
) -> list[skip_layout.Level]:
    """The rows of a network that is too wide for one row and folds, as a U-Net does."""
    if _width(columns, sizes) <= row_width:
        return []
    place = {node: i for i, column in enumerate(columns) for node in column}
    return skip_layout.levels(len(columns), {(place[edge.source], place[edge.target]) for edge in graph.edges})


def _folded(
    levels: list[skip_layout.Level],
    columns: list[list[str]],
    lanes: Mapping[str, int],
    graph: Graph,
    sizes: Mapping[str, Size],
) -> dict[str, Point]:
    """The way down at left, the way up at right behind all of it, each skip on one line."""
    places: dict[str, Point] = {}
    widest = max(_width([columns[i] for i in level.down], sizes) for level in levels)
    right, y = _snap_up(widest + GAP), 0.0
    for level in levels:
        row = [columns[i] for i in (*level.down, *level.up)]
        y = _place_row(row, lanes, graph, sizes, y, places, {len(level.down): right}) + FOLD_GAP
    return places


def _crossings(graph: Graph, columns: list[list[str]]) -> list[float]:
    """How much crosses the left edge of each column: one for each node that feeds what lies behind it, and a little
    for each further node that it feeds there.

    A row that ends behind a node that feeds two layers costs more than one that ends before it: so a residual block
    keeps what it adds. It costs less than one that ends where many values are under way.
    """
    place = {node: i for i, column in enumerate(columns) for node in column}
    counts = [0.0] * (len(columns) + 1)
    for source in graph.nodes:
        ends = sorted((place[node] for node in {edge.target for edge in graph.out_of(source)}), reverse=True)
        for number, end in enumerate(ends):
            for i in range(place[source] + 1, end + 1):
                counts[i] += FURTHER if number else 1.0
    return counts


def _place_row(
    row: list[list[str]],
    lanes: Mapping[str, int],
    graph: Graph,
    sizes: Mapping[str, Size],
    top: float,
    places: dict[str, Point],
    starts: Mapping[int, float] | None = None,
) -> float:
    """Put a row's nodes into `places`; returns its lower edge. `starts` says where columns begin at least."""
    inside = {node: i for i, column in enumerate(row) for node in column}
    used = sorted({lanes[node] for node in inside})
    skips = [e for node, i in inside.items() for e in graph.out_of(node) if inside.get(e.target, -1) - i > 1]
    below = [edge for edge in skips if graph.into(edge.target)[0] != edge]  # into a lower port
    top += SKIP_ROOM if len(below) < len(skips) else 0
    lines: dict[int, float] = {}
    for lane in used:
        members = [sizes.get(node, DEFAULT) for node in inside if lanes[node] == lane]
        lines[lane] = _snap_up(top + max(size.anchor for size in members))
        top = lines[lane] + max(size.height - size.anchor for size in members) + LANE_GAP
    x = 0.0
    for number, column in enumerate(row):
        x = max(x, (starts or {}).get(number, x))
        for node in column:
            places[node] = (x, lines[lanes[node]] - sizes.get(node, DEFAULT).anchor)
        x = _snap_up(x + max(sizes.get(node, DEFAULT).width for node in column) + GAP)
    return top - LANE_GAP + (SKIP_ROOM if below else 0)


def _snap(value: float) -> float:
    return round(value / GRID) * GRID


def _snap_up(value: float) -> float:
    return -(-value // GRID) * GRID
