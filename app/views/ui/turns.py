"""Work in steps, one or a few per turn of the event loop, so that the window stays responsive."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from PySide6.QtCore import QObject, QTimer

TURN = 1  # millisecond: a timer of none comes before the window answers


class Turns(QObject):
    """Runs its steps in order, one per turn; `begin` before the last one restarts with the first."""

    def __init__(self, parent: QObject, *steps: Callable[[], None]) -> None:
        super().__init__(parent)
        self._steps = list(steps)
        self._left: deque[Callable[[], None]] = deque()
        self._timer = QTimer(self, singleShot=True, interval=TURN)
        self._timer.timeout.connect(self._go_on)

    def add(self, step: Callable[[], None]) -> None:
        """Append a step."""
        self._steps.append(step)

    def begin(self, together: bool = False) -> None:
        """Start with the next turn; with `together` all steps run in one turn."""
        self._left = deque([self.now] if together else self._steps)
        self._timer.start()

    @property
    def active(self) -> bool:
        """Return whether steps are left."""
        return self._timer.isActive()

    def now(self) -> None:
        """Run all remaining steps immediately."""
        self.drop()
        for step in self._steps:
            step()

    def drop(self) -> None:
        """Discard the remaining steps."""
        self._left.clear()
        self._timer.stop()

    def _go_on(self) -> None:
        step = self._left.popleft()
        if self._left:
            self._timer.start()
        step()
