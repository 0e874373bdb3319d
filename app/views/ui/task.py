"""Run one function on a background thread: progress, cancellation, and its result or failure as a signal."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable
from typing import Any

from PySide6.QtCore import QCoreApplication, QThread, Signal

from app.views.ui.background import WorkerFailure

Report = Callable[[Any], None]
Cancelled = Callable[[], bool]

# A QThread that is garbage-collected while it runs aborts the program; each stays here until it has ended.
_running: set[BackgroundTask] = set()


class BackgroundTask(QThread):
    """Runs `function(report, cancelled)` once; `ended(value)` carries what it returns, or a WorkerFailure.

    `report` sets `progress`, which the window polls. A function that ignores `cancelled` runs to its end.
    """

    ended = Signal(object)

    def __init__(
        self, function: Callable[[Report, Cancelled], Any], progress: Any = ""
    ) -> None:
        super().__init__()
        self._function = function
        self._cancelled = threading.Event()
        self._abandoned = False
        self.progress = progress
        self.finished.connect(self._finished)
        application = QCoreApplication.instance()
        if application is not None:  # a running thread must not outlive the program
            application.aboutToQuit.connect(self._quit)

    def begin(self) -> None:
        """Start the thread; it needs no reference until it ends."""
        _running.add(self)
        self.start()

    def cancel(self) -> None:
        """Ask the function to stop; `ended` still comes, once it has."""
        self._cancelled.set()

    def abandon(self) -> None:
        """Ask the function to stop, and never emit `ended`."""
        self._abandoned = True
        self.cancel()

    @property
    def cancelled(self) -> bool:
        return self._cancelled.is_set()

    def _finished(self) -> None:
        self.wait()
        _running.discard(self)

    def _quit(self) -> None:
        self.abandon()
        self.wait()

    def _report(self, progress: Any) -> None:
        self.progress = (
            progress  # one assignment, so the window may read it at any time
        )

    def run(self) -> None:
        try:
            answer = self._function(self._report, self._cancelled.is_set)
        except Exception as error:  # shown to the user, whatever it is
            answer = WorkerFailure(error, traceback.format_exc())
        if not self._abandoned:
            self.ended.emit(answer)
