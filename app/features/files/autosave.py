"""Autosave: write unsaved work to the window's journal, debounced, on a background thread: of several states that wait,
only the newest is written.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from msgspec import Struct
from PySide6.QtCore import QObject, Qt, QTimer, Signal, Slot

from app.project import file_lock
from app.project.document import Document
from app.project.journal import ClaimedJournal, Journal, JournalEntry
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


class JournalWritten(Struct, frozen=True):
    """How writing a journal ended: `problem` is "" for one that was written."""

    saved: datetime
    problem: str = ""


class JournalWriter:
    """Writes and clears one journal on a background thread, which calls `told(Written)`."""

    def __init__(self, folder: Path, told: Callable[[JournalWritten], object]) -> None:
        self.journal = Journal(folder)
        self._told = told
        self._state: JournalEntry | None = None
        self._found: ClaimedJournal | None = None
        self._waiting = self._adopting = self._leaving = self._busy = False
        self._wake = threading.Condition()
        self._thread: threading.Thread | None = None

    def put(self, entry: JournalEntry | None) -> None:
        """Schedule a journal entry, None to clear, replacing one that is still pending."""
        with self._wake:
            if entry is None and self._thread is None:
                return
            self._state, self._waiting = entry, True
            self._start()

    def adopt(self, claimed: ClaimedJournal) -> None:
        """Take over the journal of a crashed window."""
        with self._wake:
            self._found, self._adopting = claimed, True
            self._state, self._waiting = None, False
            self._start()

    def flush(self, seconds: float = 5.0) -> bool:
        """Wait until all that was put is written; False if that takes longer."""
        with self._wake:
            return self._wake.wait_for(
                lambda: not (self._waiting or self._adopting or self._busy), seconds
            )

    def close(self, leaves: bool = False) -> None:
        """Finish, delete the journal, and remove all files; if it `leaves` the journal, the next start offers it."""
        if leaves:
            self.flush()
        with self._wake:
            self._leaving = True
            self._wake.notify_all()
        if self._thread is not None:
            self._thread.join()
        if leaves:
            self.journal.leave()
        else:
            self.journal.close()

    def _start(self) -> None:
        if self._thread is None and not self._leaving:
            self._thread = threading.Thread(
                target=self._run, name="journal", daemon=True
            )
            self._thread.start()
        self._wake.notify_all()

    def _run(self) -> None:
        while True:
            with self._wake:
                self._busy = False
                self._wake.notify_all()
                self._wake.wait_for(
                    lambda: self._waiting or self._adopting or self._leaving
                )
                if self._leaving:
                    return
                claimed, self._found, self._adopting = self._found, None, False
                state, waiting, self._waiting = self._state, self._waiting, False
                self._state, self._busy = None, True
            written = self._carry_out(claimed, state, waiting)
            if written is not None:
                self._told(written)

    def _carry_out(
        self, claimed: ClaimedJournal | None, state: JournalEntry | None, waiting: bool
    ) -> JournalWritten | None:
        try:
            if claimed is not None:
                self.journal.adopt(claimed)
            if state is not None:
                self.journal.write(state)
                return JournalWritten(state.saved)
            if waiting:
                self.journal.clear()
        except (
            Exception
        ) as error:  # any error is reported in the window, and writing is retried
            reason = (
                getattr(error, "strerror", None) or str(error) or type(error).__name__
            )
            return JournalWritten(
                state.saved if state is not None else datetime.now().astimezone(),
                reason,
            )
        return None
