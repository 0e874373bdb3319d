"""The dotted grid behind the canvas, painted as a tiled pixmap, which is faster than drawing points."""

from __future__ import annotations

import math

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QPainter, QPixmap, QTransform

from app.views.ui import theme

DOTS = 16  # scene pixels between dots at 100 %, every second step of the grid


class GridDots:
    """Paints the dotted grid; the tile is cached until zoom, theme or resolution change."""

    def __init__(self) -> None:
        self._key: object = None
        self._tile = QPixmap()
        self._count = 1

    def paint(
        self,
        painter: QPainter,
        rect: QRectF,
        view: QTransform,
        zoom: float,
        ratio: float,
    ) -> None:
        """Paint the dots in `rect` of the scene; fewer when zoomed out, none when far out."""
        now = theme.current()
        painter.fillRect(rect, now.canvas)
        if zoom < 0.15:
            return
        scale = zoom * DOTS * (1 if zoom >= 0.7 else 2 if zoom >= 0.35 else 4)
        self._make_tile(now, scale, ratio)
        painter.save()
        painter.resetTransform()
        origin = view.map(QPointF(0, 0))
        area = view.mapRect(rect).toAlignedRect()
        period = scale * self._count
        left = area.left() - (area.left() - origin.x()) % period
        y = area.top() - (area.top() - origin.y()) % period
        while y < area.bottom() + 1:
            x = left
            while x < area.right() + 1:
                painter.drawPixmap(QPointF(round(x), round(y)), self._tile)
                x += period
            y += period
        painter.restore()

    def _make_tile(self, now: theme.Theme, scale: float, ratio: float) -> None:
        """Render the cached tile: several rows and columns of dots on a transparent ground."""
        key = (now, round(scale, 4), ratio)
        if key == self._key:
            return
        self._key, self._count = key, max(1, int(256 // scale))
        offsets = [round(i * scale * ratio) / ratio for i in range(self._count)]
        side = math.ceil((scale * self._count + 2) * ratio)
        self._tile = QPixmap(side, side)
        self._tile.setDevicePixelRatio(ratio)
        self._tile.fill(Qt.GlobalColor.transparent)
        painter = QPainter(self._tile)
        for x in offsets:
            for y in offsets:
                painter.fillRect(QRectF(x, y, 1, 1), now.dot)
        painter.end()
