"""Detours of wires that cross several rows: out between two rows, down a free corridor, and in."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import pairwise
from typing import TypeVar

from msgspec.structs import replace
from PySide6.QtCore import QPointF, QRectF

from app.views.ui.graphview.routes import (
    CLEAR,
    LABEL_RISE,
    RADIUS,
    STUB,
    Obstacles,
    Route,
    nothing,
    rounded,
    route,
    runs_back,
    through,
)
from app.views.ui.graphview.spatial import RectIndex

ASIDE = 10.0  # between a corridor and the nodes on its sides
FAR = 400.0  # how far beside its ends a wire looks for a corridor
FARTHEST = 4000.0  # and where it would run through a node else
NARROWEST = 16.0  # between two rows
THIN = 0.5  # half the width of the area in which a line is looked for
TRIES = 3  # places at which a wire turns, on either side
ROWS_APART = 48.0  # ends that differ by more in y are in different rows

K = TypeVar("K", bound=Hashable)


def led(
    start: QPointF,
    end: QPointF,
    source: QRectF,
    target: QRectF,
    nodes: RectIndex[K],
    own: tuple[K, K],
    lanes: Obstacles,
    bends: Sequence[QPointF] = (),
) -> Route:
    """Return the route from an output to an input: through its bends, or around all nodes but its `own`.

    `source` and `target` are the areas of these. A route that runs back avoids the `lanes` of others; a forward one
    does not, so that it depends on the nodes alone.
    """
    if bends:
        return through(start, end, bends, source, target)

    def others(area: QRectF) -> list[QRectF]:
        return [nodes[node] for node in nodes.inside(area) if node not in own]

    way = route(start, end, source, target, others, lanes)
    avoided = lanes if way.backward else nothing
    return around(way, start, end, source, target, others, avoided)


def around(
    way: Route,
    start: QPointF,
    end: QPointF,
    source: QRectF,
    target: QRectF,
    obstacles: Obstacles,
    lanes: Obstacles,
) -> Route:
    """Return the route, or one around the nodes that it would cross between rows."""
    if way.past and abs(start.y() - end.y()) < ROWS_APART:
        return way
    if not way.past and not (
        way.backward and _runs_through(way, start, end, obstacles)
    ):
        return way
    detoured = detour(start, end, source, target, obstacles, lanes) or way
    if blocking := _crossed(detoured, obstacles):
        for far in (FAR, FARTHEST):
            if (
                led := _beyond(
                    blocking, start, end, source, target, obstacles, lanes, far
                )
            ) is not None:
                detoured = led
                break
    # What comes or goes anywhere in between may open a corridor, or close it.
    span = QRectF(
        min(start.x(), end.x()),
        start.y(),
        abs(end.x() - start.x()),
        end.y() - start.y(),
    ).normalized()
    reach = (FARTHEST if blocking else FAR) + 2 * STUB
    wide = span.adjusted(-reach, 0, reach, 0)
    return replace(detoured, area=detoured.area.united(way.area).united(wide))


def _runs_through(
    way: Route, start: QPointF, end: QPointF, obstacles: Obstacles
) -> bool:
    """Return whether a vertical segment of a backward route crosses a node."""
    bounding = way.path.boundingRect()
    legs = (
        QRectF(x, bounding.top(), 1, bounding.height())
        for x in (start.x() + STUB, end.x() - STUB)
    )
    return any(obstacles(leg) for leg in legs)


def _crossed(way: Route, obstacles: Obstacles) -> list[QRectF]:
    """Return the nodes that a route runs through."""
    path = way.path
    elements = map(path.elementAt, range(path.elementCount()))
    points = [QPointF(element.x, element.y) for element in elements]
    crossed = []
    for a, b in pairwise(points):
        if (b - a).manhattanLength() > RADIUS:
            crossed += obstacles(
                QRectF(a, b).normalized().adjusted(-THIN, -THIN, THIN, THIN)
            )
    return crossed


def _beyond(
    blocking: list[QRectF],
    start: QPointF,
    end: QPointF,
    source: QRectF,
    target: QRectF,
    obstacles: Obstacles,
    lanes: Obstacles,
    far: float,
) -> Route | None:
    """Return a detour that leaves or arrives beyond the nodes that block the plain one: they are in its column, and
    reach further than the ends do. None if each crosses a node too."""
    outs = sorted(
        {
            rect.right() + ASIDE
            for rect in blocking
            if 0 < rect.right() + ASIDE - start.x() < FAR
        }
    )
    intos = sorted(
        {
            rect.left() - ASIDE
            for rect in blocking
            if 0 < end.x() - rect.left() + ASIDE < FAR
        },
        reverse=True,
    )
    for out in (start.x() + STUB, *outs[:TRIES]):
        for into in (end.x() - STUB, *intos[:TRIES]):
            candidate = detour(
                start, end, source, target, obstacles, lanes, out, into, far
            )
            if candidate is not None and not _crossed(candidate, obstacles):
                return candidate
    return None


def detour(
    start: QPointF,
    end: QPointF,
    source: QRectF,
    target: QRectF,
    obstacles: Obstacles,
    lanes: Obstacles,
    out: float | None = None,
    into: float | None = None,
    far: float = FAR,
) -> Route | None:
    """Out of the source's row, along a corridor and into the target's row; None where there is no room for it.

    `out` and `into` are the x at which it turns behind its start and before its end, `far` how far beside them a
    corridor may be.
    """
    down = source.bottom() < target.top()
    top, bottom = (
        (source.bottom(), target.top()) if down else (target.bottom(), source.top())
    )
    if bottom - top < NARROWEST:
        return None
    out, into = (
        start.x() + STUB if out is None else out,
        end.x() - STUB if into is None else into,
    )
    left, right = min(out, into) - far, max(out, into) + far
    nodes = obstacles(QRectF(left, top, right - left, bottom - top))
    lane = _free(
        [(rect.left() - ASIDE, rect.right() + ASIDE) for rect in nodes],
        left,
        right,
        into,
    )
    if lane is None:
        return None
    first = _gutter(nodes, lanes, out, lane, top, bottom, at_top=down)
    last = _gutter(nodes, lanes, lane, into, top, bottom, at_top=not down)
    if first is None or last is None:
        return None
    corners = [
        start,
        QPointF(out, start.y()),
        QPointF(out, first),
        QPointF(lane, first),
        QPointF(lane, last),
        QPointF(into, last),
        QPointF(into, end.y()),
        end,
    ]
    corners = _turns(corners)
    path = rounded(corners, RADIUS)
    level = [(a, b) for a, b in pairwise(corners) if a.y() == b.y()]
    a, b = max(level, key=lambda pair: abs(pair[1].x() - pair[0].x()))
    run, middle = abs(b.x() - a.x()), (a.x() + b.x()) / 2
    area = path.boundingRect().adjusted(0, -CLEAR, 0, CLEAR)
    lane_area = QRectF(min(a.x(), b.x()), a.y() - LABEL_RISE - 10, run, LABEL_RISE + 14)
    label = QPointF(middle, a.y() - LABEL_RISE)
    return Route(
        path,
        label,
        run - 2 * RADIUS,
        area,
        lane=lane_area,
        backward=runs_back(start, end),
    )


def _free(
    occupied: list[tuple[float, float]], left: float, right: float, wished: float
) -> float | None:
    """Return the free position nearest to the wished one."""
    free, at = [], left
    for begin, end in sorted(occupied):
        if begin > at:
            free.append((at, begin))
        at = max(at, end)
    if right > at:
        free.append((at, right))
    positions = [min(max(wished, begin), end) for begin, end in free]
    return min(positions, key=lambda position: abs(position - wished), default=None)


def _gutter(
    nodes: list[QRectF],
    lanes: Obstacles,
    a: float,
    b: float,
    top: float,
    bottom: float,
    at_top: bool,
) -> float | None:
    """Return the y of a free horizontal segment between rows: the uppermost or the lowest."""
    left, right = min(a, b) - 2, max(a, b) + 2
    rects = [rect for rect in nodes if rect.right() > left and rect.left() < right]
    edges, free = [], top
    for rect in sorted(rects, key=lambda rect: rect.top()):
        edges.append((free, rect.top()))
        free = max(free, rect.bottom())
    wide = [
        (begin, end)
        for begin, end in [*edges, (free, bottom)]
        if end - begin >= NARROWEST
    ]
    if not wide:
        return None
    begin, end = wide[0] if at_top else wide[-1]
    return _beside(lanes(QRectF(left, begin, right - left, end - begin)), begin, end)


def _beside(occupied: list[QRectF], begin: float, end: float) -> float:
    """Return the middle of the widest part of a gutter without wires, or of the whole."""
    free, at = [], begin
    for rect in sorted(occupied, key=lambda rect: rect.top()):
        free.append((at, rect.top()))
        at = max(at, rect.bottom())
    first, last = max([*free, (at, end)], key=lambda stretch: stretch[1] - stretch[0])
    if last - first < 8:
        first, last = begin, end
    return float(round((first + last) / 2))


def _turns(corners: list[QPointF]) -> list[QPointF]:
    """Remove the corners at which nothing turns."""
    turning = [corners[0]]
    for here, after in pairwise(corners[1:]):
        before = turning[-1]
        if here == before:
            continue
        straight = (before.x() == here.x() == after.x()) or (
            before.y() == here.y() == after.y()
        )
        if not straight:
            turning.append(here)
    return [*turning, corners[-1]]
