"""The thread that writes a window's journal: of several states that wait, only the newest is written."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from msgspec import Struct

from app.project.journal import ClaimedJournal, Journal, JournalEntry


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
