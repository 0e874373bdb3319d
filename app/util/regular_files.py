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


_NONBLOCK = (
    getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
)


def check(path: str | Path) -> int:
    """Return the size of a regular file in bytes.

    Raises OSError whose `strerror` is the reason: absent, a folder, a pipe, or an invalid name.
    """
    try:
        status = os.stat(path)
    except ValueError as error:  # a NUL byte in the name
        raise OSError(
            errno.EINVAL,
            "its name holds a NUL character, which no file can have",
            str(path),
        ) from error
    _check_regular(status, path)
    return status.st_size


def opened(path: Path) -> int:
    """Open a regular file that is no link for reading, without blocking; return its descriptor.

    Raises OSError, as `check` does; of a link it names the file.
    """
    check(path)
    if path.is_symlink():
        reason = f"it is a link to {path.resolve()}; open that file itself"
        raise OSError(errno.ELOOP, reason, str(path))
    descriptor = os.open(path, os.O_RDONLY | _NONBLOCK | getattr(os, "O_NOFOLLOW", 0))
    try:
        _check_regular(os.fstat(descriptor), path)  # it may have been replaced
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def read_private(path: Path, most: int) -> bytes:
    """Return the first `most` bytes of a file that only the caller may read or write, and that is no link.

    Raises OSError.
    """
    descriptor = opened(path)
    try:
        status = os.fstat(descriptor)
        if hasattr(os, "geteuid") and (
            status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077
        ):
            raise PermissionError(errno.EPERM, "others may read or write it", str(path))
        return os.read(descriptor, most)
    finally:
        os.close(descriptor)


def _check_regular(status: os.stat_result, path: str | Path) -> None:
    """Raise OSError with the reason where it is no regular file."""
    kind = stat.S_IFMT(status.st_mode)
    if kind == stat.S_IFREG:
        return
    number = errno.EISDIR if kind == stat.S_IFDIR else errno.EINVAL
    raise OSError(
        number, f"it is {_KINDS.get(kind, 'no regular file')}, not a file", str(path)
    )
