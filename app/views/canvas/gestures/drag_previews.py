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
REACH = 12.0  # what is painted around an area, at most


class Preview(QGraphicsItem):
    """Something painted in an area before everything else, for as long as a gesture lasts."""

    def __init__(self, area: QRectF) -> None:
        super().__init__()
        self._area = area
        self.setZValue(LAYER)

    def set_area(self, area: QRectF) -> None:
        self.prepareGeometryChange()
        self._area = area

    def remove(self) -> None:
        """Take it off the scene, if it is on one."""
        if self.scene() is not None:
            self.scene().removeItem(self)

    def boundingRect(self) -> QRectF:
        return self._area.adjusted(-REACH, -REACH, REACH, REACH)


class MarqueePreview(Preview):
    """The box about nodes."""

    def __init__(self) -> None:
        super().__init__(QRectF())

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


class WirePreview(Preview):
    """A wire being drawn, from its fast end to the pointer or to the port that it would end at."""

    def __init__(self, fast: QPointF, from_output: bool, kind: str) -> None:
        super().__init__(QRectF())
        self._fast, self._from_output = fast, from_output
        self._pin = Pin("", kind)
        self._end = fast
        self._path = QPainterPath()
        self._fits = self._refused = False

    def set_end(self, end: QPointF, fits: bool, refused: bool) -> None:
        self._end, self._fits, self._refused = end, fits, refused
        self._path = free_end(self._fast, end, self._from_output)
        self.set_area(self._path.boundingRect())

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


class GhostPreview(Preview):
    """Where a new node would be."""

    def __init__(self, size: Size) -> None:
        super().__init__(QRectF(0, 0, size.width, size.height))

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
        painter.drawRoundedRect(self._area, 6, 6)
