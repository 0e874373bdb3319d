"""A piece of work in a thread of its own, where the background's one worker would keep the drawing waiting."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable
from typing import Any

from PySide6.QtCore import QCoreApplication, QThread, Signal

from app.views.ui.background import Failure

Tell = Callable[[str], None]
_under_way: set[Errand] = set()


class Errand(QThread):
    """Runs `function(tell)` once. `ended(answer)` brings what it returns, or a Failure; `progress` is its last word.

    What is under way in torch or on the disk cannot be broken off: one that is cancelled goes on, and nobody hears of
    its end.
    """

    ended = Signal(object)

    def __init__(self, function: Callable[[Tell], Any]) -> None:
        super().__init__()
        self._function = function
        self._cancelled = threading.Event()
        self.progress = ""
        self.finished.connect(self._done)
        application = QCoreApplication.instance()
        if application is not None:  # a thread that goes on must not outlive the program
            application.aboutToQuit.connect(self._leave)

    def begin(self) -> None:
        """Start, and stand on its own until the end."""
        _under_way.add(self)
        self.start()

    def _done(self) -> None:
        self.wait()
        _under_way.discard(self)
        self.deleteLater()

    def cancel(self) -> None:
        self._cancelled.set()

    def _leave(self) -> None:
        self.cancel()
        self.wait()

    def _tell(self, words: str) -> None:
        self.progress = words  # one assignment: the window looks at it whenever it likes

    def run(self) -> None:
        try:
            answer = self._function(self._tell)
        except Exception as error:  # whatever it is, the person who asked is told
            answer = Failure(error, traceback.format_exc())
        if not self._cancelled.is_set():
            self.ended.emit(answer)
