"""Deferred display of another project: its sprites are made a few per turn, and the old picture stays until then."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QEvent, QObject, QTimer
from PySide6.QtGui import QPainter
from PySide6.QtWidgets import QGraphicsView

from app.views.ui.graphview.sprites import NearLayer
from app.views.ui.theme import current

SLICE = 0.005  # seconds of pictures in a turn of the event loop
TURN = 1  # millisecond: a timer of none comes before the window answers
WAIT = 20  # milliseconds until it is asked again whether all nodes are there
MOST = 40  # turns: then the rest is pictured while it is painted


class DeferredShow(QObject):
    """After `veil` a view keeps its old picture until `frame` has set the visible area and its sprites are made.

    While nodes are still `coming` it waits for them. A view without an old picture is empty until then.

    Each is a turn of a timer and no posted event: those are all dealt with before the window answers again.
    """

    def __init__(
        self,
        view: QGraphicsView,
        near: NearLayer,
        frame: Callable[[], None],
        coming: Callable[[], bool],
    ) -> None:
        super().__init__(view)
        self._view, self._near, self._frame, self._coming = view, near, frame, coming
        self._turns, self._veiled, self._painted = 0, False, False
        view.viewport().installEventFilter(self)
        self._turn = QTimer(self, singleShot=True)
        self._turn.timeout.connect(self._take_turn)

    def veil(self) -> None:
        self._turns, self._veiled = 0, True
        if self._painted:  # else it would be black
            self._view.viewport().setUpdatesEnabled(False)
        self._turn.start(TURN)

    def _take_turn(self) -> None:
        if self._coming():
            self._turn.start(WAIT)
            return
        self._turns += 1
        if self._turns == 1:
            self._frame()
        elif self._all_pictured() or self._turns > MOST:
            self._show()
            return
        self._turn.start(TURN)

    def _show(self) -> None:
        self._veiled = False
        self._view.viewport().setUpdatesEnabled(True)
        self._view.viewport().update()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Paint the background alone until there is a picture."""
        if event.type() != QEvent.Type.Paint:
            return False
        if not self._veiled:
            self._painted = True
            self._view.viewport().removeEventFilter(self)
            return False
        painter = QPainter(self._view.viewport())
        painter.fillRect(self._view.viewport().rect(), current().canvas)
        painter.end()
        return True

    def _all_pictured(self) -> bool:
        view = self._view
        if not view.isVisible() or not self._near.isVisible():
            return True
        area = view.mapToScene(view.viewport().rect()).boundingRect()
        return self._near.prepare(
            view.viewportTransform(), view.devicePixelRatioF(), area, SLICE
        )
