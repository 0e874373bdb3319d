"""Autosave journals: the unsaved state of each window, restored after a crash.

A window has `ID.journal`, the project with its changes, and `ID.lock`, held while its process lives. A journal whose
lock is free belongs to a crashed window. The lock file lists other files to clean up after such a window.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
import time
from datetime import datetime
from pathlib import Path

import msgspec
from msgspec import Struct

from app.project import file as project_file
from app.project import file_lock, limits
from app.project.file import ProjectFileError
from app.project.project import Project
from app.project.weights import files as weights_files
from app.util import atomic, leftovers
from app.util.errors import CodedError

VERSION = 1
JOURNAL, LOCK, PAINTING, DAMAGED = ".journal", ".lock", ".painting", "damaged"
LARGEST = limits.LARGEST_FILE + (1 << 20)
KEPT = 30 * 24 * 3600.0  # seconds until a damaged journal is deleted


class JournalError(CodedError, ValueError):
    """A journal that cannot be read; the message says why."""


class NewerJournalError(JournalError):
    """A journal of a newer version of the program, which can read it."""


class JournalEntry(Struct, frozen=True):
    """The content of a journal: a project, and its file.

    `file` is None for a project that was never saved; `on_disk` is the digest of the file before the changes. `runs`
    are folders of runs of an unsaved project, which are moved to its folder once it is saved. `era` increases with each
    save and each project that a window opens.
    """

    project: Project
    file: Path | None
    on_disk: str | None
    saved: datetime
    runs: tuple[Path, ...] = ()
    era: int = 0


class _Header(Struct):
    tapedeck_journal: int
    format: int
    sha256: str
    saved: str
    file: str = ""
    on_disk: str = ""
    runs: list[str] = []
    era: int = 0


class _Note(Struct):
    """The content of a lock file: the process, the lock of its open file, its last save, where and when."""

    pid: int = 0
    open: str = ""
    file: str = ""
    digest: str = ""
    era: int = 0


# Made on import: msgspec makes its tables at the first use, and two threads that do so at once end the process.
_headers, _notes = msgspec.json.Decoder(_Header), msgspec.json.Decoder(_Note)


def encode(entry: JournalEntry) -> bytes:
    """Serialize a journal: a header line, then the project as in a file, with absolute paths."""
    data = project_file.dumps(entry.project)
    header = _Header(
        VERSION,
        project_file.VERSION,
        hashlib.sha256(data).hexdigest(),
        entry.saved.astimezone().isoformat(timespec="seconds"),
        str(entry.file or ""),
        entry.on_disk or "",
        [str(folder) for folder in entry.runs],
        entry.era,
    )
    return msgspec.json.encode(header) + b"\n" + data


def decode(data: bytes) -> JournalEntry:
    """Parse a journal. Raises JournalError, or NewerJournalError for one of a newer version."""
    line, _, rest = data.partition(b"\n")
    try:
        versions = msgspec.json.decode(line, type=dict[str, object])
        if (
            int(str(versions["tapedeck_journal"])) > VERSION
            or int(str(versions["format"])) > project_file.VERSION
        ):
            raise NewerJournalError(
                "It was written by a newer version of Tapedeck, which can restore it."
            )
        header = _headers.decode(line)
        saved = datetime.fromisoformat(header.saved).astimezone()
    except NewerJournalError:
        raise
    except (
        msgspec.DecodeError,
        UnicodeDecodeError,
        RecursionError,
        KeyError,
        ValueError,
        OSError,
    ) as error:
        raise JournalError(f"Its first line cannot be read: {error}.") from error
    if hashlib.sha256(rest).hexdigest() != header.sha256:
        raise JournalError("Its checksum does not match: it was cut off or changed.")
    try:
        project = project_file.loads(rest)
    except ProjectFileError as error:
        raise JournalError(f"Its project cannot be read: {error}.") from error
    file = Path(header.file) if header.file else None
    return JournalEntry(
        project,
        file,
        header.on_disk or None,
        saved,
        tuple(map(Path, header.runs)),
        header.era,
    )


class Journal:
    """The journal of one window. Files are created on the first write.

    `write`, `clear`, `adopt` and `close` are called on one thread at a time, `note_open` and `note_saving` on any. All
    but `clear` and `close` raise OSError.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._id = ""
        self._lock: file_lock.Lock | None = None
        self._note = _Note(os.getpid())
        self._noting = threading.RLock()

    @property
    def path(self) -> Path:
        return self.folder / f"{self._id}{JOURNAL}"

    def write(self, entry: JournalEntry) -> None:
        """Replace the journal's content atomically."""
        self._hold()
        data = encode(entry)
        atomic.write_bytes(self.path, data)

    def clear(self) -> None:
        """Delete the journal."""
        if self._lock is not None:
            with contextlib.suppress(OSError):
                self.path.unlink()

    def note_open(self, lock: Path | None) -> None:
        """Record the lock file of this window, so that the next start can remove it after a crash."""
        with self._noting:
            self._note.open = str(lock or "")
            if lock is not None or self._lock is not None:
                self._write_note()

    def note_saving(self, file: Path, digest: str, era: int) -> None:
        """Note the content that a file is about to get: once it does, journals up to this era are outdated."""
        with self._noting:
            self._note.file, self._note.digest, self._note.era = str(file), digest, era
            if self._lock is not None:
                self._write_note()

    def adopt(self, claimed: ClaimedJournal) -> None:
        """Take over the journal of a crashed window, which is restored in this one."""
        with self._noting:
            self.close()
            self._note = _Note(
                os.getpid(), self._note.open
            )  # the last save here was of another project
            self._lock, self._id = claimed.lock, claimed.path.name.removesuffix(JOURNAL)
            self._write_note()

    def close(self) -> None:
        """Delete the journal and its lock: nothing of this window remains in the folder."""
        with self._noting:
            self.clear()
            if self._lock is not None:
                self._lock.remove()
                self._lock = None

    def leave(self) -> None:
        """Release the lock: the next start offers the journal."""
        with self._noting:
            if self._lock is not None:
                self._lock.release()
                self._lock = None

    def _write_note(self) -> None:
        self._hold()
        assert self._lock is not None
        self._lock.note(msgspec.json.encode(self._note).decode())

    def _hold(self) -> None:
        with self._noting:
            if self._lock is None:
                self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                journal_id = f"{datetime.now():%Y%m%d-%H%M%S}-{os.urandom(3).hex()}"
                self._lock, self._id = (
                    file_lock.Lock(self.folder / f"{journal_id}{LOCK}"),
                    journal_id,
                )
                self._write_note()


