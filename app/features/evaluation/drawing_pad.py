"""A small drawing pad that also accepts dropped images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PySide6.QtCore import QPointF, QRectF, QSize, Qt, QTimer, Signal
from PySide6.QtGui import (
    QColor,
    QDragEnterEvent,
    QDropEvent,
    QImage,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QPen,
)
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.data.known_sources import PICTURE_SUFFIXES
from app.views.ui import theme
from app.views.ui.widgets.painting import start

SIDE = 168  # pixels of the drawing
BRUSH = 14.5
SOON = 30  # milliseconds between predictions while the user draws
STEP = SIDE / 28  # pixels that the pen moves by a key
STEPS = {
    Qt.Key.Key_Left: (-STEP, 0.0),
    Qt.Key.Key_Right: (STEP, 0.0),
    Qt.Key.Key_Up: (0.0, -STEP),
    Qt.Key.Key_Down: (0.0, STEP),
}


class Pad(QWidget):
    """White on black, with the mouse, or by keys: the arrows move the pen, with Shift they draw.

    `changed()` is emitted while drawing, `dropped(path)` for a dropped image file."""

    changed = Signal()
    dropped = Signal(object)

    def __init__(self) -> None:
        super().__init__()
        self._image = QImage(SIDE, SIDE, QImage.Format.Format_Grayscale8)
        self._image.fill(0)
        self._last: QPointF | None = None
        self._pen = QPointF(SIDE / 2, SIDE / 2)  # of the keys
        self._empty = True
        self.setFixedSize(SIDE, SIDE)
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        self.setCursor(Qt.CursorShape.CrossCursor)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setAcceptDrops(True)
        self.setAccessibleName("Drawing pad")
        self.setToolTip("Arrow keys move the pen, with Shift they draw; Del clears")
        self._soon = QTimer(self, singleShot=True, interval=SOON)
        self._soon.timeout.connect(self.changed)
        theme.manager().changed.connect(self.update)

    @property
    def empty(self) -> bool:
        return self._empty

    def ink(self) -> NDArray[np.float32]:
        """Return the drawing, 0 to 1, (SIDE, SIDE)."""
        image = self._image
        rows = np.frombuffer(image.constBits(), np.uint8).reshape(
            image.height(), image.bytesPerLine()
        )
        return rows[:, : image.width()].astype(np.float32) / np.float32(255)

    def clear(self) -> None:
        self._image.fill(0)
        self._empty = True
        self.update()
        self.changed.emit()

    def stroke(self, begin: QPointF, end: QPointF) -> None:
        """Draw a line of the brush."""
        painter = QPainter(self._image)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        pen = QPen(QColor(255, 255, 255), BRUSH)
        pen.setCapStyle(Qt.PenCapStyle.RoundCap)
        painter.setPen(pen)
        if begin == end:
            painter.drawPoint(end)
        else:
            painter.drawLine(begin, end)
        painter.end()
        self._empty = False
        self.update()
        if not self._soon.isActive():
            self._soon.start()

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if event.button() == Qt.MouseButton.RightButton:
            self.clear()
            return
        self._last = event.position()
        self.stroke(self._last, self._last)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        if self._last is not None:
            self.stroke(self._last, event.position())
            self._last = event.position()

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        self._last = None

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Delete, Qt.Key.Key_Backspace, Qt.Key.Key_Escape):
            self.clear()
        elif event.key() in STEPS:
            before, (across, down) = self._pen, STEPS[Qt.Key(event.key())]
            self._pen = QPointF(
                min(max(before.x() + across, 0), SIDE),
                min(max(before.y() + down, 0), SIDE),
            )
            if event.modifiers() & Qt.KeyboardModifier.ShiftModifier:
                self.stroke(before, self._pen)
            self.update()
        else:
            super().keyPressEvent(event)

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        if picture_of(event) is not None:
            event.acceptProposedAction()

    def dropEvent(self, event: QDropEvent) -> None:
        path = picture_of(event)
        if path is not None:
            event.acceptProposedAction()
            self.dropped.emit(path)

    def sizeHint(self) -> QSize:
        return QSize(SIDE, SIDE)

    def paintEvent(self, _event: QPaintEvent) -> None:
        painter, look = start(self), theme.current()
        painter.drawImage(0, 0, self._image)
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.setPen(look.accent if self.hasFocus() else look.line2)
        painter.drawRect(QRectF(0.5, 0.5, self.width() - 1, self.height() - 1))
        if self.hasFocus():
            painter.drawEllipse(self._pen, BRUSH / 2, BRUSH / 2)
        if self._empty:
            painter.setPen(QColor("#8A919D"))  # on black in either theme
            painter.setFont(theme.font("label"))
            hint = "Draw here,\nor drop an image"
            painter.drawText(self.rect(), Qt.AlignmentFlag.AlignCenter, hint)
        painter.end()


def picture_of(event: QDropEvent) -> Path | None:
    """Return the path of a dragged image file, None for anything else."""
    for url in event.mimeData().urls():
        path = Path(url.toLocalFile())
        if path.suffix.lower() in PICTURE_SUFFIXES and path.is_file():
            return path
    return None
