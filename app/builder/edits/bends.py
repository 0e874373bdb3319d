"""Reroute points of wires: pure edits of a sheet's `bends`, in canvas pixels.

A wire runs from its source through its bends, in order, to its target. A wire without bends has no entry.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TypeVar

from app.builder.graph import Edge, Graph
from app.builder.sheet import Bends, Point, Sheet, changed
from app.util.frozen import FrozenMap

S = TypeVar("S", bound=Sheet)


def with_points(sheet: S, wire: Edge, points: Iterable[Point]) -> S:
    """Set the bends of a wire; without any it is routed automatically."""
    through = tuple(points)
    return changed(
        sheet,
        bends=sheet.bends.set(wire, through) if through else sheet.bends.without(wire),
    )


def add(sheet: S, wire: Edge, at: Point, start: Point, end: Point) -> tuple[S, int]:
    """Put a bend on the stretch of a wire that is nearest; returns its number. The wire runs from `start` to `end`."""
    points = sheet.bends.get(wire, ())
    number = nearest_stretch((start, *points, end), at)
    return with_points(sheet, wire, (*points[:number], at, *points[number:])), number


def move(sheet: S, wire: Edge, number: int, to: Point) -> S:
    """Put a bend elsewhere. Raises IndexError where there is none of that number."""
    points = list(sheet.bends.get(wire, ()))
    points[number] = to
    return with_points(sheet, wire, points)


def remove(sheet: S, wire: Edge, number: int) -> S:
    """Remove a bend. Raises IndexError if there is none of that number."""
    points = list(sheet.bends.get(wire, ()))
    del points[number]
    return with_points(sheet, wire, points)


def shifted(bends: Bends, graph: Graph, shifts: Mapping[str, Point]) -> Bends:
    """Move the bends of wires whose ends both move by the same offset."""
    moved = {}
    for wire in bends:
        shift = shifts.get(wire.source)
        if (
            shift is not None
            and shift == shifts.get(wire.target)
            and shift != (0.0, 0.0)
        ):
            moved[wire] = tuple((x + shift[0], y + shift[1]) for x, y in bends[wire])
    return bends.update(moved) if moved else bends


def within(bends: Bends, nodes: Iterable[str]) -> Bends:
    """Return the bends of the wires among some nodes."""
    inside = set(nodes)
    return FrozenMap(
        {
            e: points
            for e, points in bends.items()
            if e.source in inside and e.target in inside
        }
    )


def split(
    points: tuple[Point, ...], at: Point, start: Point, end: Point
) -> tuple[tuple[Point, ...], ...]:
    """Split the bends of a wire from `start` to `end` at the point where a node is inserted.

    >>> split(((10.0, 0.0), (20.0, 0.0)), (14.0, 1.0), (0.0, 0.0), (30.0, 0.0))
    (((10.0, 0.0),), ((20.0, 0.0),))
    """
    number = nearest_stretch((start, *points, end), at)
    return points[:number], points[number:]


def nearest_stretch(points: tuple[Point, ...], at: Point) -> int:
    """Return the index of the segment nearest to `at`.

    >>> nearest_stretch(((0.0, 0.0), (10.0, 0.0), (10.0, 10.0)), (11.0, 6.0))
    1
    """
    pairs = list(zip(points, points[1:], strict=False))
    return min(range(len(pairs)), key=lambda i: _to_stretch(at, *pairs[i]), default=0)


def _to_stretch(at: Point, a: Point, b: Point) -> float:
    """Return the distance from a point to a segment."""
    along = (b[0] - a[0], b[1] - a[1])
    length = along[0] ** 2 + along[1] ** 2
    share = (
        0.0
        if not length
        else ((at[0] - a[0]) * along[0] + (at[1] - a[1]) * along[1]) / length
    )
    share = min(max(share, 0.0), 1.0)
    return _distance(at, (a[0] + share * along[0], a[1] + share * along[1]))


def _distance(a: Point, b: Point) -> float:
    return math.hypot(a[0] - b[0], a[1] - b[1])
