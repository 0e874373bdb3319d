"""Locks that end with the process that holds them, however that ends: of a run's folder, a journal, an open project."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from msgspec import Struct, to_builtins

from app.util.errors import CodedError

LONGEST_NOTE = 1 << 16  # bytes read of a lock file's content
PATIENCE = 2.0  # seconds that a save waits for a concurrent one of the same file
_BUSY = (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES)
# On Windows locked bytes are unreadable for others, so a byte far beyond the end is locked.
_FAR = 1 << 30


class FileLockError(CodedError, RuntimeError):
    """Another holder has the lock."""


class Lock:
    """Hold the lock at `path` until `release`. Raises FileLockError, or OSError if the file cannot be made or
    locked."""

    def __init__(self, path: Path) -> None:
        self.path = path
        while True:
            self._handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                _take(self._handle)
            except OSError as error:
                self.release()
                if error.errno in _BUSY:
                    raise FileLockError(
                        f"{path} is held by a process that is still running"
                    ) from error
                raise
            if _is_file_of(self._handle, path):
                return
            self.release()  # its holder removed the file just now

    def note(self, text: str) -> None:
        """Write the content of the lock file; a concurrent reader sees the old or the new first line. Raises
        OSError."""
        data = text.encode() + b"\n"
        os.lseek(self._handle, 0, os.SEEK_SET)
        os.write(self._handle, data)
        os.ftruncate(self._handle, len(data))

    def release(self) -> None:
        """Release the lock; the file stays."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def remove(self) -> None:
        """Remove the file and release the lock."""
        if self._handle < 0:
            return
        if sys.platform == "win32":  # an open file cannot be removed there
            self.release()
        with contextlib.suppress(OSError):
            self.path.unlink()
        self.release()


def is_held(path: Path) -> bool:
    """Return whether the lock is held, by this process or another."""
    if not path.exists():
        return False
    with contextlib.suppress(OSError):
        try:
            Lock(path).release()
        except FileLockError:
            return True
    return False


def note_in(path: Path) -> str:
    """Return the first line of a lock file; "" if there is none."""
    try:
        with path.open("rb") as file:
            return (
                file.read(LONGEST_NOTE).partition(b"\n")[0].decode("utf-8", "replace")
            )
    except OSError:
        return ""


@contextlib.contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Lock a project file while it is compared and replaced.

    Continues without a lock after `PATIENCE`, and on file systems without locks.
    """
    handle, until = -1, time.monotonic() + PATIENCE
    while sys.platform != "win32":  # an open file cannot be replaced there
        try:
            handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            _take(handle)
            if _is_file_of(handle, path):
                break
        except OSError as error:
            if handle < 0 or error.errno not in _BUSY or time.monotonic() > until:
                break
            time.sleep(0.005)
        os.close(handle)
        handle = -1
    try:
        yield
    finally:
        if handle >= 0:
            os.close(handle)


class Owner(Struct, frozen=True):
    """The process that has a file open: `since` is local time in ISO format; unknown fields are "" or 0."""

    user: str = ""
    host: str = ""
    pid: int = 0
    since: str = ""

    @property
    def elsewhere(self) -> bool:
        """Return whether it is on another machine."""
        return bool(self.host) and self.host != socket.gethostname()

    @property
    def description(self) -> str:
        """Description such as `ada on lab3, process 812, since 14:02`, with the date if not today."""
        who = " on ".join(
            piece for piece in (self.user, self.host if self.elsewhere else "") if piece
        )
        pid = f"process {self.pid}" if self.pid else ""
        since = (
            f"since {clock(datetime.fromisoformat(self.since))}" if self.since else ""
        )
        return ", ".join(piece for piece in (who, pid, since) if piece)


def clock(moment: datetime) -> str:
    """Format the time of day, with its date if not today."""
    moment = moment.astimezone()
    today = moment.date() == datetime.now().astimezone().date()
    return f"{moment:%H:%M}" if today else f"{moment:%Y-%m-%d %H:%M}"


def this_process() -> Owner:
    """Return this process as an owner."""
    try:
        import getpass

        user = getpass.getuser()
    except (OSError, KeyError, ImportError):  # a user id without a name
        user = ""
    now = datetime.now().astimezone().isoformat(timespec="seconds")
    return Owner(user, socket.gethostname(), os.getpid(), now)


def lock_beside(path: Path) -> Path:
    """Return the lock file of a project: hidden, in its folder. A link shares that of its target."""
    path = Path(os.path.realpath(path))
    return path.with_name(f".{path.name}.lock")


class FileInUseError(FileLockError):
    """The file is open elsewhere."""

    def __init__(self, owner: Owner) -> None:
        super().__init__(
            f"It is open elsewhere: {owner.description or 'by an unknown program'}."
        )
        self.owner = owner


def mark_open(path: Path, *, force: bool = False) -> Lock:
    """Mark a file as open by this process until the lock is removed.

    Raises FileInUseError if another one has it open, and OSError where no lock can be made: reading needs none. A mark
    of another machine counts as long as it lies there, unless `force` takes it over.
    """
    beside = lock_beside(path)
    before = owner_in(beside)
    try:
        lock = Lock(beside)
    except FileLockError as error:
        raise FileInUseError(owner_in(beside)) from error
    except PermissionError:
        if (
            not beside.exists()
        ):  # in a folder that takes no files nobody else has a mark either
            raise
        if not _is_free(beside):
            raise FileInUseError(before) from None
        beside.unlink()  # left by another user's process that has ended
        lock = Lock(beside)
    if before.elsewhere and not force:
        lock.release()
        raise FileInUseError(before)
    try:
        lock.note(json.dumps(to_builtins(this_process())))
    except OSError:  # it holds all the same
        pass
    return lock


def holder(path: Path) -> Owner | None:
    """Return the process that has a file open, this one included; None if there is none."""
    beside = lock_beside(path)
    owner = owner_in(beside)
    return owner if is_held(beside) or owner.elsewhere else None


def remove_dead(beside: Path) -> None:
    """Remove the lock file of an ended process of this machine; one that is held stays."""
    if beside.is_file() and not owner_in(beside).elsewhere:
        with contextlib.suppress(OSError, FileLockError):
            Lock(beside).remove()


def owner_in(beside: Path) -> Owner:
    """Return the owner named in a lock file, whether it is held or not."""
    try:
        note = json.loads(note_in(beside))
        since = str(note["since"])
        datetime.fromisoformat(since)
        return Owner(
            str(note["user"])[:80], str(note["host"])[:80], int(note["pid"]), since
        )
    except (ValueError, TypeError, KeyError):
        return Owner()


def _is_free(path: Path) -> bool:
    """Return whether a lock file that this user cannot write is unlocked."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        _take(handle)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True


def _is_file_of(handle: int, path: Path) -> bool:
    """Return whether the open file still has that path."""
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False


def _take(handle: int) -> None:
    if sys.platform == "win32":
        import msvcrt

        os.lseek(handle, _FAR, os.SEEK_SET)
        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
