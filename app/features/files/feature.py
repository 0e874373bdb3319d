"""Files in the window: opening and saving, unsaved work, and checkpoints that cannot be written."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QMimeData, QObject
from PySide6.QtGui import QKeySequence
from PySide6.QtWidgets import QMenu

from app.features.files.recovery_control import RecoveryControl
from app.training.checkpoints.save_report import SaveReport
from app.training.events import Event, Saved
from app.util.resources import path as resource_path
from app.views.actions import Actions
from app.views.feature import Action, Feature, Submenu
from app.views.files import project_in
from app.views.ui.dialogs.search import SearchEntry

if TYPE_CHECKING:
    from app.views.workspace import Workspace

Key = QKeySequence.StandardKey
_FAILING = "Checkpoints cannot be written"
_NOT_ALL = "Some data of this run could not be saved"


class FilesFeature(Feature):
    rank = 50
    recovery: RecoveryControl

    def actions(self) -> Iterable[Action | Submenu]:
        files = self.workspace.files
        return (
            Action("new", "&New", files.new, Key.New, "new", menu="file.project"),
            Action(
                "open", "&Open…", files.choose, Key.Open, "folder", menu="file.project"
            ),
            Submenu("recent", "Open &recent", self._follow_recent, menu="file.project"),
            Submenu("examples", "Exam&ples", self._list_examples, menu="file.project"),
            Action("save", "&Save", files.save, Key.Save, "save", menu="file.save"),
            Action(
                "save-as", "Save &as…", files.save_as, "Ctrl+Shift+S", menu="file.save"
            ),
            Action(
                "recover",
                "Reco&ver unsaved work…",
                lambda: self.recovery.find_journals(asked=True),
                menu="file.save",
            ),
            Action("offer-unsaved", "", lambda: self.recovery.find_journals()),
            Action("restore-journal", "", lambda path: self.recovery.open(path)),
            Action("leave-unsaved", "", lambda: self.recovery.autosave.leave_unsaved()),
        )

    def begin(self) -> None:
        self.recovery = RecoveryControl(self.workspace)
        self.saving = _SavingControl(self.workspace)

    def drop(self, data: QMimeData) -> Callable[[], object] | None:
        path = project_in(data)
        return None if path is None else lambda: self.workspace.files.open_asking(path)

    def close(self) -> None:
        self.recovery.close()

    def _follow_recent(self, _actions: Actions, menu: QMenu) -> None:
        menu.aboutToShow.connect(lambda: self._list_recent(menu))

    def _list_recent(self, menu: QMenu) -> None:
        menu.clear()
        for path in self.workspace.settings.recent_files:
            action = menu.addAction(path.name)
            action.setToolTip(str(path))
            action.triggered.connect(
                lambda *_, chosen=path: self.workspace.files.open_asking(chosen)
            )
        if menu.isEmpty():
            menu.addAction("No recent projects").setEnabled(False)

    def searched(self) -> Iterable[SearchEntry]:
        for path in _examples():
            yield SearchEntry(
                f"example.{path.stem}",
                f"Open the example {path.stem}",
                partial(self.workspace.files.open_example, path.name),
                "Example",
                (path.stem,),
                icon="network",
            )

    def _list_examples(self, _actions: Actions, menu: QMenu) -> None:
        for path in _examples():
            action = menu.addAction(path.stem)
            action.triggered.connect(
                lambda *_, name=path.name: self.workspace.files.open_example(name)
            )


def _examples() -> list[Path]:
    return sorted(
        resource_path("examples").glob("*.tape"), key=lambda path: path.stem.casefold()
    )


class _SavingControl(QObject):
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
            if isinstance(event, Saved) and (
                message := self._report.message_for(event)
            ):
                self._report_save(event, message)

    def _report_save(self, event: Saved, message: str) -> None:
        if event.problem:
            self._workspace.notifier.warn(_FAILING if event.step else _NOT_ALL, message)
        else:
            self._workspace.notifier.withdraw(_FAILING)
            self._workspace.notifier.say(
                "Checkpoints are being saved again",
                message.partition(": ")[2].capitalize(),
            )

    def _ended(self, _ending: object) -> None:
        if message := self._report.at_end():
            self._workspace.notifier.warn(_NOT_ALL, message)
