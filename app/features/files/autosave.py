"""Autosave: write unsaved work to the window's journal, debounced, on a background thread."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from PySide6.QtCore import QObject, Qt, QTimer, Signal, Slot

from app.project import file_lock
from app.project.document import Document
from app.project.journal import ClaimedJournal, JournalEntry
from app.project.journal_writer import JournalWriter, JournalWritten
from app.views.status import StatusLine

FIRST = 200  # milliseconds from the first edit to its writing
SECOND = 1000  # milliseconds of a second of `delay`, for those that follow it
WHY = (
    "Unsaved changes are kept so that they can be restored if Tapedeck or the computer stops. "
    "The project's own file is written when you save."
)


class Autosave(QObject):
    """Autosave of one window.

    `runs` returns the folders of runs of a project that has no file, `delay` the seconds from an edit to its writing.
    """

    _written = Signal(object)

    def __init__(
        self,
        document: Document,
        folder: Path,
        runs: Callable[[], tuple[Path, ...]],
        delay: Callable[[], int],
        status: StatusLine,
        parent: QObject,
    ) -> None:
        super().__init__(parent)
        self._document, self._runs, self._delay, self._status = (
            document,
            runs,
            delay,
            status,
        )
        self._writer = JournalWriter(folder, self._written.emit)
        self._journaled = (
            False  # an unmodified project without a file, because of a run of it
        )
        self._era = 0  # grows with each save and each project that is opened
        self._empty = True  # the journal is empty: a crash now would lose everything
        self._leaves = False  # unsaved work is to be offered at the next start
        self._timer = QTimer(self, singleShot=True)
        self._timer.timeout.connect(self.save)
        self._written.connect(self._show_written, Qt.ConnectionType.QueuedConnection)
        document.changed.connect(self._changed)
        document.dirty_changed.connect(self._dirty_changed)
        document.replaced.connect(self._settled)
        document.path_changed.connect(self._path_changed)
        document.saving.connect(self._saving)

    @property
    def journal(self) -> Path:
        """The journal file of this window."""
        return self._writer.journal.path

    def save(self) -> None:
        """Write the project to the journal, or empty the journal if the project is saved."""
        self._timer.stop()
        document = self._document
        if not document.dirty and not self._journaled:
            self._settled()
            return
        now = datetime.now().astimezone()
        self._empty = False
        self._writer.put(
            JournalEntry(
                document.project,
                document.path,
                document.on_disk,
                now,
                self._runs(),
                self._era,
            )
        )

    def before_run(self) -> Callable[[], object]:
        """Journal the project as a run begins; return a function that waits for it, to call on the run's thread."""
        self._journaled = self._document.path is None
        self.save()
        return self._writer.flush

    def adopt(self, claimed: ClaimedJournal) -> None:
        """Continue the journal of a crashed window after its project was restored here."""
        self._writer.adopt(claimed)
        self._timer.start(FIRST)

    def note_open(self, lock: Path | None) -> None:
        """Note which lock file this window makes beside the project, None for none. Raises OSError."""
        self._writer.journal.note_open(lock)

    def leave_unsaved(self) -> None:
        """Write unsaved work now, and leave it to the next start when the window closes: nobody is asked."""
        self._leaves = True
        self.save()

    def close(self) -> None:
        """Stop: the work was saved or discarded, or is left to the next start."""
        self._timer.stop()
        leaves = self._leaves and self._document.dirty
        if leaves:
            self.save()
        self._written.disconnect(self._show_written)
        self._writer.close(leaves)

    def _changed(self, _before: object, _after: object) -> None:
        if (
            not self._timer.isActive()
        ):  # the delay counts from the first edit and is not extended
            self._timer.start(FIRST if self._empty else SECOND * self._delay())

    def _dirty_changed(self, dirty: bool) -> None:
        if dirty:
            self._changed(None, None)
        else:
            self.save()

    def _path_changed(self, path: Path | None) -> None:
        self._era += 1
        if path is not None:
            self._journaled = False
        if not self._document.dirty:
            self.save()

    @Slot()
    def _settled(self, _project: object = None) -> None:
        """Empty the journal: the project is saved, or another was opened after saving or discarding it."""
        self._journaled, self._empty = False, True
        self._timer.stop()
        self._writer.put(None)
        self._status.set_autosave("")

    def _saving(self, path: Path, digest: str) -> None:
        try:
            self._writer.journal.note_saving(path, digest, self._era)
        except OSError:  # the only effect: a stale journal may be offered once
            pass

    @Slot(object)
    def _show_written(self, written: JournalWritten) -> None:
        if not self._document.dirty and not self._journaled:
            return
        if written.problem:
            reason = f"{WHY}\n\n{self._writer.journal.folder} cannot be written: {written.problem}."
            self._status.set_autosave("Autosave is off: save often", "warn", reason)
        else:
            self._status.set_autosave(
                f"Autosaved {file_lock.clock(written.saved)}", note=WHY
            )
