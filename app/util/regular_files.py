"""Reject anything but regular files before opening: opening a named pipe blocks until a writer comes."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def check(path: str | Path) -> int:
    """Return the size of a regular file in bytes.

    Raises OSError whose `strerror` is the reason: absent, a folder, a pipe, or an invalid name.
    """
    try:
        found = os.stat(path)
    except ValueError as error:  # a NUL byte in the name
        raise OSError(errno.EINVAL, "its name holds a NUL character, which no file can have", str(path)) from error
    kind = stat.S_IFMT(found.st_mode)
    if kind == stat.S_IFREG:
        return found.st_size
    number = errno.EISDIR if kind == stat.S_IFDIR else errno.EINVAL
    raise OSError(number, f"it is {_KINDS.get(kind, 'no regular file')}, not a file", str(path))
