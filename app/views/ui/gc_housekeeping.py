"""Collect garbage on the window's thread alone.

Python does it on whichever thread allocates: an engine's reader would destroy widgets and graphics items that are in
reference cycles, and Qt crashes.
"""

from __future__ import annotations

from PySide6.QtCore import QObject, QTimer

from app.util import gc_pause

LOOK = 1000  # milliseconds between two looks whether a collection is due


class Housekeeping(QObject):
    """Replaces Python's automatic collections, between `begin` and `end`, by collections on the window's thread."""

    def __init__(self, window: QObject) -> None:
        super().__init__(window)
        self._timer = QTimer(self, interval=LOOK)
        self._timer.timeout.connect(gc_pause.collect_due)

    def begin(self) -> None:
        if not self._timer.isActive():
            gc_pause.begin()
            self._timer.start()

    def end(self) -> None:
        if self._timer.isActive():
            self._timer.stop()
            gc_pause.end()
