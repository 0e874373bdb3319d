"""The bends of wires on the scene: a dot each, which can be selected and taken hold of."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

from PySide6.QtCore import QPointF, QRectF
from PySide6.QtGui import QPainter, QPen

from app.builder.graph import Edge
from app.builder.sheet import Bends, Point
from app.util.frozen import FrozenMap
from app.views.canvas.difference import differing
from app.views.ui import theme
from app.views.ui.graphview.overview import RepaintTarget

RADIUS, CHOSEN = 3.0, 4.5
REACH = 8.0  # how far from a bend a press still means it

Bend = tuple[Edge, int]


class BendDots:
    """Where the bends are shown: as the project has them in `bends`, or elsewhere while they are dragged."""

    def __init__(self, ground: RepaintTarget) -> None:
        self._ground = ground
        self._shown: dict[Edge, tuple[Point, ...]] = {}
        self.bends: Bends = FrozenMap()
        self.selected: Bend | None = None

    def show(self, bends: Bends) -> set[Edge]:
        """Update the dots; return the wires whose bends changed."""
        changed, self.bends = differing(self.bends, bends), bends
        self._take(changed)
        if changed:
            self.select(self.selected)
        return changed

    def drag(self, points: Mapping[Edge, tuple[Point, ...]]) -> None:
        """Show bends elsewhere while they are dragged; the project does not know of it yet."""
        for wire, positions in points.items():
            self._put(wire, positions)

    def settle(self) -> set[Edge]:
        """Show every bend where the project has it; returns the wires that were led otherwise."""
        changed = differing(self._shown, self.bends)
        self._take(changed)
        return changed

    def _take(self, wires: Iterable[Edge]) -> None:
        for wire in wires:
            self._put(wire, self.bends.get(wire, ()))

    def _put(self, wire: Edge, points: tuple[Point, ...]) -> None:
        self._repaint(wire)
        if points:
            self._shown[wire] = points
        else:
            self._shown.pop(wire, None)
        self._repaint(wire)

    def _repaint(self, wire: Edge) -> None:
        for point in self.points(wire):
            self._ground.touch(self, _body(point))

    def points(self, wire: Edge) -> list[QPointF]:
        """Return the bends of a wire as shown."""
        return [QPointF(*point) for point in self._shown.get(wire, ())]

    def _all(self) -> Iterator[tuple[Bend, QPointF]]:
        for wire in self._shown:
            for number, point in enumerate(self.points(wire)):
                yield (wire, number), point

    def bodies(self) -> list[QRectF]:
        """Return the rectangles of all dots."""
        return [_body(point) for _, point in self._all()]

    def select(self, bend: Bend | None) -> None:
        """Show which bend is selected; one that is gone is not."""
        if bend is not None and bend[1] >= len(self._shown.get(bend[0], ())):
            bend = None
        before, self.selected = self.selected, bend
        for changed in {before, bend} if before != bend else ():
            if changed is not None:
                self._repaint(changed[0])

    def bend_at(self, point: QPointF, zoom: float) -> Bend | None:
        """Return the bend at a point of the scene."""
        best, nearest = None, max(REACH, min(REACH / zoom, 14.0))
        for bend, at in self._all():
            distance = math.hypot(at.x() - point.x(), at.y() - point.y())
            if distance <= nearest:
                best, nearest = bend, distance
        return best

    def paint(self, painter: QPainter, area: QRectF) -> None:
        """Paint the dots that touch an area."""
        now = theme.current()
        painter.setPen(QPen(now.canvas, 1.5))
        for bend, point in self._all():
            if area.intersects(_body(point)):
                chosen = bend == self.selected
                radius = CHOSEN if chosen else RADIUS
                painter.setBrush(now.accent if chosen else now.wire)
                painter.drawEllipse(point, radius + 0.75, radius + 0.75)


def _body(point: QPointF) -> QRectF:
    reach = CHOSEN + 2
    return QRectF(point.x() - reach, point.y() - reach, 2 * reach, 2 * reach)
