"""Points that somebody has drawn, as text: `x y class` for each, and a semicolon between two."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from app.data.spec import DataError

MOST = 2000
CLASSES = 2
XOR = "-0.6 -0.6 0; 0.6 0.6 0; -0.5 -0.4 0; 0.5 0.4 0; -0.6 0.6 1; 0.6 -0.6 1; -0.5 0.4 1; 0.5 -0.4 1"


class OwnPoint(NamedTuple):
    """A point of the plane and its class, 0 or 1."""

    x: float
    y: float
    label: int


def points_of(text: str) -> tuple[OwnPoint, ...]:
    """Return the points of a text. Raises DataError.

    >>> points_of("0.5 -1 0; 0.25 0 1")
    (OwnPoint(x=0.5, y=-1.0, label=0), OwnPoint(x=0.25, y=0.0, label=1))
    """
    rows = [row.strip() for row in text.split(";") if row.strip()]
    if len(rows) > MOST:
        raise DataError(
            f"There are {len(rows):,} points; at most {MOST:,} can be drawn."
        )
    return tuple(map(_point, rows))


def text_of(points: Iterable[OwnPoint]) -> str:
    """Return points as text, to three decimals."""
    return "; ".join(f"{x:.3f} {y:.3f} {label}" for x, y, label in points)


def _point(row: str) -> OwnPoint:
    try:
        x, y, label = row.split()
        point = OwnPoint(float(x), float(y), int(label))
    except ValueError:
        point = OwnPoint(math.nan, math.nan, 0)
    if not math.isfinite(point.x + point.y) or not 0 <= point.label < CLASSES:
        raise DataError(
            f"{row[:40]!r} is no point; expected x, y and the class 0 or 1, as in 0.5 -0.2 1."
        )
    return point
