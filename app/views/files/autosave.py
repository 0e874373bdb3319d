"""Keeps unsaved work in the window's journal, a few seconds behind the edits, on a thread of its own."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from PySide6.QtCore import QObject, Qt, QTimer, Signal, Slot

from app.project import file_lock
from app.project.document import Document
from app.project.journal import Found, JournalEntry
from app.project.journal_writer import JournalWriter, Written
from app.views.status import StatusLine

FIRST, BEHIND = 200, 3000  # milliseconds from an edit to its writing: of the first one, and of those that follow it
WHY = (
    "Unsaved changes are kept so that they can be restored if Tapedeck or the computer stops. "
    "The project's own file is written when you save."
)


class Autosave(QObject):
    """One per window. `runs` tells the folders of runs that belong to a project without a file."""

    _written = Signal(object)

    def __init__(
        self,
        document: Document,
        folder: Path,
        runs: Callable[[], tuple[Path, ...]],
        status: StatusLine,
        parent: QObject,
    ) -> None:
        super().__init__(parent)
        self._document, self._runs, self._status = document, runs, status
        self._writer = JournalWriter(folder, self._written.emit)
        self._kept = False  # of a project that is not changed: a run of it that has no file
        self._era = 0  # grows with each save and each project that is opened
        self._empty = True  # nothing is on the disk, so that a crash now would lose all
        self._timer = QTimer(self, singleShot=True)
        self._timer.timeout.connect(self.save)
        self._written.connect(self._told, Qt.ConnectionType.QueuedConnection)
        document.changed.connect(self._changed)
        document.dirty_changed.connect(self._dirty_changed)
        document.replaced.connect(self._settled)
        document.path_changed.connect(self._path_changed)
        document.saving.connect(self._saving)

    @property
    def journal(self) -> Path:
        """The file that unsaved work is kept in."""
        return self._writer.journal.path

    @property
    def pending(self) -> bool:
        """Whether there are edits that are to be written."""
        return self._timer.isActive()

    def save(self) -> None:
        """Keep what is open now, or nothing where it is saved."""
        self._timer.stop()
        document = self._document
        if not document.dirty and not self._kept:
            self._settled()
            return
        now = datetime.now().astimezone()
        self._empty = False
        self._writer.put(JournalEntry(document.project, document.path, document.on_disk, now, self._runs(), self._era))

    def before_run(self) -> Callable[[], object]:
        """Keep what is open as a run begins; what is returned waits until that is on the disk, on the run's thread."""
        self._kept = self._document.path is None
        self.save()
        return self._writer.flush

    def adopt(self, found: Found) -> None:
        """Go on with the journal of a window that crashed, once its project is open here."""
        self._writer.adopt(found)
        self._timer.start(FIRST)

    def note_open(self, lock: Path | None) -> None:
        """Note which lock file this window makes beside the project, None for none. Raises OSError."""
        self._writer.journal.note_open(lock)

    def close(self) -> None:
        """Keep nothing any more: the work was saved, or given up."""
        self._timer.stop()
        self._written.disconnect(self._told)
        self._writer.close()

    def _changed(self, _before: object, _after: object) -> None:
        if not self._timer.isActive():  # not put off by every edit: the first one is waiting
            self._timer.start(FIRST if self._empty else BEHIND)

    def _dirty_changed(self, dirty: bool) -> None:
        if dirty:
            self._changed(None, None)
        else:
            self.save()

    def _path_changed(self, path: Path | None) -> None:
        self._era += 1
        if path is not None:
            self._kept = False
        if not self._document.dirty:
            self.save()

    @Slot()
    def _settled(self, _project: object = None) -> None:
        """Nothing is unsaved, or another project is open: the person has saved the old one, or gave it up."""
        self._kept, self._empty = False, True
        self._timer.stop()
        self._writer.put(None)
        self._status.set_autosave("")

    def _saving(self, path: Path, digest: str) -> None:
        try:
            self._writer.journal.note_saving(path, digest, self._era)
        except OSError:  # without it a stale journal may be offered once, no more
            pass

    @Slot(object)
    def _told(self, written: Written) -> None:
        if not self._document.dirty and not self._kept:
            return
        if written.problem:
            words = f"{WHY}\n\n{self._writer.journal.folder} cannot be written: {written.problem}."
            self._status.set_autosave("Autosave is off: save often", "warn", words)
        else:
            self._status.set_autosave(f"Autosaved {file_lock.clock(written.saved)}", note=WHY)
