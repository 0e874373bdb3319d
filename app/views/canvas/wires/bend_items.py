"""The bends of wires on the scene: a dot each, which can be selected and taken hold of."""

from __future__ import annotations

import math
from collections.abc import Mapping

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QPainter, QPen
from PySide6.QtWidgets import QGraphicsItem, QStyleOptionGraphicsItem, QWidget

from app.builder.graph import Edge
from app.builder.sheet import Bends
from app.util.frozen import FrozenMap
from app.views.ui import theme

LAYER = 0.75  # over wires, under their labels
RADIUS, CHOSEN = 3.0, 4.5
REACH = 8.0  # how far from a bend a press still means it

Bend = tuple[Edge, int]


class BendDots:
    """Shows a dot for each bend. Items hang under `layer`, which from afar is hidden with all that is near."""

    def __init__(self, layer: QGraphicsItem) -> None:
        self._layer = layer
        self.items: dict[Edge, list[BendItem]] = {}
        self.bends: Bends = FrozenMap()
        self.selected: Bend | None = None

    def show(self, bends: Bends) -> set[Edge]:
        """Update the dots; return the wires whose bends changed."""
        if bends is self.bends:
            return set()
        before, self.bends = self.bends, bends
        changed = {
            wire for wire in {*before, *bends} if before.get(wire) != bends.get(wire)
        }
        for wire in changed:
            self._put(wire, bends.get(wire, ()))
        self.select(self.selected)
        return changed

    def drag(self, points: Mapping[Edge, tuple[tuple[float, float], ...]]) -> None:
        """Show bends elsewhere while they are dragged; the project does not know of it yet."""
        for wire, positions in points.items():
            self._put(wire, positions)

    def settle(self) -> set[Edge]:
        """Show every bend where the project has it; returns the wires that were led otherwise."""
        changed = set()
        for wire in {*self.items, *self.bends}:
            points = self.bends.get(wire, ())
            if [(item.x(), item.y()) for item in self.items.get(wire, ())] != list(
                points
            ):
                self._put(wire, points)
                changed.add(wire)
        return changed

    def _put(self, wire: Edge, points: tuple[tuple[float, float], ...]) -> None:
        items = self.items.setdefault(wire, [])
        while len(items) > len(points):
            gone = items.pop()
            gone.setParentItem(None)  # type: ignore[arg-type]  # the stubs leave out None, which Qt documents
            if gone.scene() is not None:
                gone.scene().removeItem(gone)
        while len(items) < len(points):
            items.append(BendItem(self._layer))
        for item, (x, y) in zip(items, points, strict=True):
            item.setPos(x, y)
        if not items:
            del self.items[wire]

    def points(self, wire: Edge) -> list[QPointF]:
        """Return the bends of a wire as shown."""
        return [item.pos() for item in self.items.get(wire, ())]

    def bodies(self) -> list[QRectF]:
        """Return the rectangles of all dots."""
        return [
            item.boundingRect().translated(item.pos())
            for items in self.items.values()
            for item in items
        ]

    def select(self, bend: Bend | None) -> None:
        """Show which bend is selected; one that is gone is not."""
        if bend is not None and bend[1] >= len(self.items.get(bend[0], ())):
            bend = None
        self.selected = bend
        for wire, items in self.items.items():
            for number, item in enumerate(items):
                item.set_selected(bend == (wire, number))

    def bend_at(self, point: QPointF, zoom: float) -> Bend | None:
        """Return the bend at a point of the scene."""
        reach = max(REACH, min(REACH / zoom, 14.0))
        best, nearest = None, reach
        for wire, items in self.items.items():
            for number, item in enumerate(items):
                distance = math.hypot(item.x() - point.x(), item.y() - point.y())
                if distance <= nearest:
                    best, nearest = (wire, number), distance
        return best


class BendItem(QGraphicsItem):
    """One dot."""

    def __init__(self, layer: QGraphicsItem) -> None:
        super().__init__(layer)
        self._chosen = False
        self.setZValue(LAYER)
        self.setAcceptedMouseButtons(Qt.MouseButton.NoButton)

    def set_selected(self, on: bool) -> None:
        if on != self._chosen:
            self._chosen = on
            self.update()

    def boundingRect(self) -> QRectF:
        return QRectF(-CHOSEN - 2, -CHOSEN - 2, 2 * CHOSEN + 4, 2 * CHOSEN + 4)

    def paint(
        self,
        painter: QPainter,
        option: QStyleOptionGraphicsItem,
        widget: QWidget | None = None,
    ) -> None:
        now = theme.current()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        radius = CHOSEN if self._chosen else RADIUS
        painter.setPen(QPen(now.canvas, 1.5))
        painter.setBrush(now.accent if self._chosen else now.wire)
        painter.drawEllipse(QPointF(0, 0), radius + 0.75, radius + 0.75)
