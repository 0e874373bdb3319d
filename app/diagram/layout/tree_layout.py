"""Boxes that hang under others: one piece of a box and all that belongs below it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

from app.diagram.layout.model import Point

HANG_DOWN = 16.0
HANG_APART = 8.0


class Rect(NamedTuple):
    """`x` and `y` are the top left corner, in pixels."""

    x: float
    y: float
    width: float
    height: float

    @property
    def right(self) -> float:
        return self.x + self.width

    @property
    def bottom(self) -> float:
        return self.y + self.height

    @property
    def center(self) -> Point:
        return self.x + self.width / 2, self.y + self.height / 2


class Piece(Struct, eq=False):
    """A unit of placement: a box with the boxes under it, the topmost first in `rects`, or a group.

    `rects` are relative to its corner; its corner is at (`x`, `y`) of what it is placed in. `group` is the group of its
    boxes, `first` the place of its first box in the drawing.
    """

    width: float
    height: float
    rects: dict[str, Rect]
    group: str | None = None
    first: int = -1
    x: float = 0.0
    y: float = 0.0


def hanging_piece(
    top: str,
    children: Mapping[str, list[str]],
    sizes: Mapping[str, tuple[float, float]],
) -> Piece:
    """Build the tree of a box: each child below its parent, leaves all on the lowest level."""
    if top not in children:
        width, height = sizes[top]
        return Piece(width, height, {top: Rect(0.0, 0.0, width, height)})
    order = [top]
    for box in order:
        order.extend(children.get(box, ()))
    level = {top: 0}
    for box in order:
        level.update((child, level[box] + 1) for child in children.get(box, ()))
    lowest = max(level.values())
    for box in order:
        if box != top and box not in children:
            level[box] = lowest
    heights = [
        max((sizes[box][1] for box in order if level[box] == n), default=0.0)
        for n in range(lowest + 1)
    ]
    spread: dict[str, float] = {}
    for box in reversed(order):
        spread[box] = max(sizes[box][0], _row_width(children.get(box, ()), spread))
    rects: dict[str, Rect] = {}
    left = {top: 0.0}
    for box in order:
        width, height = sizes[box]
        y = sum(heights[: level[box]]) + HANG_DOWN * level[box]
        rects[box] = Rect(left[box] + (spread[box] - width) / 2, y, width, height)
        x = left[box] + (spread[box] - _row_width(children.get(box, ()), spread)) / 2
        for child in children.get(box, ()):
            left[child] = x
            x += spread[child] + HANG_APART
    return Piece(spread[top], sum(heights) + HANG_DOWN * lowest, rects)


def _row_width(boxes: Sequence[str], widths: Mapping[str, float]) -> float:
    return sum(widths[box] for box in boxes) + HANG_APART * max(len(boxes) - 1, 0)
