"""Route of a wire through bends: level at both ports, straight between bends on one level, and smooth elsewhere."""

from __future__ import annotations

import math
from collections.abc import Sequence

from PySide6.QtCore import QPointF, QRectF
from PySide6.QtGui import QPainterPath

from app.views.canvas.wires.routes import LABEL_RISE, RADIUS, Route

TURN = 24.0  # how far a wire keeps its direction at its ends, at most
ASIDE = 20.0  # how far beside its node a wire turns back
STRAIGHT = 1.0  # how far the ends of a level or vertical segment are off, at most, px
LEVEL = 0.35  # slope up to which a segment counts as level: its label is above it


def through(
    start: QPointF,
    end: QPointF,
    points: Sequence[QPointF],
    source: QRectF,
    target: QRectF,
) -> Route:
    """Return the route from an output through bends to an input. Its label is on the widest segment.

    `source` and `target` are the nodes: a wire that turns back at a port runs around them.
    """
    corners = [
        start,
        *_round(start, points[0], source, 1),
        *points,
        *_round(end, points[-1], target, -1),
        end,
    ]
    port = (start, start, QPointF(1, 0), QPointF(1, 0))
    turns = [
        port,
        *(_turn(*corners[i - 1 : i + 2]) for i in range(1, len(corners) - 1)),
        (end, end, *port[2:]),
    ]
    path = QPainterPath(start)
    middles = []
    for i in range(len(corners) - 1):
        (_, a, _, leaves), (b, beyond, arrives, _) = turns[i], turns[i + 1]
        length = math.hypot(b.x() - a.x(), b.y() - a.y())
        out = _handle(length, i == 0, b.x() - a.x())
        into = _handle(length, i == len(corners) - 2, b.x() - a.x())
        first, second = a + leaves * out, b - arrives * into
        path.cubicTo(first, second, b)
        middles.append((a + first * 3 + second * 3 + b) / 8)
        if beyond != b:
            path.quadTo(corners[i + 1], beyond)
    widest = max(
        range(len(middles)), key=lambda i: abs(corners[i + 1].x() - corners[i].x())
    )
    run, rise = (
        corners[widest + 1].x() - corners[widest].x(),
        corners[widest + 1].y() - corners[widest].y(),
    )
    label = middles[widest] - QPointF(
        0, LABEL_RISE if abs(rise) <= LEVEL * abs(run) else 0.0
    )
    return Route(path, label, abs(run), path.boundingRect())


def _round(port: QPointF, bend: QPointF, node: QRectF, side: int) -> list[QPointF]:
    """Return a corner next to a wire's first or last node if the adjacent bend is behind the port."""
    if (bend.x() - port.x()) * side >= 0:
        return []
    aside = (
        node.bottom() + ASIDE if bend.y() >= node.center().y() else node.top() - ASIDE
    )
    return [QPointF(port.x() + side * ASIDE, aside)]


def _turn(
    before: QPointF, here: QPointF, after: QPointF
) -> tuple[QPointF, QPointF, QPointF, QPointF]:
    """Return where a wire begins to turn at a bend and where it ends to, and its directions there.

    Between a level and a vertical segment it is a rounded corner; a single such segment stays straight.
    """
    into, out = _along(before, here), _along(here, after)
    if into is not None and out is not None and into != out:
        reach = min(RADIUS, _distance(before, here) / 2, _distance(here, after) / 2)
        return here - into * reach, here + out * reach, into, out
    direction = into or out or _direction(before, here, after)
    return here, here, direction, direction


def _along(a: QPointF, b: QPointF) -> QPointF | None:
    """Return the direction of a segment if it is level or vertical."""
    dx, dy = b.x() - a.x(), b.y() - a.y()
    if abs(dy) < STRAIGHT < abs(dx):
        return QPointF(math.copysign(1, dx), 0)
    if abs(dx) < STRAIGHT < abs(dy):
        return QPointF(0, math.copysign(1, dy))
    return None


def _distance(a: QPointF, b: QPointF) -> float:
    return math.hypot(b.x() - a.x(), b.y() - a.y())


def _direction(before: QPointF, here: QPointF, after: QPointF) -> QPointF:
    """Return the tangent at a bend: between those of the adjacent segments, closer to the shorter one's."""
    into, out = here - before, after - here
    a, b = math.hypot(into.x(), into.y()) or 1.0, math.hypot(out.x(), out.y()) or 1.0
    vector = into * (b / a) + out * (a / b)
    length = math.hypot(vector.x(), vector.y())
    return vector / length if length > 1e-6 else QPointF(1, 0)


def _handle(length: float, at_port: bool, run: float) -> float:
    """Return the length of a segment's Bézier handle at one of its ends."""
    if at_port and run < 0:  # a backward segment has to turn first
        return max(length / 3, min(TURN * 2, length))
    return length / 3 if not at_port else max(length * 0.4, min(TURN, length))
