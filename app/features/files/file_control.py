"""The file of the open project: locks, changes made by other programs, and failed saves."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from PySide6.QtCore import QFileSystemWatcher, QObject, Qt, QTimer
from PySide6.QtGui import QGuiApplication

from app.features.files.autosave import Autosave
from app.features.files.changed_file_dialog import (
    ChangedFileDialog,
    VersionChoice,
    read_on_disk,
)
from app.features.files.project_difference import differences, summary
from app.project import file_lock
from app.project.project import Project
from app.util.resources import path as resource_path
from app.views.ui.background import WorkerFailure
from app.views.ui.dialogs.message import DialogAnswer, QuestionDialog
from app.views.ui.task import BackgroundTask
from app.views.ui.widgets.banner import Banner

if TYPE_CHECKING:
    from app.features.files.changed_file_dialog import OnDisk
    from app.views.workspace import Workspace

SETTLED = 100  # ms of debounce: programs may save a file in several steps
UNSAVED, CHANGED, OPEN = (
    "unsaved",
    "changed",
    "open",
)  # kinds of messages, most important first


class Notice(Struct, frozen=True):
    """A message with what can be done, by the words on the buttons; `closed` is called when it is closed unanswered."""

    kind: str
    title: str
    reason: str
    actions: dict[str, Callable[[], object]]
    closed: Callable[[], object] | None = None


class FileControl(QObject):
    """Marks the file as open, watches it, and asks before other changes would be overwritten."""

    def __init__(self, workspace: Workspace, autosave: Autosave) -> None:
        super().__init__(workspace.window)
        self._workspace, self._document, self._autosave = (
            workspace,
            workspace.document,
            autosave,
        )
        self._notices: dict[str, Notice] = {}
        self._lock: file_lock.Lock | None = None
        self._locked: Path | None = None  # the lock file, ours or another's
        self._ignored: str | None = (
            None  # the digest of a change that the person has let be
        )
        self._looking: BackgroundTask | None = None
        self.banner = Banner(parent=workspace.window)
        workspace.notifier.add_banner(self.banner)
        self.banner.chosen.connect(self._chosen)
        self.banner.closed.connect(self._closed)
        self._watcher = QFileSystemWatcher(self)
        self._settle = QTimer(self, singleShot=True, interval=SETTLED)
        self._settle.timeout.connect(self.check)
        self._watcher.fileChanged.connect(lambda _path: self._settle.start())
        self._watcher.directoryChanged.connect(lambda _path: self._settle.start())
        application = QGuiApplication.instance()
        assert isinstance(application, QGuiApplication)
        application.applicationStateChanged.connect(self._activated)
        self._document.replaced.connect(self._replaced)
        self._document.path_changed.connect(self._path_changed)
        files = workspace.files
        files.saved.connect(lambda _path: self._drop(UNSAVED))
        files.ask_through(self.settle, self.may_replace, self._not_saved)

    def close(self) -> None:
        """Release the lock and stop watching."""
        self._settle.stop()
        self._release()

    # -- the lock -----------------------------------------------------------------------------------------------------

    def _replaced(self, _project: object) -> None:
        self._ignored = None
        for key in (UNSAVED, CHANGED, OPEN):
            self._drop(key)
        self._release()  # also for the same file, so that another owner is reported again

    def _path_changed(self, path: Path | None) -> None:
        lock_path = (
            file_lock.lock_beside(path)
            if path is not None and not _is_example(path)
            else None
        )
        if lock_path != self._locked:
            self._release()
            self._drop(OPEN)
            self._locked = lock_path
            if path is not None and lock_path is not None:
                self._mark(path)
        self._drop(CHANGED)
        self._watch()

    def _mark(self, path: Path, *, quietly: bool = False, force: bool = False) -> None:
        """Mark the file as open here; unless `quietly`, report who else has it open."""
        try:
            self._autosave.note_open(file_lock.lock_beside(path))
        except OSError:
            pass  # autosave reports it once there is something to save
        try:
            self._lock = file_lock.mark_open(path, force=force)
        except file_lock.FileInUseError as error:
            if not quietly:
                self._put(OPEN, self._open_notice(path, error.owner))
        except OSError:
            pass  # a folder that is not writable: saving there fails as well
        else:
            self._drop(OPEN)

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.remove()
            self._lock = None
            try:
                self._autosave.note_open(None)
            except OSError:
                pass
        self._locked = None

    def _open_notice(self, path: Path, owner: file_lock.Owner) -> Notice:
        here = owner.pid == os.getpid() and not owner.elsewhere
        who = (
            "in this program" if here else owner.description or "by an unknown program"
        )
        reason = f"Open: {who}. Changes made in both may conflict; the second to save is asked."
        actions: dict[str, Callable[[], object]] = {
            "Read-only": self._read_only,
            "Open a copy": self._open_copy,
            "Edit anyway": partial(self._go_on, path),
        }
        return Notice(
            "warning", f"{path.name} is open in another window", reason, actions
        )

    def _read_only(self) -> None:
        self._document.set_read_only()
        self._drop(OPEN)

    def _open_copy(self) -> None:
        """Detach the project from its file; undo history stays, and saving asks for a path."""
        self._document.detach()

    def _go_on(self, path: Path) -> None:
        self._drop(OPEN)
        self._mark(path, quietly=True, force=True)

    # -- changes from outside -----------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Watch the file and its folder: most programs replace a file by a new one."""
        path = self._document.path
        paths = (
            {str(target) for target in (path, path.parent) if target.exists()}
            if path is not None
            else set()
        )
        watched = {*self._watcher.files(), *self._watcher.directories()}
        if gone := watched - paths:
            self._watcher.removePaths(sorted(gone))
        if new := paths - watched:
            self._watcher.addPaths(sorted(new))

    def _activated(self, state: Qt.ApplicationState) -> None:
        """Check the file when the window is activated, since some file systems report no changes."""
        if state == Qt.ApplicationState.ApplicationActive:
            self._settle.start()

    def check(self) -> None:
        """Compare the file with its last known content, in the background."""
        path, digest = self._document.path, self._document.on_disk
        if path is None or digest is None:
            return
        self._watch()
        if self._looking is not None:
            self._looking.abandon()
        opened = self._document.project

        self._looking = BackgroundTask(
            lambda *_: (path, digest, opened, read_on_disk(path, opened, digest))
        )
        self._looking.ended.connect(self._looked, Qt.ConnectionType.QueuedConnection)
        self._looking.begin()

    def _looked(
        self, answer: tuple[Path, str, Project, OnDisk] | WorkerFailure
    ) -> None:
        self._looking = None
        if isinstance(answer, WorkerFailure):
            raise answer.error
        path, digest, opened, now = answer
        if path != self._document.path or digest != self._document.on_disk:
            return  # of a file that was left, or saved meanwhile
        if now.digest == digest:
            self._drop(CHANGED)
            if self._lock is None and self._locked is not None:
                self._mark(path, quietly=True)  # the other window may have closed
        elif now.digest == "":
            self._gone(path)
        elif now.same and now.digest is not None and opened is self._document.project:
            self._document.note_on_disk(now.digest)
            self._document.undo_stack.setClean()
            self._drop(CHANGED)
        elif now.digest != self._ignored or now.digest is None:
            self._report_change(path, now)

    def _gone(self, path: Path) -> None:
        if self._ignored == "":
            return
        self._document.mark_unsaved()
        reason = f"It was moved or deleted: {path}. The project open here is the only copy until you save it."
        save = {
            "Save there again": self._workspace.files.save,
            "Save as…": self._workspace.files.save_as,
        }
        closed = partial(setattr, self, "_ignored", "")
        self._put(
            CHANGED,
            Notice("warning", f"{path.name} is gone", reason, dict(save), closed),
        )

    def _report_change(self, path: Path, now: OnDisk) -> None:
        keep = partial(self._keep, now)
        if now.project is None:
            title, reason = (
                f"{path.name} was changed and can no longer be opened",
                now.problem,
            )
            actions: dict[str, Callable[[], object]] = {
                "Save as…": self._workspace.files.save_as,
                "Keep mine": keep,
            }
        else:
            changes = summary(differences(self._document.project, now.project))
            title = f"{path.name} was changed on the disk"
            reason = (
                f"In the file: {changes}."
                if changes
                else "The same project with other formatting."
            )
            actions = {
                "View differences…": self._ask,
                "Reload": partial(self._reload, now),
                "Keep mine": keep,
            }
        self._put(CHANGED, Notice("warning", title, reason, actions, keep))

    def _keep(self, now: OnDisk) -> None:
        """Keep the open project, which differs from the file. Saving asks again."""
        self._ignored = now.digest
        self._document.mark_unsaved()
        self._drop(CHANGED)

    def _reload(self, now: OnDisk) -> None:
        assert now.project is not None and now.digest is not None
        self._document.reload(now.project, now.digest)
        self._drop(CHANGED)
        self._watch()

    def _ask(self) -> None:
        path = self._document.path
        if path is not None:
            self.settle(path)

    def settle(self, path: Path) -> bool:
        """Ask what becomes of the file's version and the open one; whether the open one was saved."""

        dialog = ChangedFileDialog(path, self._document.project, self._workspace.window)
        dialog.exec()
        dialog.deleteLater()
        disk_version, files = dialog.on_disk, self._workspace.files
        if dialog.choice is VersionChoice.SAVE_AS:
            return files.save_as()
        if disk_version is None:
            return False
        if dialog.choice is VersionChoice.OVERWRITE:
            self._document.note_on_disk(
                disk_version.digest
            )  # what was shown, and no later version
            return files.save_to(path)
        if dialog.choice is VersionChoice.RELOAD and disk_version.project is not None:
            self._reload(disk_version)
        elif disk_version.digest != self._document.on_disk:
            self._keep(disk_version)
        return False

    # -- saving -------------------------------------------------------------------------------------------------------

    def may_replace(self, path: Path, warned: bool) -> bool:
        """Ask before overwriting another file that is open elsewhere, or that the user was not `warned` about."""
        mine = self._lock is not None and file_lock.lock_beside(path) == self._locked
        owner = None if mine else file_lock.holder(path)
        if owner is not None:
            title = f"Replace {path.name}, which is open in another window?"
            question = (
                f"Open: {owner.description or 'by another program'}. "
                "That window will report that the file has changed."
            )
        elif not warned and path.exists():
            title, question = (
                f"Replace {path.name}?",
                f"It already exists in {path.parent}.",
            )
        else:
            return True
        dialog = QuestionDialog(title, question, self._workspace.window)
        dialog.offer("Replace", DialogAnswer.DISCARD, left=True)
        dialog.offer("Cancel", DialogAnswer.CANCEL, "primary", default=True)
        dialog.exec()
        dialog.deleteLater()
        return dialog.answer is DialogAnswer.DISCARD

    def _not_saved(self, title: str, reason: str) -> None:
        self._put(
            UNSAVED,
            Notice("error", title, reason, {"Save as…": self._workspace.files.save_as}),
        )

    # -- the banner ---------------------------------------------------------------------------------------------------

    def _put(self, key: str, notice: Notice) -> None:
        self._notices[key] = notice
        self._show()

    def _drop(self, key: str) -> None:
        if self._notices.pop(key, None) is not None:
            self._show()

    def _front(self) -> str:
        return next(
            (key for key in (UNSAVED, CHANGED, OPEN) if key in self._notices), ""
        )

    def _show(self) -> None:
        notice = self._notices.get(self._front())
        if notice is not None:
            self.banner.set(notice.kind, notice.title, notice.reason, *notice.actions)
        self.banner.setVisible(notice is not None)

    def _chosen(self, text: str) -> None:
        notice = self._notices.get(self._front())
        if notice is not None and text in notice.actions:
            notice.actions[text]()

    def _closed(self) -> None:
        notice = self._notices.pop(self._front(), None)
        if notice is not None and notice.closed is not None:
            notice.closed()
        self._show()


def _is_example(path: Path) -> bool:
    """Return whether it is one of the program's examples, which several windows may open."""
    return path.resolve().parent == resource_path("examples").resolve()
