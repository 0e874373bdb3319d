"""Arrows as painter paths with their heads, and how they are painted."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from PySide6.QtCore import QLineF, QPointF, Qt
from PySide6.QtGui import QBrush, QPainter, QPainterPath, QPainterPathStroker, QPen

from app.views.autograd.graph.playback_paint import EdgeFlow
from app.views.ui.theme import Theme, current, manager, mix

Route = tuple[tuple[float, float], ...]


class ArrowPath(NamedTuple):
    """Where an arrow runs, on the scene; `line` where it is straight."""

    path: QPainterPath
    head: QPainterPath
    line: QLineF | None

    @classmethod
    def from_route(cls, route: Route, flow: EdgeFlow | None = None) -> ArrowPath:
        """Build the painted arrow of a route with its flow: a thick line ends within its head."""
        head = arrow_head(arrow_path(route), 7.0 if flow is None else 6.0 + flow.width)
        shaft = route if flow is None else shortened(route, 5 + flow.width / 2)
        (ax, ay), (bx, by) = shaft[0], shaft[-1]
        straight = len(route) == 2 and (abs(ay - by) < 0.5 or abs(ax - bx) < 0.5)
        return cls(
            arrow_path(shaft), head, QLineF(ax, ay, bx, by) if straight else None
        )

    def near(self, at: QPointF) -> bool:
        """Return whether a point of the scene is on it."""
        stroker = QPainterPathStroker()
        stroker.setWidth(6)
        return stroker.createStroke(self.path).contains(at)

    def paint(self, painter: QPainter, marked: bool, flow: EdgeFlow | None) -> None:
        """Paint it alone: marked, or as wide as the norm of its flow."""
        ink = arrow_ink(current(), marked, manager().strokes)
        pen, fill = ink if flow is None else _flow_ink(flow)
        painter.setPen(pen)
        painter.setBrush(Qt.BrushStyle.NoBrush)
        if self.line is not None:
            painter.drawLine(self.line)
        else:
            painter.drawPath(self.path)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(fill)
        painter.drawPath(self.head)


def paint_plain(painter: QPainter, arrows: Sequence[ArrowPath]) -> None:
    """Paint arrows without marks or flows, in a few calls."""
    pen, fill = arrow_ink(current(), False, manager().strokes)
    painter.setPen(pen)
    painter.setBrush(Qt.BrushStyle.NoBrush)
    painter.drawLines([arrow.line for arrow in arrows if arrow.line is not None])
    for arrow in arrows:
        if arrow.line is None:
            painter.drawPath(arrow.path)
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(fill)
    for arrow in arrows:
        painter.drawPath(arrow.head)


@lru_cache(maxsize=8)
def arrow_ink(theme: Theme, marked: bool, strokes: float) -> tuple[QPen, QBrush]:
    """Return pen and brush of an arrow and its head, `strokes` times as thick as designed."""
    color = theme.back if marked else mix(theme.canvas, theme.back, 0.72)
    return QPen(color, strokes * (2.4 if marked else 1.6)), QBrush(color)


def _flow_ink(flow: EdgeFlow) -> tuple[QPen, QBrush]:
    """Return pen and brush of a flow, as wide as its norm."""
    color = flow.color(current())
    pen = QPen(color, flow.width, Qt.PenStyle.SolidLine, Qt.PenCapStyle.FlatCap)
    if flow.dashed:
        pen.setDashPattern([3, 3])
    return pen, QBrush(color)


def arrow_path(points: Iterable[tuple[float, float]]) -> QPainterPath:
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
        reach = min(9.0, _length(a, b) / 2, _length(b, turn) / 2)
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
