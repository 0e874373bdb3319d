"""Wire routing: straight between aligned ports, a curve forward, around nodes between, back through the gutter, or led
through bends."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property

from msgspec import Struct, field
from PySide6.QtCore import QPointF, QRectF
from PySide6.QtGui import QPainterPath

RADIUS = 10.0
STUB = 14.0  # straight out of a port before a wire turns
CLEAR = 22.0  # between a wire that passes by and a node
NEAR = 6.0  # nearer than this to a node a wire counts as running through it
LABEL_RISE = 16.0
LEAP = 32.0  # between two looks along a curve; less than the sides of any node
TURN = 24.0  # how far a wire keeps its direction at its ends, at most
ASIDE = 20.0  # how far beside its node a wire turns back
STRAIGHT = 1.0  # how far the ends of a level or vertical segment are off, at most, px
LEVEL = 0.35  # slope up to which a segment counts as level: its label is above it

Obstacles = Callable[[QRectF], list[QRectF]]


class Route(Struct, frozen=True, dict=True):
    """A path, the position of its shape label and the length of its level segment; `past` is the side on which it
    passes other nodes: -1 above, 1 below, 0 for none. `lane` is the area of its level segment and label between rows,
    which other wires avoid; empty without one.

    A change inside `area` may change the route.
    """

    path: QPainterPath
    label: QPointF
    run: float
    area: QRectF
    past: int = 0
    lane: QRectF = field(default_factory=QRectF)
    backward: bool = False
    turns: tuple[QPointF, ...] = ()  # bends with which it would run as it does

    @cached_property
    def bounds(self) -> QRectF:
        """The rectangle about the path."""
        return self.path.boundingRect()


def nothing(area: QRectF) -> list[QRectF]:
    """Return no obstacles."""
    return []


def route(
    start: QPointF,
    end: QPointF,
    source: QRectF,
    target: QRectF,
    obstacles: Obstacles = nothing,
    lanes: Obstacles = nothing,
) -> Route:
    """Return the route from an output to an input.

    `source` and `target` are the nodes; `obstacles` finds other nodes in an area, `lanes` the lanes of other wires.
    """
    if not runs_back(start, end):
        return _forward(start, end, target, obstacles)
    return _backward(
        start, end, source, target, lambda area: obstacles(area) + lanes(area)
    )


def runs_back(start: QPointF, end: QPointF) -> bool:
    """Return whether a wire runs backward, against the reading direction."""
    return end.x() - start.x() < STUB


def unled(start: QPointF, end: QPointF) -> Route:
    """Return a curve without obstacle avoidance or label, for wires that are moving."""
    path = _cubic(start, end)
    return Route(path, (start + end) / 2, 0.0, path.boundingRect())


def free_end(start: QPointF, end: QPointF, from_output: bool) -> QPainterPath:
    """Return the path of a wire being drawn, from its fixed end to the pointer."""
    a, b = (start, end) if from_output else (end, start)
    return _cubic(a, b)


def nearest_on(path: QPainterPath, point: QPointF) -> QPointF:
    """Return the point of a path nearest to another, to within a few pixels."""
    count = max(16, min(400, round(path.length() / 4)))
    return min(
        (path.pointAtPercent(i / count) for i in range(count + 1)),
        key=lambda on: _length(on - point),
    )


# --- Forward ----------------------------------------------------------------------------------------------------


def _forward(
    start: QPointF, end: QPointF, target: QRectF, obstacles: Obstacles
) -> Route:
    dx, dy = end.x() - start.x(), end.y() - start.y()
    area = QRectF(start, end).normalized().adjusted(-1, -NEAR, 1, NEAR)
    between = obstacles(area.adjusted(NEAR + 1, 0, -NEAR - 1, 0))
    path = _cubic(start, end)
    if between and _passes_through(start, end, between):
        # Into a lower port from below, so that it need not cross the wire into the port above.
        side = 1 if end.y() > target.top() + target.height() / 2 + 1 else -1
        return _past(start, end, between, obstacles, side)
    middle = QPointF((start.x() + end.x()) / 2, (start.y() + end.y()) / 2 - LABEL_RISE)
    if (
        abs(dy) > 2 * LABEL_RISE
    ):  # the middle of a steep wire is vertical: its label is on the wire
        middle.setY((start.y() + end.y()) / 2)
    return Route(path, middle, dx, area)


def _cubic(start: QPointF, end: QPointF) -> QPainterPath:
    path = QPainterPath(start)
    if abs(start.y() - end.y()) < 0.5 and end.x() > start.x():
        path.lineTo(end)
        return path
    reach = _reach(start, end)
    path.cubicTo(
        QPointF(start.x() + reach, start.y()), QPointF(end.x() - reach, end.y()), end
    )
    return path


def _reach(start: QPointF, end: QPointF) -> float:
    """Return the length of the level Bézier handles."""
    dx, dy = end.x() - start.x(), end.y() - start.y()
    return max(abs(dx) / 2, min(60.0, math.hypot(dx, dy) / 2))


def _passes_through(start: QPointF, end: QPointF, rects: list[QRectF]) -> bool:
    """Return whether the curve between two points crosses a rectangle or comes near it."""
    x, y, reach, dx, dy = (
        start.x(),
        start.y(),
        _reach(start, end),
        end.x() - start.x(),
        end.y() - start.y(),
    )
    wide = [rect.adjusted(-NEAR, -NEAR, NEAR, NEAR) for rect in rects]
    count = max(16, min(96, round((dx + abs(dy)) / LEAP)))
    for i in range(1, count):
        t = i / count
        u, level = 1 - t, t * t * (3 - 2 * t)
        point = QPointF(
            x + 3 * u * t * (u * reach + t * (dx - reach)) + t**3 * dx, y + level * dy
        )
        if any(rect.contains(point) for rect in wide):
            return True
    return False


def _past(
    start: QPointF, end: QPointF, between: list[QRectF], obstacles: Obstacles, side: int
) -> Route:
    """Return a route around everything between, on one side."""

    def edge(rects: list[QRectF]) -> list[float]:
        return [rect.top() if side < 0 else rect.bottom() for rect in rects]

    furthest = min if side < 0 else max
    level = furthest([start.y(), end.y(), *edge(between)]) + side * CLEAR
    left, right = start.x() + STUB, end.x() - STUB
    for _ in range(24):
        in_the_way = obstacles(QRectF(left, level - CLEAR / 2, right - left, CLEAR))
        if not in_the_way:
            break
        level = furthest(edge(in_the_way)) + side * CLEAR
    rise = min(40.0, (end.x() - start.x()) / 3)
    out, into = (
        _turn(start, level, rise, obstacles),
        _turn(end, level, -rise, obstacles),
    )
    if into - out < 2 * rise:
        out, into = start.x(), end.x()
    near, far = out + rise, into - rise
    path = QPainterPath(start)
    path.lineTo(out, start.y())
    path.cubicTo(
        QPointF(out + rise * 0.6, start.y()),
        QPointF(near - rise * 0.6, level),
        QPointF(near, level),
    )
    path.lineTo(far, level)
    path.cubicTo(
        QPointF(far + rise * 0.6, level),
        QPointF(into - rise * 0.6, end.y()),
        QPointF(into, end.y()),
    )
    path.lineTo(end)
    area = path.boundingRect().adjusted(-1, -CLEAR, 1, CLEAR)
    label = QPointF((start.x() + end.x()) / 2, level + side * LABEL_RISE)
    return Route(
        path,
        label,
        far - near,
        area,
        side,
        _lane(near, far, level, label.y()),
        turns=(QPointF(near, level), QPointF(far, level)),
    )


def _turn(port: QPointF, level: float, rise: float, obstacles: Obstacles) -> float:
    """Return the x at which a wire turns between a port and a level: beyond the nodes of the port's column that are
    wider than its own. `rise` is the width of the turn, negative before an input."""
    x, side = port.x(), math.copysign(1.0, rise)
    for _ in range(4):
        turn = QRectF(QPointF(x, port.y()), QPointF(x + rise, level)).normalized()
        in_the_way = obstacles(turn.adjusted(1, 1, -1, -1))
        if not in_the_way:
            straight = (
                QRectF(port, QPointF(x, port.y()))
                .normalized()
                .adjusted(1, -NEAR, -1, NEAR)
            )
            return port.x() if straight.width() > 0 and obstacles(straight) else x
        x = (
            max(
                side * (rect.right() if side > 0 else rect.left())
                for rect in in_the_way
            )
            * side
            + side * NEAR
        )
    return port.x()


# --- Backward ---------------------------------------------------------------------------------------------------


def _backward(
    start: QPointF, end: QPointF, source: QRectF, target: QRectF, obstacles: Obstacles
) -> Route:
    """Out to the right, through the widest gap between the rows to the left, and in from the left."""
    right, left = start.x() + STUB, end.x() - STUB
    level = _level(start, end, source, target, obstacles, left, right)
    corners = [
        start,
        QPointF(right, start.y()),
        QPointF(right, level),
        QPointF(left, level),
        QPointF(left, end.y()),
        end,
    ]
    path = rounded(corners, RADIUS)
    label = QPointF((left + right) / 2, level - LABEL_RISE)
    lane = _lane(left, right, level, label.y())
    area = path.boundingRect().adjusted(-1, -CLEAR, 1, CLEAR)
    return Route(
        path,
        label,
        right - left - 2 * RADIUS,
        area,
        lane=lane,
        backward=True,
        turns=tuple(corners[1:-1]),
    )


def _lane(left: float, right: float, level: float, label: float) -> QRectF:
    top, bottom = (
        min(level - 4, label - LABEL_RISE / 2 - 2),
        max(level + 4, label + LABEL_RISE / 2 + 2),
    )
    return QRectF(left, top, right - left, bottom - top)


def _level(
    start: QPointF,
    end: QPointF,
    source: QRectF,
    target: QRectF,
    obstacles: Obstacles,
    left: float,
    right: float,
) -> float:
    """Return the y of the gutter: the middle of the widest free gap between the ends, else above both."""
    upper, lower = (
        (source, target)
        if source.center().y() <= target.center().y()
        else (target, source)
    )
    top, bottom = upper.bottom(), lower.top()
    if bottom - top >= 16:
        band = QRectF(left, top, right - left, bottom - top)
        gaps = _gaps(top, bottom, obstacles(band))
        widest = max(gaps, key=lambda gap: gap[1] - gap[0])
        if widest[1] - widest[0] >= 16:
            return round((widest[0] + widest[1]) / 2)
    level = min(source.top(), target.top()) - CLEAR
    for _ in range(24):
        in_the_way = obstacles(QRectF(left, level - CLEAR / 2, right - left, CLEAR))
        if not in_the_way:
            break
        level = min(rect.top() for rect in in_the_way) - CLEAR
    return level


def _gaps(top: float, bottom: float, rects: list[QRectF]) -> list[tuple[float, float]]:
    """Return the ranges of y from top to bottom that no rectangle covers."""
    gaps, free = [], top
    for rect in sorted(rects, key=lambda r: r.top()):
        gaps.append((free, rect.top()))
        free = max(free, rect.bottom())
    return [*gaps, (free, bottom)]


def rounded(corners: list[QPointF], radius: float) -> QPainterPath:
    """Return a path of vertical and horizontal lines with rounded corners, smaller where a line is short."""
    path = QPainterPath(corners[0])
    last = len(corners) - 1
    for i in range(1, last):
        into, out = corners[i] - corners[i - 1], corners[i + 1] - corners[i]
        # A line between two corners has to do for both of them, one at an end for one.
        room_before = _length(into) if i == 1 else _length(into) / 2
        room_after = _length(out) if i == last - 1 else _length(out) / 2
        reach = min(radius, room_before, room_after)
        if reach > 0:
            path.lineTo(corners[i] - into * (reach / _length(into)))
            path.quadTo(corners[i], corners[i] + out * (reach / _length(out)))
    path.lineTo(corners[last])
    return path


def _length(vector: QPointF) -> float:
    return math.hypot(vector.x(), vector.y())


# --- Through bends: level at both ports, straight between bends on one level, and smooth elsewhere


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
        *(_turn_at(*corners[i - 1 : i + 2]) for i in range(1, len(corners) - 1)),
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


def _turn_at(
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