class ClaimedJournal(Struct):
    """A journal of a crashed window, claimed: no other window offers it until it is released or discarded.

    `entry` is None if it cannot be restored, and `problem` tells why.
    """

    path: Path
    lock: file_lock.Lock
    entry: JournalEntry | None
    problem: str = ""

    @property
    def _painting(self) -> Path:
        return self.path.with_suffix(PAINTING)

    def begin_painting(self) -> bool:
        """Note that a picture of it is being painted; False if the program ended the last time that it was."""
        try:
            self._painting.touch(exist_ok=False)
        except FileExistsError:
            return False
        except OSError:
            pass
        return True

    def end_painting(self) -> None:
        """Note that the preview exists, or is no longer needed."""
        with contextlib.suppress(OSError):
            self._painting.unlink()

    def leave(self) -> None:
        """Offer it again at the next start."""
        self.lock.release()

    def discard(self) -> None:
        """Delete it. Raises OSError, and then it is kept."""
        self.path.unlink(missing_ok=True)
        self.lock.remove()


class FoundJournals(Struct, frozen=True):
    """Journals to offer, the newest first, and damaged ones: where each was moved, and why."""

    found: tuple[ClaimedJournal, ...] = ()
    damaged: tuple[tuple[Path, str], ...] = ()


def find(folder: Path) -> FoundJournals:
    """Claim the journals of crashed windows, and remove other leftovers of them. Raises OSError."""
    if not folder.is_dir():
        return FoundJournals()
    journals: list[ClaimedJournal] = []
    damaged: list[tuple[Path, str]] = []
    names = {
        path.name.removesuffix(path.suffix)
        for path in folder.iterdir()
        if path.suffix in (JOURNAL, LOCK)
    }
    for name in sorted(names):
        try:
            lock = file_lock.Lock(folder / f"{name}{LOCK}")
        except file_lock.FileLockError:
            continue
        note = _note_of(lock)
        if note.open:
            file_lock.remove_dead(Path(note.open))
            leftovers.sweep(Path(note.open).parent)  # of a save that was cut off
        journal = _claimed(folder / f"{name}{JOURNAL}", lock, note, damaged)
        if journal is not None:
            journals.append(journal)
    _prune(folder)
    newest = sorted(
        journals,
        key=lambda claimed: claimed.entry.saved.timestamp() if claimed.entry else 0.0,
        reverse=True,
    )
    return FoundJournals(tuple(newest), tuple(damaged))


