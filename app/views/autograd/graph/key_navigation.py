"""Keyboard navigation between boxes of the graph."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from app.diagram.diagram import Arrow
from app.diagram.layout import Rect


def next_box(
    rects: Mapping[str, Rect], arrows: Sequence[Arrow], leaves: Collection[str], key: str, direction: str
) -> str:
    """Along the gradients left and right, where an arrow leads on; else the nearest box in that direction, or "".

    `arrows` are those at the box, and `leaves` the ends of them that are parameters: these are gone to last.
    """
    here = rects.get(key)
    if here is None:
        return next(iter(rects), "")
    if direction == "left":
        ends = [arrow.target for arrow in arrows if arrow.source == key]
    else:
        ends = [arrow.source for arrow in arrows if arrow.target == key]
    main = [end for end in ends if end not in leaves] or ends
    if main and direction in ("left", "right"):
        return min(main, key=lambda end: abs(rects[end].center[1] - here.center[1]))
    return _nearest(rects, here, direction)


def _nearest(rects: Mapping[str, Rect], here: Rect, direction: str) -> str:
    x, y = here.center
    best, best_far = "", float("inf")
    for key, rect in rects.items():
        dx, dy = rect.center[0] - x, rect.center[1] - y
        along, across = {"left": (-dx, dy), "right": (dx, dy), "up": (-dy, dx), "down": (dy, dx)}[direction]
        if along > 4 and (far := along + 3 * abs(across)) < best_far:
            best, best_far = key, far
    return best
