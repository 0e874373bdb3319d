"""Passing things on the scene: the marquee, the wire being drawn, the ghost of a layer being dragged in."""

from __future__ import annotations

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QPainter, QPainterPath, QPen
from PySide6.QtWidgets import QGraphicsItem, QStyleOptionGraphicsItem, QWidget

from app.builder.layout.arrange import Size
from app.views.canvas.items.faces import Pin
from app.views.canvas.items.painter import paint_port
from app.views.canvas.wires.routes import free_end
from app.views.ui import theme

LAYER = 9.0


class MarqueeItem(QGraphicsItem):
    """The box about nodes."""

    def __init__(self) -> None:
        super().__init__()
        self._area = QRectF()
        self.setZValue(LAYER)

    def set_area(self, area: QRectF) -> None:
        self.prepareGeometryChange()
        self._area = area

    def boundingRect(self) -> QRectF:
        return self._area.adjusted(-2, -2, 2, 2)

    def paint(
        self,
        painter: QPainter,
        option: QStyleOptionGraphicsItem,
        widget: QWidget | None = None,
    ) -> None:
        now = theme.current()
        pen = QPen(now.accent, 1)
        pen.setCosmetic(True)
        painter.setPen(pen)
        painter.setBrush(theme.faded(now.accent, 0.10))
        painter.drawRect(self._area)


class LooseWireItem(QGraphicsItem):
    """A wire being drawn, from its fast end to the pointer or to the port that it would end at."""

    def __init__(self, fast: QPointF, from_output: bool, kind: str) -> None:
        super().__init__()
        self._fast, self._from_output = fast, from_output
        self._pin = Pin("", kind)
        self._end = fast
        self._path = QPainterPath()
        self._fits = self._refused = False
        self.setZValue(LAYER)

    def set_end(self, end: QPointF, fits: bool, refused: bool) -> None:
        self.prepareGeometryChange()
        self._end, self._fits, self._refused = end, fits, refused
        self._path = free_end(self._fast, end, self._from_output)

    def boundingRect(self) -> QRectF:
        return self._path.boundingRect().adjusted(-12, -12, 12, 12)

    def paint(
        self,
        painter: QPainter,
        option: QStyleOptionGraphicsItem,
        widget: QWidget | None = None,
    ) -> None:
        now = theme.current()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        pen = QPen(now.error if self._refused else now.accent, 2)
        if not self._fits:
            pen.setDashPattern([2.5, 2])
        painter.strokePath(self._path, pen)
        if not self._fits and not self._refused:
            paint_port(painter, self._end, self._pin, now.accent, now.canvas)


class GhostItem(QGraphicsItem):
    """Preview of a new node's position."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self._rect = QRectF(0, 0, size.width, size.height)
        self.setZValue(LAYER)

    def boundingRect(self) -> QRectF:
        return self._rect.adjusted(-2, -2, 2, 2)

    def paint(
        self,
        painter: QPainter,
        option: QStyleOptionGraphicsItem,
        widget: QWidget | None = None,
    ) -> None:
        now = theme.current()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        pen = QPen(now.accent, 1.5, Qt.PenStyle.CustomDashLine)
        pen.setDashPattern([3, 2.4])
        painter.setPen(pen)
        painter.setBrush(theme.faded(now.raised, 0.7))
        painter.drawRoundedRect(self._rect, 6, 6)
