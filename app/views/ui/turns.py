"""Work in parts, one a turn of the event loop, so that the window answers in between."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from PySide6.QtCore import QObject, QTimer

TURN = 1  # millisecond: a timer of none comes before the window answers


class Turns(QObject):
    """Takes its steps in order. Begun anew before the last one, it begins with the first again."""

    def __init__(self, parent: QObject, *steps: Callable[[], None]) -> None:
        super().__init__(parent)
        self._steps = list(steps)
        self._left: deque[Callable[[], None]] = deque()
        self._timer = QTimer(self, singleShot=True, interval=TURN)
        self._timer.timeout.connect(self._go_on)

    def add(self, step: Callable[[], None]) -> None:
        """Put a step behind the others."""
        self._steps.append(step)

    def begin(self, together: bool = False) -> None:
        """Begin soon; with `together` all steps are taken in one turn."""
        self._left = deque([self.now] if together else self._steps)
        self._timer.start()

    @property
    def active(self) -> bool:
        """Whether steps are still to be taken."""
        return self._timer.isActive()

    def now(self) -> None:
        """Take all steps at once."""
        self.drop()
        for step in self._steps:
            step()

    def drop(self) -> None:
        """Let the steps that are left be."""
        self._left.clear()
        self._timer.stop()

    def _go_on(self) -> None:
        step = self._left.popleft()
        if self._left:
            self._timer.start()
        step()
