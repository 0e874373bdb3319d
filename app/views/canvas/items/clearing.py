"""Free the items of a large removed sheet a few per turn, since all at once would block the window."""

from __future__ import annotations

from collections.abc import Iterable

from PySide6.QtCore import QObject, QTimer

FEW = 100  # items of a turn


class Clearing(QObject):
    """Holds items until they are freed."""

    def __init__(self, parent: QObject) -> None:
        super().__init__(parent)
        self._kept: list[object] = []
        self._timer = QTimer(self, interval=1)
        self._timer.timeout.connect(self._free_some)

    def take(self, items: Iterable[object]) -> None:
        self._kept += items
        self._timer.start()

    def _free_some(self) -> None:
        del self._kept[-FEW:]
        if not self._kept:
            self._timer.stop()
