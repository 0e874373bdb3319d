"""Layered (Sugiyama) layout of boxes in rows, left to right: the engine of all automatic layouts.

Layers by longest path; order within a layer by barycentres, if that reduces crossings; y by isotonic regression, the
least-squares solution that keeps the order without overlap. Long drawings are broken into bands, one below the other
like lines of text; links between bands run through the gutter between them. Nothing recurses, so chains may have any
length.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Sequence

from app.diagram.layout_model import (
    BEND,
    Chain,
    Link,
    Placed,
    Rows,
    Spacing,
    State,
    Vertex,
)
from app.diagram.routes import CROWDED, MOST_TRACKS, draw
from app.diagram.rows import cut_into_bands

_SWEEPS = 4
_COUNT_CROSSINGS_BELOW = 4000
Neighbours = dict[int, list[tuple[int, float]]]

_STIFFNESS = {0: 1.0, BEND: 1.0, 2: 1e7}


class Layered:
    """Boxes in layers, to be placed at several row widths.

    The order of `vertices` is the reading order; links against it are drawn backwards. With `routed` False the caller
    routes the links: they get no route, and none crosses a row between its ends. `tick` is called often while boxes are
    placed, and may raise to end that. Raises ValueError for a self-loop.
    """

    def __init__(
        self,
        vertices: Sequence[Vertex],
        links: Sequence[Link],
        spacing: Spacing | None = None,
        routed: bool = True,
        tick: Callable[[], object] = lambda: None,
    ) -> None:
        if any(link.tail == link.head for link in links):
            raise ValueError("a link leads from a vertex to itself")
        self._vertices, self._spacing, self._routed = (
            list(vertices),
            spacing or Spacing(),
            routed,
        )
        self._tick = tick
        self._turned, rank = acyclic(len(vertices), links)
        self._links = [
            Link(k.head, k.tail, k.head_dy, k.tail_dy, k.label_width, k.below)
            if turn
            else k
            for k, turn in zip(links, self._turned, strict=True)
        ]
        self._layer = layers(self._vertices, self._links, rank)
        self.is_chain = bool(vertices) and _is_chain(self._layer, self._links)
        self._cuts: dict[Rows, State] = {}
        self._known: dict[tuple[tuple[int, ...], ...], Placed] = {}
        self._rows: dict[Rows, int] = {}

    def arrange(self, rows: Rows) -> Placed:
        """Place the boxes in bands at a row limit; a box wider than the limit widens its band."""
        if not self._vertices:
            return Placed([], [], [], 0.0, 0.0)
        state = self._cuts.pop(rows, None) or self._cut(rows)
        self._rows[rows] = len(state.bands)
        key = (*state.bands, tuple(state.arms))
        if key not in self._known:
            if self.is_chain:
                _place_chain(state)
            else:
                make_rows(state)
                order_rows(state)
                assign_y(state)
            self._known[key] = draw(state, self._turned)
        return self._known[key]

    def is_one_row(self, rows: Rows) -> bool:
        """Return whether what was placed at these limits needed one row alone."""
        return self._rows.get(rows) == 1

    def by_scale_bound(
        self, tries: Sequence[Rows], page: tuple[float, float]
    ) -> list[tuple[float, Rows]]:
        """Return (upper bound of the scale at which all fits a page, rows) for each candidate, the best first.

        Computed from the columns alone, so that most candidates need not be placed.
        """
        bounds = []
        for rows in tries:
            width, height = self._least_size(rows)
            bounds.append(
                (min(page[0] / max(width, 1.0), page[1] / max(height, 1.0)), rows)
            )
        return sorted(bounds, key=lambda pair: -pair[0])

    def _least_size(self, rows: Rows) -> tuple[float, float]:
        """Return the width, and a lower bound of the height from stacked boxes and the gaps and tracks of bands."""
        if not self._vertices:
            return 0.0, 0.0
        state = self._cuts[rows] = self._cut(rows)
        spacing, stacks = self._spacing, [0.0] * len(state.band_of_layer)
        for vertex, layer in zip(self._vertices, state.layer, strict=True):
            stacks[layer] += vertex.height + spacing.box
        gap = min(spacing.band, spacing.frame, spacing.fold)
        gap -= spacing.grid  # by which lines may come nearer to one another
        height = sum(max(stacks[a:b]) - spacing.box + gap for a, b in state.bands) - gap
        if self._routed:
            bands = [state.band_of_layer[layer] for layer in state.layer]
            leaving = Counter(
                bands[link.tail]
                for link in self._links
                if bands[link.tail] != bands[link.head]
            )
            height += (
                sum(min(count, MOST_TRACKS) - 1 for count in leaving.values())
                * spacing.track
                * CROWDED
            )
        return max(state.right), height

    def _cut(self, rows: Rows) -> State:
        self._tick()
        state = State(
            self._vertices,
            self._links,
            self._spacing,
            self._layer,
            self._routed,
            self.is_chain,
            self._tick,
        )
        state.heights = [v.height for v in self._vertices]
        state.weights = [v.weight for v in self._vertices]
        cut_into_bands(state, rows)
        return state


def _is_chain(layer: Sequence[int], links: Sequence[Link]) -> bool:
    """Return whether each layer has one vertex and all links go to the next layer."""
    if len(layer) != max(layer) + 1:
        return False
    return all(layer[link.head] == layer[link.tail] + 1 for link in links)


def _place_chain(state: State) -> None:
    """Assign rows, chains and y; all links are level but those to the next band."""
    layer, links, band_of = state.layer, state.links, state.band_of_layer
    at_layer = [0] * len(layer)
    for vertex, layer_number in enumerate(layer):
        at_layer[layer_number] = vertex
    state.rows = [[vertex] for vertex in at_layer]
    rises: list[list[float]] = [[] for _ in layer]
    for number, link in enumerate(links):
        tail, head = layer[link.tail], layer[link.head]
        band = band_of[tail]
        if band == band_of[head]:
            state.chains.append(Chain(number, [link.tail, link.head], band))
            rises[head].append(link.tail_dy - link.head_dy)
            continue
        state.chains.append(Chain(number, [link.tail], band, leaves=True))
        state.chains.append(Chain(number, [link.head], band_of[head], enters=True))
    state.y = y = [0.0] * len(layer)
    for a, b in state.bands:
        here = least = 0.0
        for layer_number in range(a, b):
            if rise := rises[layer_number]:
                here += sum(rise) / len(rise)
            least = min(least, here)
            y[at_layer[layer_number]] = here
        for layer_number in range(a, b):
            y[at_layer[layer_number]] -= least


# --- Layers


def acyclic(count: int, links: Sequence[Link]) -> tuple[list[bool], list[int]]:
    """Return which links to reverse so that no cycle is left, and the rank of each vertex in the given order."""
    waiting = [0] * count
    after: list[list[int]] = [[] for _ in range(count)]
    for link in links:
        waiting[link.head] += 1
        after[link.tail].append(link.head)
    ready = [v for v in range(count) if not waiting[v]]
    rank = [-1] * count
    placed, next_blocked = 0, 0
    while placed < count:
        if ready:
            vertex = heapq.heappop(ready)
        else:  # only circles are left: break one at its first vertex
            while rank[next_blocked] >= 0:
                next_blocked += 1
            vertex = next_blocked
        if rank[vertex] >= 0:
            continue
        rank[vertex] = placed
        placed += 1
        for head in after[vertex]:
            waiting[head] -= 1
            if not waiting[head] and rank[head] < 0:
                heapq.heappush(ready, head)
    return [rank[link.tail] > rank[link.head] for link in links], rank


def layers(vertices: list[Vertex], links: list[Link], rank: list[int]) -> list[int]:
    """Assign layers by longest path; then move sources, and nodes that depend on sources alone, next to their
    consumers."""
    order = sorted(range(len(vertices)), key=rank.__getitem__)
    after: list[list[int]] = [[] for _ in vertices]
    fed = [False] * len(vertices)  # by a vertex with a fixed layer
    for link in links:
        after[link.tail].append(link.head)
    layer = [0] * len(vertices)
    for vertex in order:
        least = layer[vertex] + 1
        for head in after[vertex]:
            if layer[head] < least:
                layer[head] = least
        heads = after[vertex]
        if (
            fed[vertex]
            or vertices[vertex].pin
            or (len(heads) > 1 and len(set(heads)) > 1)
        ):
            for head in heads:
                fed[head] = True
    for vertex in reversed(order):
        if after[vertex] and not fed[vertex]:
            layer[vertex] = max(
                layer[vertex], min(layer[head] for head in after[vertex]) - 1
            )
    free = [layer[v] for v, vertex in enumerate(vertices) if not vertex.pin] or [0]
    ends = {"first": min(free) - 1, "last": max(free) + 1}
    layer = [
        ends[vertex.pin] if vertex.pin else layer[v]
        for v, vertex in enumerate(vertices)
    ]
    used = {old: new for new, old in enumerate(sorted(set(layer)))}
    return [used[old] for old in layer]


# --- The order within a layer


def make_rows(state: State) -> None:
    """Put vertices and the bends of long links into their layers."""
    keyed: list[list[tuple[float, int]]] = [[] for _ in range(max(state.layer) + 1)]
    for vertex, layer in enumerate(state.layer):
        keyed[layer].append((float(vertex), vertex))
    longest = _longest_with_bends(state)
    for number, link in enumerate(state.links):
        tail, head = state.layer[link.tail], state.layer[link.head]
        from_band, to_band = state.band_of_layer[tail], state.band_of_layer[head]
        if from_band == to_band:
            inner = range(tail + 1, head) if head - tail <= longest else range(0)
            items = [
                link.tail,
                *_bends(state, keyed, inner, link.tail, link.below),
                link.head,
            ]
            add_chain(state, Chain(number, items, from_band))
            continue
        if not state.routed:
            continue
        rest = _bends(
            state, keyed, range(tail + 1, state.bands[from_band][1]), link.tail
        )
        first = _bends(state, keyed, range(state.bands[to_band][0], head), link.head)
        add_chain(state, Chain(number, [link.tail, *rest], from_band, leaves=True))
        add_chain(state, Chain(number, [*first, link.head], to_band, enters=True))
    state.rows = [[item for _, item in sorted(row)] for row in keyed]


def _longest_with_bends(state: State) -> int:
    """Return the longest link that is routed with bends; limits bends to a small multiple of the boxes."""
    budget = max(20_000, 6 * len(state.vertices))
    lengths = sorted(
        state.layer[link.head] - state.layer[link.tail] for link in state.links
    )
    for length in lengths:
        budget -= length
        if budget < 0:
            return length - 1
    return lengths[-1] if lengths else 0


def _bends(
    state: State,
    keyed: list[list[tuple[float, int]]],
    layers: range,
    near: int,
    below: bool = False,
) -> list[int]:
    bend_items = []
    for layer in layers:
        item = len(state.heights)
        state.heights.append(0.0)
        state.weights.append(BEND)
        keyed[layer].append(
            (2 * len(state.vertices) - near if below else near - 0.5, item)
        )
        bend_items.append(item)
    return bend_items


def add_chain(state: State, chain: Chain) -> None:
    state.chains.append(chain)
    link, count = state.links[chain.link], len(state.vertices)
    for a, b in zip(chain.items, chain.items[1:], strict=False):
        rise = (link.tail_dy if a < count else 0.0) - (
            link.head_dy if b < count else 0.0
        )
        state.after.setdefault(a, []).append((b, -rise))
        state.before.setdefault(b, []).append((a, rise))


def order_rows(state: State) -> None:
    """Barycentre sweeps over each band; the best order seen stays."""
    small = len(state.heights) < _COUNT_CROSSINGS_BELOW
    for a, b in state.bands:
        state.tick()
        rows = state.rows[a:b]
        if max(map(len, rows)) < 2:
            continue
        best, fewest = rows, _crossings(state, rows) if small else 1
        for sweep in range(_SWEEPS):
            if not fewest:
                break
            rows = _sweep(
                [list(row) for row in rows],
                state.before if sweep % 2 == 0 else state.after,
                sweep % 2 == 1,
            )
            crossings = _crossings(state, rows) if small else 1
            if crossings < fewest or not small:
                best, fewest = rows, crossings
        state.rows[a:b] = best


def _sweep(
    rows: list[list[int]],
    neighbours: dict[int, list[tuple[int, float]]],
    backwards: bool,
) -> list[list[int]]:
    position: dict[int, float] = {}
    for row in reversed(rows) if backwards else rows:
        keys = {}
        for index, item in enumerate(row):
            near = [
                position[other]
                for other, _ in neighbours.get(item, ())
                if other in position
            ]
            keys[item] = sum(near) / len(near) if near else float(index)
        row.sort(key=keys.__getitem__)
        position.update((item, float(rank)) for rank, item in enumerate(row))
    return rows


def _crossings(state: State, rows: list[list[int]]) -> int:
    """Count crossings of links between neighbouring layers."""
    total = 0
    for row, next_row in zip(rows, rows[1:], strict=False):
        if len(row) < 2 or len(next_row) < 2:
            continue
        where = {item: index for index, item in enumerate(next_row)}
        passed: list[int] = []
        for item in row:
            heads = sorted(
                where[other] for other, _ in state.after.get(item, ()) if other in where
            )
            total += sum(len(passed) - bisect_left(passed, head + 1) for head in heads)
            for head in heads:
                insort(passed, head)
    return total


# --- y coordinates


def assign_y(state: State) -> None:
    """Assign the tops of all items, relative to the top of their band."""
    state.y = [0.0] * len(state.heights)
    before, after = (
        _heaviest(state, neighbours) for neighbours in (state.before, state.after)
    )
    for a, b in state.bands:
        state.tick()
        rows = state.rows[a:b]
        for row in rows:
            for above, item in zip(row, row[1:], strict=False):
                state.y[item] = state.y[above] + _apart(state, above, item)
        for backwards in (False, True, False):
            for row in reversed(rows) if backwards else rows:
                _align(state, row, after if backwards else before)
    _straighten(state)
    count, edge = len(state.vertices), state.spacing.edge
    for a, b in state.bands:
        items = [item for row in state.rows[a:b] for item in row]
        top = min(state.y[item] - (edge if item >= count else 0.0) for item in items)
        for item in items:
            state.y[item] -= top


def _apart(state: State, above: int, below: int) -> float:
    """Least distance between the tops of two neighbours in a layer."""
    bends = state.weights[above] == BEND or state.weights[below] == BEND
    return state.heights[above] + (state.spacing.bend if bends else state.spacing.box)


def _heaviest(state: State, neighbours: Neighbours) -> Neighbours:
    """Reduce the neighbours of each item to its heaviest ones."""
    heaviest: Neighbours = {}
    for item, near in neighbours.items():
        if len(near) > 1:
            most = max(state.weights[other] for other, _ in near)
            near = [
                (other, rise) for other, rise in near if state.weights[other] == most
            ]
        heaviest[item] = near
    return heaviest


def _align(state: State, row: list[int], neighbours: Neighbours) -> None:
    """Move a layer's items to where their neighbours are, in order and apart (pool adjacent violators)."""
    blocks: list[tuple[float, float, int]] = []
    offset, offsets, y, weights = 0.0, [], state.y, state.weights
    for position, item in enumerate(row):
        if position:
            offset += _apart(state, row[position - 1], item)
        offsets.append(offset)
        stiff, near = _STIFFNESS[min(weights[item], 2)], neighbours.get(item)
        if not near:
            aim, stiff = y[item] - offset, 0.01 * stiff
        elif len(near) == 1:  # as most have it
            ((other, rise),) = near
            aim = y[other] + rise - offset
        else:
            aim = sum([y[other] + rise for other, rise in near]) / len(near) - offset
        size = 1
        while blocks and blocks[-1][0] > aim:
            other_aim, other_stiff, other_size = blocks.pop()
            aim = (aim * stiff + other_aim * other_stiff) / (stiff + other_stiff)
            stiff, size = stiff + other_stiff, size + other_size
        blocks.append((aim, stiff, size))
    position = 0
    for aim, _, size in blocks:
        for _ in range(size):
            y[row[position]] = aim + offsets[position]
            position += 1


def _straighten(state: State) -> None:
    """Move all bends of a link to one y where their neighbours leave room."""
    spot = {
        item: (layer, position)
        for layer, row in enumerate(state.rows)
        for position, item in enumerate(row)
    }
    count = len(state.vertices)
    for chain in state.chains:
        bends = [item for item in chain.items if item >= count]
        if len(bends) < 2:
            continue
        lowest, highest = float("-inf"), float("inf")
        for item in bends:
            layer, at = spot[item]
            row = state.rows[layer]
            if at:
                lowest = max(
                    lowest, state.y[row[at - 1]] + _apart(state, row[at - 1], item)
                )
            if at + 1 < len(row):
                highest = min(
                    highest, state.y[row[at + 1]] - _apart(state, item, row[at + 1])
                )
        if lowest <= highest:
            middle = sorted(state.y[item] for item in bends)[len(bends) // 2]
            level = min(max(middle, lowest), highest)
            for item in bends:
                state.y[item] = level
