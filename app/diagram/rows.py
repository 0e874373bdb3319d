"""Break layers into bands as a paragraph into lines: evenly full, at places that few links cross."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from itertools import accumulate, groupby

from msgspec import Struct

from app.diagram.layout_model import Link, Rows, State, snapped_up

FURTHER = 0.25  # cost of each further link of a vertex across a row break
PROHIBITIVE = 100.0  # cost of a break inside a frame that fits a row, or next to a layer of ports alone
SPARE = 90.0  # a justified row widens its gaps by at most this
LONG = 4  # columns that a wire must lead over to count; shorter ones stay in their row
MOST_SKIPS = 400  # links that are examined; more are not folded
SHARE = 0.6  # fraction of the long links that must be nested

Skip = tuple[int, int]


def cut_into_bands(state: State, rows: Rows) -> None:
    """Compute columns, gaps between them, and the bands they belong to."""
    count, column = max(state.layer) + 1, state.spacing.column
    widths, edge_only = [0.0] * count, [True] * count
    for vertex, layer in zip(state.vertices, state.layer, strict=True):
        widths[layer] = max(widths[layer], vertex.width)
        edge_only[layer] = edge_only[layer] and bool(vertex.pin)
    gaps = [
        0.0 if edge_only[n] or n + 1 == count or edge_only[n + 1] else column
        for n in range(count)
    ]
    for link in state.links:
        tail = state.layer[link.tail]
        if link.label_width and gaps[tail] and state.layer[link.head] == tail + 1:
            gaps[tail] = max(gaps[tail], link.label_width + state.spacing.label_margin)
    levels = _levels(state, widths, gaps, rows)
    if levels:
        order = [n for level in levels for n in (*level.down, *level.up)]
        new_index = {old: new for new, old in enumerate(order)}
        state.layer = [new_index[layer] for layer in state.layer]
        widths, gaps = [widths[n] for n in order], [column] * count
        ends = list(
            accumulate(
                len(order) for order in ((*level.down, *level.up) for level in levels)
            )
        )
        state.bands = list(zip([0, *ends], ends, strict=False))
        state.arms = [
            a + len(level.down)
            for (a, _), level in zip(state.bands, levels, strict=True)
        ]
    elif sum(widths) + sum(gaps[:-1]) <= rows.limit:
        state.bands = [(0, count)]
    else:
        state.frames = _frames(state, count)
        crossing = (
            [1.0] * (count + 1)
            if state.is_chain
            else break_costs(state.layer, state.links)
        )
        state.bands = break_into_rows(widths, gaps, crossing, rows, state.frames)
    for number, (a, b) in enumerate(state.bands):
        state.band_of_layer += [number] * (b - a)
    _columns(state, widths, gaps)


def _levels(
    state: State, widths: Sequence[float], gaps: Sequence[float], rows: Rows
) -> list[Level]:
    """Return the bands of a skip layout; empty if a row is wide enough or the graph does not fold."""
    if not rows.folds or sum(widths) + sum(gaps) <= rows.limit:
        return []
    layer = state.layer
    return levels(
        len(widths), {(layer[link.tail], layer[link.head]) for link in state.links}
    )


def _frames(state: State, count: int) -> list[str]:
    """Return the frame of each layer, "" for none or several; empty without frames."""
    if not any(vertex.frame for vertex in state.vertices):
        return []
    frame_names: list[set[str]] = [set() for _ in range(count)]
    for vertex, layer in zip(state.vertices, state.layer, strict=True):
        frame_names[layer].add(vertex.frame)
    return [next(iter(names)) if len(names) == 1 else "" for names in frame_names]


def _columns(state: State, widths: Sequence[float], gaps: Sequence[float]) -> None:
    """Compute x of the columns: on the grid, or with nearly full rows justified like lines of text."""
    grid = state.spacing.grid
    totals = [sum(widths[a:b]) + sum(gaps[a : b - 1]) for a, b in state.bands]
    full = max(totals)
    state.left, state.right = [0.0] * len(widths), [0.0] * len(widths)
    right_arm = max(
        (
            sum(snapped_up(widths[n] + gaps[n], grid) for n in range(a, arm))
            for (a, _), arm in zip(state.bands, state.arms, strict=False)
        ),
        default=0.0,
    )
    arms = set(state.arms)
    for number, (a, b) in enumerate(state.bands):
        inner = sum(1 for n in range(a, b - 1) if gaps[n])
        spare = (
            (full - totals[number]) / inner
            if inner and number < len(state.bands) - 1 and not grid
            else 0.0
        )
        x = 0.0
        for n in range(a, b):
            x = max(x, right_arm) if n in arms else x
            state.left[n], state.right[n] = x, x + widths[n]
            x = snapped_up(
                x + widths[n] + (gaps[n] + min(spare, SPARE) if gaps[n] else 0.0), grid
            )


def break_costs(layer: Sequence[int], links: Sequence[Link]) -> list[float]:
    """Return the cost of a break at the left edge of each layer and the right edge of the last.

    1 for each vertex whose value is used beyond it, and `FURTHER` for each further link of that vertex: a break behind
    a vertex that feeds two layers costs more than one before it, which keeps residual blocks whole, and less than one
    that many values cross.
    """
    heads: dict[int, set[int]] = {}
    for link in links:
        heads.setdefault(link.tail, set()).add(link.head)
    steps = [0.0] * (max(layer, default=-1) + 3)
    for tail, targets in heads.items():
        begin, last = layer[tail] + 1, max(layer[head] for head in targets)
        steps[begin] += 1.0 - FURTHER
        steps[last + 1] -= 1.0 - FURTHER
        for head in targets:
            steps[begin] += FURTHER
            steps[layer[head] + 1] -= FURTHER
    return list(accumulate(steps))[:-1]


def break_into_rows(
    widths: Sequence[float],
    gaps: Sequence[float],
    crossing: Sequence[float],
    rows: Rows,
    frames: Sequence[str] = (),
) -> list[tuple[int, int]]:
    """Return (first layer, end) of each row, minimising unused or lacking room and the cost of breaks. `gaps[n]` is the
    gap behind layer `n`.

    `frames` names the frame of each layer, "" for none. A frame too wide for a row gets rows without other layers.
    """
    costs = [2.0 * max(0.0, values - 1.0) for values in crossing]
    for n in range(1, len(widths)):
        if not widths[n - 1] or not widths[n]:
            costs[n] += PROHIBITIVE  # a layer of ports alone
    for frame, members in groupby(range(len(frames)), key=lambda n: frames[n]):
        first, *others = members
        if (
            frame
            and sum(widths[n] + gaps[n] for n in (first, *others)) - gaps[-1]
            > rows.widest * rows.limit
        ):
            costs[first], costs[first + len(others) + 1] = -PROHIBITIVE, -PROHIBITIVE
        elif frame:
            for n in others:
                costs[n] += PROHIBITIVE
    costs[len(widths)] = 0.0
    # Fullest rows first; the rest are pruned by a lower bound, so that a chain takes linear time.
    count, limit, widest = len(widths), rows.limit, rows.widest * rows.limit
    at = [
        0.0,
        *accumulate(width + gap for width, gap in zip(widths, gaps, strict=True)),
    ]
    edge = [
        0.0,
        *(x - gap for x, gap in zip(at[1:], gaps, strict=True)),
    ]  # the right side of the layer before
    rest = [0.0] * (
        count + 1
    )  # the cost of a break at each layer and of the rows behind it
    ends = [count] * (count + 1)  # where the first of these rows ends
    fits = reach = count
    cheapest: deque[int] = deque(
        [count]
    )  # ends that may come after a start, the cheapest first
    for start in range(count - 1, -1, -1):
        base = at[start]
        while reach > start + 1 and edge[reach] - base > widest:
            reach -= 1
        while fits > start and edge[fits] - base > limit:
            fits -= 1
        while cheapest[0] > reach:
            cheapest.popleft()
        best, lowest, room = float("inf"), rest[cheapest[0]], base + limit
        for end in range(fits, start, -1):
            slack = (room - edge[end]) / limit
            slack *= slack if end < count else 0.3 * slack  # the last row may be short
            cost = slack + rest[end]
            if cost <= best:
                best, ends[start] = cost, end
            elif slack + lowest > best and end < count:
                break
        for end in range(max(fits, start) + 1, reach + 1) if reach > fits else ():
            cost = 1.0 + 2.0 * (edge[end] - room) / limit + rest[end]
            if cost < best:
                best, ends[start] = cost, end
        rest[start] = best + 0.2 + costs[start]
        while cheapest and rest[cheapest[-1]] >= rest[start]:
            cheapest.pop()
        cheapest.append(start)
    bands, start = [], 0
    while start < count:
        bands.append((start, ends[start]))
        start = ends[start]
    return bands


# --- Skip layout: in a network with nested long skips, as a U-Net, decoder levels are next to encoder levels, so that
# each skip is a straight line.


class Level(Struct, frozen=True):
    """A row of a skip layout, as ranges of columns: the encoder's and the decoder's."""

    down: range
    up: range


def levels(count: int, wires: Collection[Skip]) -> list[Level]:
    """Return the rows of a network with `count` columns, from the top; empty if it does not fold.

    `wires` are pairs of columns. The last row is the turn: everything between the innermost skip's ends.

    >>> [(list(level.down), list(level.up)) for level in levels(10, {(1, 8), (3, 7)})]
    [([0, 1], [8, 9]), ([2, 3], [7]), ([4, 5, 6], [])]
    >>> levels(10, {(1, 5)})
    []
    """
    long = {(a, b) for a, b in wires if b - a >= LONG}
    if len(long) > MOST_SKIPS:
        return []
    chain = nested(sorted(long))
    if len(chain) < 2 or len(chain) < SHARE * len(long):
        return []
    rows, first, last = [], 0, count
    for a, b in chain:
        rows.append(Level(range(first, a + 1), range(b, last)))
        first, last = a + 1, b
    return [*rows, Level(range(first, last), range(0))]


def nested(skips: Sequence[Skip]) -> list[Skip]:
    """Return the longest sequence of skips, each strictly inside the one before.

    >>> nested([(0, 9), (1, 8), (2, 12), (3, 7)])
    [(0, 9), (1, 8), (3, 7)]
    """
    order = sorted(skips, key=lambda skip: skip[0] - skip[1])  # the widest first
    best: list[int] = []
    before: list[int] = []
    for i, (a, b) in enumerate(order):
        outer = [j for j in range(i) if order[j][0] < a and b < order[j][1]]
        widest = max(outer, key=lambda j: best[j], default=-1)
        best.append(best[widest] + 1 if widest >= 0 else 1)
        before.append(widest)
    chain = []
    at = max(range(len(order)), key=lambda i: best[i], default=-1)
    while at >= 0:
        chain.append(order[at])
        at = before[at]
    return chain[::-1]
