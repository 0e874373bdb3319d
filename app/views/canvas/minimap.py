"""The whole drawing small, with a frame about what is in sight; press or drag in it to go there."""

from __future__ import annotations

from time import perf_counter

from PySide6.QtCore import QPointF, QRectF, QSize, Qt, QTimer, Signal
from PySide6.QtGui import QColor, QMouseEvent, QPainter, QPaintEvent, QPen, QPixmap
from PySide6.QtWidgets import QWidget

from app.views.canvas.items.geometry import SHORT
from app.views.canvas.scene import CanvasScene
from app.views.ui import theme
from app.views.ui.widgets.painting import box, start

SIZE, SMALL = QSize(196, 92), QSize(132, 62)
ROOMY, TIGHT = QSize(880, 440), QSize(420, 220)  # canvases that are smaller have a small map, or none
PAD = 8
DELAY = 40  # milliseconds between pictures while things move


class Minimap(QWidget):
    """`wanted` tells the point of the scene that should be in the middle."""

    wanted = Signal(QPointF)

    def __init__(self, scene: CanvasScene, parent: QWidget) -> None:
        super().__init__(parent)
        self._scene = scene
        self._seen = QRectF()
        self._picture: QPixmap | None = None
        self._whole = QRectF()
        self.fits = True
        self.setFixedSize(SIZE)
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.setAccessibleName("Minimap")
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(DELAY)
        self._timer.timeout.connect(self._forget)
        scene.redrawn.connect(self.refresh)

    def fit(self, room: QSize) -> None:
        """Take less of a small canvas, and nothing of one where it would be in the way."""
        self.fits = room.width() >= TIGHT.width() and room.height() >= TIGHT.height()
        roomy = room.width() >= ROOMY.width() and room.height() >= ROOMY.height()
        wanted = SIZE if roomy else SMALL
        if wanted != self.size():
            self.setFixedSize(wanted)
            self._forget()

    def refresh(self) -> None:
        """The drawing is another; the picture is made anew soon, once for many changes."""
        if not self._timer.isActive():
            self._timer.start()

    def _forget(self) -> None:
        if self._scene.coming is not None:  # a picture for every few nodes of a large sheet would take longer than they
            self._timer.start()
            return
        self._picture = None
        self.update()

    def set_seen(self, area: QRectF) -> None:
        """What of the scene is in sight."""
        if area != self._seen:
            self._seen = area
            self.update()

    def _scale(self) -> tuple[float, QPointF]:
        """Pixels here for one of the scene, and where the scene's origin lies."""
        whole = self._whole.adjusted(-40, -40, 40, 40)
        width, height = self.width() - 2 * PAD, self.height() - 2 * PAD
        scale = min(width / max(whole.width(), 1), height / max(whole.height(), 1), 0.2)
        middle = QPointF(self.width() / 2, self.height() / 2)
        return scale, middle - whole.center() * scale

    def paintEvent(self, event: QPaintEvent) -> None:
        now = theme.current()
        if self._picture is None:
            began = perf_counter()
            self._picture = self._draw()
            # The picture of a very large drawing is made seldom, so that it takes no more than a tenth of the time.
            self._timer.setInterval(max(DELAY, round(10_000 * (perf_counter() - began))))
        painter = start(self)
        box(painter, QRectF(self.rect()), 6, now.panel, now.line2)
        painter.drawPixmap(0, 0, self._picture)
        scale, origin = self._scale()
        seen = QRectF(self._seen.topLeft() * scale + origin, self._seen.size() * scale)
        seen = seen.intersected(QRectF(self.rect()).adjusted(3, 3, -3, -3))
        if not seen.isEmpty():
            painter.setBrush(theme.faded(now.accent, 0.06))
            painter.setPen(QPen(now.accent, 1.25))
            painter.drawRoundedRect(seen, 2, 2)
        painter.end()

    def _draw(self) -> QPixmap:
        """The nodes as blocks in their categories' colours."""
        self._whole = self._scene.whole()
        ratio = self.devicePixelRatioF()
        picture = QPixmap(self.size() * ratio)
        picture.setDevicePixelRatio(ratio)
        picture.fill(Qt.GlobalColor.transparent)
        scale, origin = self._scale()
        painter = QPainter(picture)
        painter.translate(origin)
        painter.scale(scale, scale)
        line = QPen(theme.current().line3, 1)
        line.setCosmetic(True)
        painter.setPen(line)
        painter.drawRects([note.body for note in self._scene.notes.items.values() if note.is_frame])
        colors, complete = self._scene.map_colors()
        if not complete:
            self.refresh()
        for color, rects in colors.items():
            fill = QColor.fromRgba(color)
            pen = QPen(fill, 1)  # what is smaller than a pixel is seen by its outline
            pen.setCosmetic(True)
            painter.setPen(pen if scale * SHORT < 3 else Qt.PenStyle.NoPen)
            painter.setBrush(fill)
            painter.drawRects(rects)
        painter.end()
        return picture

    def mousePressEvent(self, event: QMouseEvent) -> None:
        self._go(event.position())

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        if event.buttons() & Qt.MouseButton.LeftButton:
            self._go(event.position())

    def _go(self, spot: QPointF) -> None:
        scale, origin = self._scale()
        self.wanted.emit((spot - origin) / scale)
