"""The view moves along while something is dragged at its edge, faster the further out the pointer is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QElapsedTimer, QEvent, QObject, QPoint, QPointF, QTimer
from PySide6.QtGui import QDragMoveEvent, QMouseEvent
from PySide6.QtWidgets import QApplication

if TYPE_CHECKING:
    from app.views.canvas.view import CanvasView

EDGE = 32  # pixels of the viewport from its edge in which it moves
FASTEST = 18.0  # pixels a tick
TICK = 16  # milliseconds
PATIENCE = 250  # ms at the edge before it scrolls, so that passing over or dropping there does not


class AutoScroll(QObject):
    """Watches the pointer over a view; scrolls the view during a gesture with `scrolls`."""

    def __init__(self, view: CanvasView) -> None:
        super().__init__(view)
        self._view = view
        self._spot = QPoint()
        self._been_inside = False
        self._there = QElapsedTimer()
        self._timer = QTimer(self, interval=TICK)
        self._timer.timeout.connect(self.tick)
        view.viewport().installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if isinstance(event, QMouseEvent | QDragMoveEvent):
            self._spot = event.position().toPoint()
            self._been_inside = self._view.busy and (
                self._been_inside or self.speed(self._spot).isNull()
            )
            if self._timer.isActive():
                return False
            if self._view.busy and event.type() in (
                QEvent.Type.MouseMove,
                QEvent.Type.DragMove,
            ):
                self._timer.start()
        return False

    def speed(self, spot: QPoint) -> QPointF:
        """Return the pixels per tick to scroll by for a pointer at a point of the viewport."""
        size = self._view.viewport().size()
        return QPointF(_speed(spot.x(), size.width()), _speed(spot.y(), size.height()))

    def tick(self) -> None:
        """Scroll by one step during the gesture."""
        gesture = self._view.gesture
        speed = self.speed(self._spot)
        if gesture is None or speed.isNull():
            self._there.invalidate()
        elif not self._there.isValid():
            self._there.start()
        if gesture is None:
            self._timer.stop()
            return
        if not self._there.isValid() or self._there.elapsed() < PATIENCE:
            return
        may = gesture.scrolls and (self._been_inside or not gesture.from_outside)
        if may and not speed.isNull():
            self._view.pan(-speed.x(), -speed.y())
            gesture.move(
                self._view.mapToScene(self._spot), QApplication.keyboardModifiers()
            )


def _speed(at: int, extent: int) -> float:
    """
    >>> _speed(400, 800), _speed(0, 800), _speed(900, 800), _speed(16, 800)
    (0.0, -18.0, 18.0, -9.0)
    """
    inside = min(at, extent - at)
    if inside >= EDGE:
        return 0.0
    depth = min(1.0, (EDGE - inside) / EDGE)
    return round(FASTEST * depth, 1) * (-1.0 if at < extent / 2 else 1.0)
