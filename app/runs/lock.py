"""Who writes a folder: a lock that ends with its process, however that ends."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path


class Busy(RuntimeError):
    """Somebody else holds the lock."""


class Lock:
    """Held from its making to `release`. Raises Busy, or OSError if the file cannot be made."""

    def __init__(self, path: Path) -> None:
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            _take(self._handle)
        except OSError as error:
            os.close(self._handle)
            raise Busy(f"{path} is held by a process that goes on") from error

    def release(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


def is_held(path: Path) -> bool:
    """Whether somebody holds the lock, this process included."""
    if not path.exists():
        return False
    with contextlib.suppress(OSError):
        try:
            Lock(path).release()
        except Busy:
            return True
    return False


def _take(handle: int) -> None:
    if sys.platform == "win32":
        import msvcrt

        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