def open_one(path: Path) -> ClaimedJournal:
    """Claim one journal. Raises JournalError, OSError, and `file_lock.Busy` if another window has it."""
    lock = file_lock.Lock(path.with_suffix(LOCK))
    try:
        return ClaimedJournal(path, lock, _read(path))
    except (JournalError, OSError):
        lock.release()
        raise


def _read(path: Path) -> JournalEntry:
    with path.open("rb") as file:
        data = file.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise JournalError("It exceeds the size limit of a project.")
    return decode(data)


def _claimed(
    path: Path, lock: file_lock.Lock, note: _Note, damaged: list[tuple[Path, str]]
) -> ClaimedJournal | None:
    """Return a journal worth offering; delete others, and move an unreadable one aside."""
    try:
        entry = _read(path)
    except FileNotFoundError:
        lock.remove()
        return None
    except NewerJournalError as error:
        return ClaimedJournal(path, lock, None, str(error))
    except (JournalError, OSError) as error:
        aside = path.parent / DAMAGED / path.name
        with contextlib.suppress(OSError):
            aside.parent.mkdir(exist_ok=True)
            os.replace(path, aside)
            os.utime(aside)
            lock.remove()
        lock.release()
        damaged.append((aside if aside.exists() else path, str(error)))
        return None
    if _is_saved(entry, note):
        path.unlink(missing_ok=True)
        lock.remove()
        return None
    _keep_weights(entry.project)
    return ClaimedJournal(path, lock, entry)


def _is_saved(entry: JournalEntry, note: _Note) -> bool:
    """Return whether the file has the journal's content, or a newer one of the same window."""
    with contextlib.suppress(OSError, ProjectFileError):
        if (
            note.digest
            and entry.era <= note.era
            and project_file.digest(Path(note.file)) == note.digest
        ):
            return True
        if entry.file is not None:
            return project_file.dumps(
                project_file.read(entry.file)
            ) == project_file.dumps(entry.project)
    return False


def _keep_weights(project: Project) -> None:
    """Renew the modification time of unsaved weights, which are deleted after some weeks."""
    origin = project.origin
    files = (
        project.training.start,
        origin.weights if origin else None,
        origin.reference if origin else None,
    )
    for file in files:
        if file is not None and Path(file.path).parent == weights_files.store():
            with contextlib.suppress(OSError):
                os.utime(file.path)


def _note_of(lock: file_lock.Lock) -> _Note:
    try:
        return _notes.decode(file_lock.note_in(lock.path))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _Note()


def _prune(folder: Path) -> None:
    """Remove partial files of ended windows, and old damaged journals."""
    leftovers.sweep(folder)
    with contextlib.suppress(OSError):
        for path in folder.glob(f"*{PAINTING}"):
            if not path.with_suffix(JOURNAL).exists():
                path.unlink()
        for path in (folder / DAMAGED).glob(f"*{JOURNAL}"):
            if time.time() - path.stat().st_mtime > KEPT:
                path.unlink()
