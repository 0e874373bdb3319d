"""Something that takes seconds, in a thread of its own: it says how it goes on, and can be cancelled."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable
from typing import Any

from PySide6.QtCore import QCoreApplication, QThread, Signal

from app.views.ui.background import Failure

Tell = Callable[[str], None]
Cancelled = Callable[[], bool]

# A thread that is dropped while it runs ends the program; each stays here until it has ended.
_running: set[Work] = set()


class Work(QThread):
    """Runs `function(tell, cancelled)`. `ended(answer)` brings what it returns, or a Failure."""

    ended = Signal(object)

    def __init__(self, function: Callable[[Tell, Cancelled], Any]) -> None:
        super().__init__()
        self._function = function
        self._cancelled = threading.Event()
        self.progress = ""
        application = QCoreApplication.instance()
        if application is not None:  # a thread that goes on must not outlive the program
            application.aboutToQuit.connect(self._leave)
        _running.add(self)
        self.finished.connect(self._gone)

    def _gone(self) -> None:
        _running.discard(self)

    def _leave(self) -> None:
        self.cancel()
        self.wait()

    def cancel(self) -> None:
        self._cancelled.set()

    @property
    def cancelled(self) -> bool:
        return self._cancelled.is_set()

    def _tell(self, words: str) -> None:
        self.progress = words  # one assignment: the window looks at it whenever it likes

    def run(self) -> None:
        try:
            answer = self._function(self._tell, self._cancelled.is_set)
        except Exception as error:  # whatever it is, the person who asked is told
            answer = Failure(error, traceback.format_exc())
        self.ended.emit(answer)
