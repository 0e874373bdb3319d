"""The profile of a training step in the window: taken between two steps of the run, shown, and written as a trace."""

from __future__ import annotations

from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject
from PySide6.QtWidgets import QFileDialog

from app.features.memory.profile_dialog import ProfileDialog
from app.training.monitoring.looks import StepProfile
from app.training.run_requests import ProfileStep
from app.views.ui.deferred_answer import when_done

if TYPE_CHECKING:
    from app.views.workspace import Workspace

NOTHING = "No run is training: start or pause a run, then try again."


class ProfileControl(QObject):
    """Opens the dialog and fills it."""

    def __init__(self, workspace: Workspace) -> None:
        super().__init__(workspace.window)
        self._workspace = workspace
        self.dialog: ProfileDialog | None = None
        self._asked: Future | None = None

    def open(self) -> None:
        """Profile the active run, or report that there is none."""
        if self.dialog is None:
            self.dialog = ProfileDialog(self._workspace.window)
            self.dialog.measure_wanted.connect(self._measure)
            self.dialog.file_wanted.connect(self._ask_file)
        self.dialog.open()
        self._measure()

    def _ask_file(self) -> None:
        name, _ = QFileDialog.getSaveFileName(
            self.dialog, "Save a trace", "trace.json", "JSON (*.json)"
        )
        if name:
            self.write(Path(name if Path(name).suffix else f"{name}.json"))

    def write(self, path: Path) -> None:
        """Profile again, and write the trace of the new profile."""
        self._measure(str(path))

    def _measure(self, trace: str = "") -> None:
        session = self._workspace.session
        if self._asked is not None or self.dialog is None:
            return
        if not session.active or session.training_thread is None:
            self.dialog.show_message(NOTHING)
            return
        if self.dialog.profile is None:
            self.dialog.show_message("Measuring…")
        self._asked = session.training_thread.run_between_steps(ProfileStep(trace))
        when_done(
            self._asked, self, partial(self._show, trace), partial(self._fail, trace)
        )

    def _show(self, trace: str, profile: StepProfile) -> None:
        self._asked = None
        if self.dialog is not None:
            self.dialog.show_profile(profile)
            self.dialog.show_note(
                f"The trace of this step was saved to {trace}" if trace else ""
            )

    def _fail(self, trace: str, error: BaseException) -> None:
        self._asked = None
        if self.dialog is None:
            return
        if trace:  # the shown profile was measured before and stays valid
            self.dialog.show_note(f"The trace could not be saved: {error}")
        else:
            self.dialog.show_message(f"{type(error).__name__}: {error}")
