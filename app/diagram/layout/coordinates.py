"""y coordinates of items."""

from __future__ import annotations

from app.diagram.layout.model import BEND, State

Neighbours = dict[int, list[tuple[int, float]]]

_STIFFNESS = {0: 1.0, BEND: 1.0, 2: 1e7}


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
