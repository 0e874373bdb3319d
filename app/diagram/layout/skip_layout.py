"""Skip layout: in a network with nested long skips, as a U-Net, decoder levels are next to encoder levels, so that each
skip is a straight line."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from msgspec import Struct

Skip = tuple[int, int]

LONG = 4  # columns that a wire must lead over to count; shorter ones stay in their row
MOST = 400  # links that are examined; more are not folded
SHARE = 0.6  # fraction of the long links that must be nested


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
    if len(long) > MOST:
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
