"""Run full garbage collections while the window is idle.

With a large graph open, one blocks all threads for up to a quarter of a second, and Python would start it after some
number of allocations, often in the middle of an edit.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from time import monotonic

from PySide6.QtCore import QEvent, QObject, Qt, QTimer, SignalInstance
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QWidget

from app.util import gc_pause

LOOK = 1000  # milliseconds between two looks whether it is time
REST = 8.0  # seconds without mouse and keys, and with nothing under way
LATEST = 30.0  # times that a search was due: then it does not wait for a rest

_ACTS = frozenset((
    QEvent.Type.MouseMove, QEvent.Type.MouseButtonPress, QEvent.Type.MouseButtonRelease, QEvent.Type.Wheel,
    QEvent.Type.KeyPress, QEvent.Type.KeyRelease, QEvent.Type.TouchUpdate,
))  # fmt: skip


class Housekeeping(QObject):
    """Replaces Python's automatic full collections, between `begin` and `end`, by collections in idle moments."""

    def __init__(self, window: QWidget, edited: SignalInstance, busy: Callable[[], bool]) -> None:
        """`edited` is emitted on user activity; `busy` returns whether work is under way."""
        super().__init__(window)
        self._window, self._busy = window, busy
        self._acted = monotonic()
        edited.connect(self._act)
        self._timer = QTimer(self, interval=LOOK)
        self._timer.timeout.connect(self._collect_if_due)
        self._timer.setTimerType(Qt.TimerType.VeryCoarseTimer)

    def begin(self) -> None:
        gc_pause.leave_to_us(True)
        self._window.winId()
        handle = self._window.windowHandle()  # receives every key and mouse event once
        if handle is not None:
            handle.installEventFilter(self)
        self._timer.start()

    def end(self) -> None:
        self._timer.stop()
        gc_pause.leave_to_us(False)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() in _ACTS:
            self._act()
        return False

    def _act(self, *_: object) -> None:
        self._acted = monotonic()

    def _collect_if_due(self) -> None:
        if self._busy():
            self._act()
        due = gc_pause.overdue()
        if due >= LATEST or (due >= 1.0 and self._rests()):
            gc.collect()

    def _rests(self) -> bool:
        """True if neither this window nor another of the program, such as a dialog, had input for a while."""
        focused = QGuiApplication.focusWindow()
        return monotonic() - self._acted >= REST and focused in (None, self._window.windowHandle())
