"""Collect garbage on the window's thread alone.

Python does it on whichever thread allocates: an engine's reader would destroy widgets and graphics items that are in
reference cycles, and Qt crashes. And it does it after some number of allocations, often amid an edit.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from PySide6.QtCore import QEvent, QObject, QTimer, SignalInstance
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QWidget

from app.util import gc_pause

LOOK = 1000  # milliseconds between two looks whether it is time
AMID = 60  # milliseconds after an edit, in which its shapes come and are painted
LATER = 20  # times in a row that a look is put off for edits

_ACTS = frozenset(
    (
        QEvent.Type.MouseMove,
        QEvent.Type.MouseButtonPress,
        QEvent.Type.MouseButtonRelease,
        QEvent.Type.Wheel,
        QEvent.Type.KeyPress,
        QEvent.Type.KeyRelease,
        QEvent.Type.TouchUpdate,
    )
)


class Housekeeping(QObject):
    """Replaces Python's automatic collections, between `begin` and `end`, by collections on the window's thread."""

    def __init__(
        self, window: QWidget, edited: SignalInstance, busy: Callable[[], bool]
    ) -> None:
        """`edited` is emitted on user activity; `busy` returns whether work is in progress."""
        super().__init__(window)
        self._window, self._busy = window, busy
        self._acted = self._edited = monotonic()
        self._put_off = 0  # looks in a row
        self._collector = gc_pause.Collector()
        self._active = False
        edited.connect(self._edit)
        self._timer = QTimer(self, interval=LOOK)
        self._timer.timeout.connect(self._collect_if_due)

    def begin(self) -> None:
        """Disable automatic collection, while modules are imported and pages made: few of their objects are garbage."""
        if not self._active:
            self._active = True
            gc_pause.begin()
        self._window.winId()
        handle = self._window.windowHandle()  # receives every key and mouse event once
        if handle is not None:
            handle.installEventFilter(self)

    def go_on(self) -> None:
        """Start collecting; existing objects are exempt: modules and pages live as long as the process."""
        if self._active:
            gc_pause.freeze_new_modules()
            self._timer.start()

    def end(self) -> None:
        self._timer.stop()
        if self._active:
            self._active = False
            gc_pause.end()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() in _ACTS:
            self._act()
        return False

    def _act(self) -> None:
        self._acted = monotonic()

    def _edit(self, *_: object) -> None:
        self._acted = self._edited = monotonic()

    def _collect_if_due(self) -> None:
        if self._put_off < LATER and monotonic() - self._edited < AMID / 1000:
            self._put_off += 1
            QTimer.singleShot(AMID, self, self._collect_if_due)
            return
        self._put_off = 0
        if self._busy():
            self._act()
        self._collector.collect_due(self._rests)

    def _rests(self, seconds: float) -> bool:
        """Return whether neither this window nor a dialog had input for a while."""
        focused = QGuiApplication.focusWindow()
        return monotonic() - self._acted >= seconds and focused in (
            None,
            self._window.windowHandle(),
        )
