"""Temporary files and folders named after their process, so that those of dead processes can be removed.

A process that is killed while writing leaves its temporary file. The next process that writes there removes it; files
of live processes are never touched.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import hashlib
import os
import re
import shutil
import socket
import stat
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Iterator
from functools import cache
from pathlib import Path

FILE, FOLDER = ".tapedeck-", "tapedeck-"
_NAME = re.compile(r"\.?tapedeck-([0-9a-f]{8})-(\d+)-(\d+)-[0-9a-z_]+")
# Earlier versions did not name the process. No file takes a day to write.
_NAMELESS = re.compile(r"\.tapedeck-[0-9a-z_]{8}(\.safetensors)?")
_OLD = 24 * 3600.0  # seconds
_swept: set[Path] = set()
_folders: weakref.WeakSet[TemporaryFolder] = weakref.WeakSet()


def owner() -> str:
    """Return the mark of this process: machine (and container), process id, and when the process started."""
    return f"{_machine()}-{os.getpid()}-{_started(os.getpid()) or 0}"


def new_file(folder: Path) -> Path:
    """Create an empty temporary file in `folder`, readable by its owner alone, after removing leftovers there.

    Raises OSError.
    """
    sweep_once(folder)
    while True:
        path = folder / f"{FILE}{owner()}-{os.urandom(4).hex()}"
        with contextlib.suppress(FileExistsError):
            os.close(
                os.open(
                    path,
                    os.O_CREAT | os.O_EXCL | os.O_RDWR | getattr(os, "O_BINARY", 0),
                    0o600,
                )
            )
            return path


class TemporaryFolder(tempfile.TemporaryDirectory[str]):
    """A temporary folder, removed at its end or, if this process is killed, by the next one that makes such a folder.

    Raises OSError.
    """

    def __init__(self) -> None:
        sweep_aside(Path(tempfile.gettempdir()))
        super().__init__(prefix=f"{FOLDER}{owner()}-", ignore_cleanup_errors=True)
        if not _folders:  # tempfile would warn when it removes it, and code of the user may make warnings errors
            atexit.register(remove_own)
        _folders.add(self)


def remove_own() -> None:
    """Remove the temporary folders of this process, which is about to end without the interpreter's shutdown."""
    for folder in list(_folders):
        folder.cleanup()


def sweep_once(folder: Path) -> None:
    """Remove leftovers in `folder`, once per process."""
    if folder not in _swept:
        _swept.add(folder)
        sweep(folder)


def sweep_aside(folder: Path) -> None:
    """Remove leftovers in `folder` on a background thread, once per process."""
    if folder not in _swept:
        _swept.add(folder)
        threading.Thread(
            target=sweep, args=(folder,), name="leftovers", daemon=True
        ).start()


def sweep(folder: Path) -> int:
    """Remove temporary files and folders of dead processes from `folder`; return their number. Never raises."""
    count = 0
    with contextlib.suppress(OSError):
        for path in _leftovers(folder):
            with contextlib.suppress(OSError):
                if stat.S_ISDIR(path.lstat().st_mode):
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink()
                count += 1
    return count


def _leftovers(folder: Path) -> Iterator[Path]:
    with os.scandir(folder) as entries:
        names = [
            entry.name for entry in entries if entry.name.startswith((FILE, FOLDER))
        ]
    for name in names:
        path = folder / name
        if match := _NAME.fullmatch(name):
            machine, process, started = match.groups()
            if (
                machine == _machine()
                and _is_dead(int(process), int(started))
                and _is_ours(path)
            ):
                yield path
        elif (
            _NAMELESS.fullmatch(name)
            and time.time() - path.lstat().st_mtime > _OLD
            and _is_ours(path)
        ):
            yield path


def _is_ours(path: Path) -> bool:
    """Return whether it is a file or folder (no link) of this user: others write to the temporary folder, too."""
    status = path.lstat()
    return status.st_uid == getattr(
        os, "getuid", lambda: status.st_uid
    )() and not stat.S_ISLNK(status.st_mode)


def _is_dead(process: int, started: int) -> bool:
    """Return whether the process of that id and start time has ended; its id may have been reused."""
    if not _is_alive(process):
        return True
    now = _started(process)
    return bool(started) and now is not None and now != started


def _is_alive(process: int) -> bool:
    if sys.platform == "win32":
        access_rights = 0x1000  # PROCESS_QUERY_LIMITED_INFORMATION
        handle = ctypes.windll.kernel32.OpenProcess(access_rights, False, process)
        if not handle:
            return bool(
                ctypes.windll.kernel32.GetLastError() == 5
            )  # ERROR_ACCESS_DENIED: another user's process
        code = ctypes.c_ulong()
        ctypes.windll.kernel32.GetExitCodeProcess(handle, ctypes.byref(code))
        ctypes.windll.kernel32.CloseHandle(handle)
        return code.value == 259  # STILL_ACTIVE
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


def _started(process: int) -> int | None:
    """Return when a process started, in ticks since boot; None if unknown."""
    try:
        return int(
            Path(f"/proc/{process}/stat")
            .read_text("utf-8", "replace")
            .rpartition(")")[2]
            .split()[19]
        )
    except (OSError, ValueError, IndexError):
        return None


@cache
def _machine() -> str:
    """Return a hash of this machine and container, to distinguish others that write to the same folder."""
    name = socket.gethostname()
    with contextlib.suppress(OSError):
        name += os.readlink("/proc/self/ns/pid")
    return hashlib.sha256(name.encode()).hexdigest()[:8]
