"""Reports checkpoints that cannot be written: the first failure, recovery, and at the end of the run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QObject

from app.training.checkpoints.save_report import SaveReport
from app.training.events import Event, Saved

if TYPE_CHECKING:
    from app.views.workspace import Workspace

FAILING = "Checkpoints cannot be written"
NOT_ALL = "Some data of this run could not be saved"


class SavingControl(QObject):
    """Shows `SaveReport`s of the active run in the window's banner."""

    def __init__(self, workspace: Workspace) -> None:
        super().__init__(workspace.window)
        self._workspace, self._report = workspace, SaveReport()
        workspace.session.runStarted.connect(self._started)
        workspace.session.told.connect(self._on_events)
        workspace.session.finished.connect(self._ended)

    def _started(self, _run: object) -> None:
        self._report = SaveReport()

    def _on_events(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, Saved) and (words := self._report.message_for(event)):
                self._report_save(event, words)

    def _report_save(self, event: Saved, words: str) -> None:
        if event.problem:
            self._workspace.notifier.warn(FAILING if event.step else NOT_ALL, words)
        else:
            self._workspace.notifier.withdraw(FAILING)
            self._workspace.notifier.say("Checkpoints are being saved again", words.partition(": ")[2].capitalize())

    def _ended(self, _ending: object) -> None:
        if words := self._report.at_end():
            self._workspace.notifier.warn(NOT_ALL, words)
