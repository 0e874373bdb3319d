"""Arrows as painter paths, and their heads."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from PySide6.QtCore import QPointF
from PySide6.QtGui import QPainterPath


def arrow_path(
    points: Iterable[tuple[float, float]], radius: float = 9.0
) -> QPainterPath:
    """Level and upright pieces as lines with round corners, slanting ones as curves that leave and arrive level.

    An arrow of two points that is higher than wide hangs: it leaves and arrives upright.
    """
    way = [QPointF(x, y) for x, y in points]
    path = QPainterPath(way[0])
    hangs = len(way) == 2 and abs(way[1].y() - way[0].y()) > abs(
        way[1].x() - way[0].x()
    )
    for index in range(1, len(way)):
        a, b = way[index - 1], way[index]
        level, upright = abs(a.y() - b.y()) < 0.5, abs(a.x() - b.x()) < 0.5
        if not (level or upright):
            if hangs:
                half = (a.y() + b.y()) / 2
                path.cubicTo(QPointF(a.x(), half), QPointF(b.x(), half), b)
            else:
                half = (a.x() + b.x()) / 2
                path.cubicTo(QPointF(half, a.y()), QPointF(half, b.y()), b)
            continue
        turn = way[index + 1] if index + 1 < len(way) else None
        if turn is None or not _turns(a, b, turn):
            path.lineTo(b)
            continue
        reach = min(radius, _length(a, b) / 2, _length(b, turn) / 2)
        path.lineTo(_towards(b, a, reach))
        path.quadTo(b, _towards(b, turn, reach))
    return path


def shortened(
    points: Sequence[tuple[float, float]], by: float
) -> list[tuple[float, float]]:
    """Return a route that ends earlier, within its last piece. A pattern of dashes would do the same, but Qt leaves out
    pieces of a dashed path that is partly out of sight."""
    (ax, ay), (bx, by_) = points[-2], points[-1]
    length = max(math.hypot(bx - ax, by_ - ay), 0.01)
    share = max(length - by, 0.1 * length) / length
    return [*points[:-1], (ax + (bx - ax) * share, ay + (by_ - ay) * share)]


def arrow_head(path: QPainterPath, size: float = 7.0) -> QPainterPath:
    """Return a triangle at the end of a path."""
    tip = path.currentPosition()
    back = path.pointAtPercent(
        max(0.0, 1.0 - (size + 1) / max(path.length(), size + 1))
    )
    length = max(_length(back, tip), 0.01)
    ux, uy = (tip.x() - back.x()) / length, (tip.y() - back.y()) / length
    head = QPainterPath(tip)
    head.lineTo(
        tip.x() - size * ux - size * 0.55 * uy, tip.y() - size * uy + size * 0.55 * ux
    )
    head.lineTo(
        tip.x() - size * ux + size * 0.55 * uy, tip.y() - size * uy - size * 0.55 * ux
    )
    head.closeSubpath()
    return head


def _turns(a: QPointF, b: QPointF, c: QPointF) -> bool:
    return (abs(a.y() - b.y()) < 0.5 and abs(b.x() - c.x()) < 0.5) or (
        abs(a.x() - b.x()) < 0.5 and abs(b.y() - c.y()) < 0.5
    )


def _length(a: QPointF, b: QPointF) -> float:
    return math.hypot(a.x() - b.x(), a.y() - b.y())


def _towards(start: QPointF, end: QPointF, reach: float) -> QPointF:
    share = reach / max(_length(start, end), 0.01)
    return start + (end - start) * share
