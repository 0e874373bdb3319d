"""The order of items within a layer."""

from __future__ import annotations

from bisect import bisect_left, insort

from app.diagram.layout.model import BEND, Chain, State

_SWEEPS = 4
_COUNT_CROSSINGS_BELOW = 4000


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
