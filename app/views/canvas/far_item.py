"""The whole drawing from afar in one item: blocks and thin lines, put down in a few strokes.

Painting a thousand items by themselves takes longer than a frame; from afar nobody can tell them apart anyway.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QColor, QPainter, QPainterPath, QPen
from PySide6.QtWidgets import QGraphicsItem, QStyleOptionGraphicsItem, QWidget

from app.views import theme
from app.views.canvas.geometry import HEADER, bounds

if TYPE_CHECKING:
    from app.views.canvas.node_item import NodeItem
    from app.views.canvas.wire_item import WireItem


class FarItem(QGraphicsItem):
    """Paints nodes and wires of the scene by their state; `forget` when any of it is another."""

    def __init__(self, nodes: dict[str, NodeItem], wires: dict[object, WireItem]) -> None:
        super().__init__()
        self._nodes, self._wires = nodes, wires
        self._area = QRectF()
        self._made = False
        self.setVisible(False)
        self.setAcceptedMouseButtons(Qt.MouseButton.NoButton)

    def forget(self) -> None:
        """Gather everything anew when it is painted next."""
        self.prepareGeometryChange()
        area = bounds([item.body for item in self._nodes.values()])
        self._area = area.adjusted(-400, -400, 400, 400)
        self._made = False
        self.update()

    def boundingRect(self) -> QRectF:
        return self._area

    def _make(self) -> None:
        """Rectangles and lines by colour, so that each colour is one call."""
        now = theme.current()
        self._bodies: list[QRectF] = []
        self._blocks: dict[str, list[QRectF]] = defaultdict(list)
        self._rings: dict[str, list[QRectF]] = defaultdict(list)
        for item in self._nodes.values():
            body = item.body
            self._bodies.append(body)
            color = now.categories.get(item.face.category, now.line3)
            self._blocks[color.name()].append(QRectF(body.left(), body.top(), body.width(), HEADER))
            ring = item.far_ring(now)
            if ring is not None:
                self._rings[ring.name()].append(body)
        self._lines: dict[str, QPainterPath] = defaultdict(QPainterPath)
        for wire in self._wires.values():
            self._lines[wire.far_color(now).name()].addPath(wire.way.path)
        self._made = True

    def paint(self, painter: QPainter, option: QStyleOptionGraphicsItem, widget: QWidget | None = None) -> None:
        if not self._made:
            self._make()
        now = theme.current()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, False)
        painter.setBrush(Qt.BrushStyle.NoBrush)
        for color, path in self._lines.items():
            painter.setPen(_thin(QColor(color), 1))
            painter.drawPath(path)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(now.pressed)
        painter.drawRects(self._bodies)
        for color, rects in self._blocks.items():
            painter.setBrush(QColor(color))
            painter.drawRects(rects)
        painter.setBrush(Qt.BrushStyle.NoBrush)
        for color, rects in self._rings.items():
            painter.setPen(_thin(QColor(color), 2))
            painter.drawRects(rects)


def _thin(color: QColor, width: int) -> QPen:
    """A pen as wide on the screen at every zoom."""
    pen = QPen(color, width)
    pen.setCosmetic(True)
    return pen
