"""Files in the window: opening and saving, unsaved work, and checkpoints that cannot be written."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace
from PySide6.QtCore import QMimeData, QObject, Qt
from PySide6.QtGui import QKeySequence
from PySide6.QtWidgets import QMenu

from app.builder.layout import with_places
from app.features.files.autosave import Autosave
from app.features.files.file_control import FileControl
from app.features.files.recovery_dialog import RecoveryDialog, RecoveryOffer
from app.project import custom_layers, file, file_lock, journal
from app.project.journal import ClaimedJournal, FoundJournals, JournalEntry
from app.training.checkpoints.save_report import SaveReport
from app.training.events import Event, Saved
from app.util.resources import path as resource_path
from app.util.resources import python_path
from app.views.actions import Actions
from app.views.feature import Action, Feature, Submenu
from app.views.files import project_in
from app.views.ui.background import WorkerFailure
from app.views.ui.dialogs.search import SearchEntry
from app.views.ui.task import BackgroundTask

if TYPE_CHECKING:
    from app.builder.catalog.catalog import Catalog
    from app.views.workspace import Workspace

# --- Unsaved work: autosave, the open file, and recovery after a crash

GONE = "Its file is no longer there."
CHANGED = "Its file has been changed since; restoring shows what differs."


class RecoveryControl(QObject):
    """One per window: keeps its work, and offers that of windows that crashed."""

    def __init__(self, workspace: Workspace) -> None:
        super().__init__(workspace.window)
        self._workspace = workspace
        runs = workspace.runs_keeper
        self.autosave = Autosave(
            workspace.document,
            workspace.settings.journal_folder,
            lambda: runs.unsaved,
            lambda: workspace.settings.autosave_seconds,
            workspace.status,
            self,
        )
        self.files = FileControl(workspace, self.autosave)
        workspace.session.call_before_run(self.autosave.before_run)
        self.dialog: RecoveryDialog | None = None
        self._found: list[ClaimedJournal] = []
        self._looking: BackgroundTask | None = None
        self._asked = False
        self._opening: BackgroundTask | None = None

    def find_journals(self, asked: bool = False) -> None:
        """Offer the journals of crashed windows; with `asked`, report if there are none."""
        if self.dialog is not None or self._looking is not None:
            return
        folder = self._workspace.settings.journal_folder
        self._asked = asked
        self._looking = BackgroundTask(lambda *_: _offers(folder))
        self._looking.ended.connect(self._looked, Qt.ConnectionType.QueuedConnection)
        self._looking.begin()

    def open(self, path: Path) -> None:
        """Restore one journal: another window has offered it, and this one was started for it."""
        self._opening = BackgroundTask(
            lambda *_: _with_positions(journal.open_one(path))
        )
        self._opening.ended.connect(self._opened, Qt.ConnectionType.QueuedConnection)
        self._opening.begin()

    def _opened(self, answer: ClaimedJournal | WorkerFailure) -> None:
        self._opening = None
        if not isinstance(answer, WorkerFailure):
            self.restore(answer)
        elif isinstance(
            answer.error, (journal.JournalError, OSError, file_lock.FileLockError)
        ):
            self._workspace.notifier.refuse(
                "The unsaved work cannot be restored", answer.message
            )
        else:
            raise answer.error

    def restore(self, claimed: ClaimedJournal) -> None:
        """Open a journal's project here, or in another window if this one has unsaved work or a run."""
        workspace, entry = self._workspace, claimed.entry
        assert entry is not None
        if workspace.document.dirty or workspace.session.active:
            self._restore_elsewhere(claimed)
            return
        workspace.document.restore(entry.project, entry.file, entry.on_disk)
        self.autosave.adopt(claimed)
        workspace.runs_keeper.take_over(entry.runs)
        if entry.file is not None:
            workspace.settings.add_recent(entry.file)
        self.files.check()
        where = (
            f"These changes are not in {entry.file.name} yet."
            if entry.file is not None
            else "It was never saved to a file."
        )
        workspace.notifier.say(
            f"Restored {entry.project.name}",
            f"As it was at {file_lock.clock(entry.saved)}. {where} Save it.",
        )

    def close(self) -> None:
        """Release journals when the window closes; undecided ones are offered again."""
        for task in (self._looking, self._opening):
            if task is not None:
                task.abandon()
        self._leave()
        self.files.close()
        self.autosave.close()

    def _looked(
        self,
        answer: tuple[
            FoundJournals, tuple[tuple[ClaimedJournal, Catalog | None, str], ...]
        ]
        | WorkerFailure,
    ) -> None:
        self._looking = None
        if isinstance(answer, WorkerFailure):
            folder = self._workspace.settings.journal_folder
            self._workspace.notifier.refuse(
                "Unsaved work cannot be listed",
                f"{folder} cannot be read: {answer.message}",
            )
            return
        findings, offers = answer
        self._found = list(findings.found)
        for path, reason in findings.damaged[:1]:
            detail = f"{reason} It is not offered again; its file remains at {path}."
            self._workspace.notifier.refuse(
                "Unsaved work was found that cannot be restored", detail
            )
        if offers:
            self.dialog = RecoveryDialog(
                tuple(RecoveryOffer(*offer) for offer in offers), self._workspace.window
            )
            self.dialog.restored.connect(self._restored)
            self.dialog.discarded.connect(self._discarded)
            self.dialog.finished.connect(self._leave)
            self.dialog.open()
        elif self._asked and not findings.damaged:
            self._workspace.notifier.say(
                "There is no unsaved work to recover",
                "All windows were closed normally or their work was saved.",
            )

    def _restored(self, claimed: ClaimedJournal) -> None:
        self._found.remove(claimed)
        self.restore(claimed)

    def _discarded(self, claimed: ClaimedJournal) -> None:
        self._found.remove(claimed)
        try:
            claimed.discard()
        except OSError as error:
            claimed.leave()
            self._workspace.notifier.refuse(
                "The unsaved work could not be discarded",
                f"{error.strerror or error}: {claimed.path}",
            )

    def _leave(self, _answer: int = 0) -> None:
        journals, self._found = self._found, []
        for claimed in journals:
            claimed.leave()
        dialog, self.dialog = self.dialog, None
        if dialog is not None:
            dialog.deleteLater()

    def _restore_elsewhere(self, claimed: ClaimedJournal) -> None:
        claimed.leave()
        try:
            subprocess.Popen(
                [sys.executable, "-m", "app.main", str(claimed.path)],
                env={**os.environ, "PYTHONPATH": python_path()},
                start_new_session=os.name == "posix",
            )
        except OSError as error:
            self._workspace.notifier.refuse(
                "Another window could not be opened",
                f"{error.strerror or error}. The work will be offered again.",
            )


def _offers(
    folder: Path,
) -> tuple[FoundJournals, tuple[tuple[ClaimedJournal, Catalog | None, str], ...]]:
    """Find the journals of crashed windows, with the ops and a description of each project; runs on a worker."""
    findings = journal.find(folder)
    offers: list[tuple[ClaimedJournal, Catalog | None, str]] = []
    for claimed in findings.found:
        entry = _with_positions(claimed).entry
        offers.append(
            (
                claimed,
                custom_layers.ops_of(entry.project) if entry else None,
                _remark(entry) if entry else "",
            )
        )
    return findings, tuple(offers)


def _with_positions(claimed: ClaimedJournal) -> ClaimedJournal:
    """Compute positions in large sheets on a worker, so that the window is not blocked."""
    if claimed.entry is not None:
        claimed.entry = replace(
            claimed.entry, project=with_places(claimed.entry.project)
        )
    return claimed


def _remark(entry: JournalEntry) -> str:
    if entry.file is None:
        return ""
    try:
        now = file.digest(entry.file)
    except OSError:
        now = ""
    return GONE if not now else CHANGED if entry.on_disk not in (None, now) else ""


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

    def beginnings(self) -> Iterable[SearchEntry]:
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
