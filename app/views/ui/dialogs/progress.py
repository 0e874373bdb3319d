"""Base class of dialogs that run a task of several seconds: progress, elapsed time, and Esc to cancel it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from PySide6.QtCore import Qt, QTimer
from PySide6.QtGui import QCloseEvent
from PySide6.QtWidgets import QPushButton, QWidget

from app.engine.protocol import Request
from app.views.engine_service import EngineService, EngineTask
from app.views.ui.dialogs.base import Dialog
from app.views.ui.task import BackgroundTask, Cancelled, Report

POLL_INTERVAL = 100  # ms between two polls of the progress


class ProgressDialog(Dialog):
    """Runs a task. A subclass creates `stop_button` and implements `show_progress` and `finished_with`."""

    stop_button: QPushButton

    def __init__(
        self, title: str, parent: QWidget | None = None, *, icon: str = ""
    ) -> None:
        super().__init__(title, parent, icon=icon)
        self._work: BackgroundTask | EngineTask | None = None
        self._began = 0.0
        self._timer = QTimer(self, interval=POLL_INTERVAL)
        self._timer.timeout.connect(self._update_progress)

    @property
    def running(self) -> bool:
        return self._work is not None

    def begin(self, function: Callable[[Report, Cancelled], Any]) -> None:
        """Run `function(report, cancelled)` on a thread."""
        self._follow(BackgroundTask(function))

    def ask(self, engine: EngineService, request: Request[Any]) -> None:
        """Send a request to the engine; its progress must be text."""
        self._follow(EngineTask(engine, request))

    def _follow(self, work: BackgroundTask | EngineTask) -> None:
        self._work, self._began = work, time.monotonic()
        self._work.ended.connect(self._work_ended, Qt.ConnectionType.QueuedConnection)
        self._update_progress()
        self._work.begin()
        self._timer.start()

    def enable_form(self, on: bool, *parts: QWidget) -> None:
        """Let the parts of a form be edited, or not while the task runs: then the button that closes stops the task."""
        for widget in parts:
            widget.setEnabled(on)
        self.stop_button.setEnabled(True)
        self.stop_button.setText("Cancel" if on else "Stop")

    def show_progress(self, message: str) -> None:
        """Show what the task is doing, with the elapsed time."""
        raise AssertionError

    def finished_with(self, answer: Any, cancelled: bool) -> None:
        """Handle the end of the task: `answer` is its value or a WorkerFailure."""
        raise AssertionError

    def _update_progress(self) -> None:
        if self._work is not None:
            status = (
                "Stopping"
                if self._work.cancelled
                else self._work.progress or "Starting"
            )
            self.show_progress(f"{status}…  {time.monotonic() - self._began:.0f} s")

    def _work_ended(self, answer: Any) -> None:
        work, self._work = self._work, None
        assert work is not None
        self._timer.stop()
        self.finished_with(answer, work.cancelled)

    def reject(self) -> None:
        """Close the dialog; while a task runs, cancel the task instead."""
        if self._work is None:
            super().reject()
            return
        self._work.cancel()
        self.stop_button.setEnabled(False)
        self._update_progress()

    def closeEvent(self, event: QCloseEvent) -> None:
        if self.running:
            event.ignore()
            self.reject()
        else:
            super().closeEvent(event)
