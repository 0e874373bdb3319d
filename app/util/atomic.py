"""Files that are whole or absent, whatever happens while they are written."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

from app.util import leftovers

_CODE = re.compile(r"\(os error (\d+)\)")  # safetensors' form of a system error
_TORCH = re.compile(r"inline_container|PytorchStreamWriter")


def write(
    path: str | Path, fill: Callable[[Path], object], *, sync: bool = True
) -> None:
    """Write a file atomically: `fill` writes a temporary file in its folder, which is synced and then replaces `path`.

    Without `sync` it does not wait for the disk: after a power failure the file may be missing or empty.

    A link stays a link, a file keeps its permissions, and special files (a pipe, /dev/stdout) are written to. Raises
    OSError naming `path`, even if the writer of torch or safetensors failed; `path` stays unchanged. Other errors of
    `fill` propagate.
    """
    path = Path(path)
    temporary: Path | None = None
    try:
        mode = _mode(path)
        beside = stat.S_ISREG(mode)
        path = Path(os.path.realpath(path)) if beside else path
        temporary = leftovers.new_file(
            path.parent if beside else Path(tempfile.gettempdir())
        )
        fill(temporary)
        if not beside:
            with temporary.open("rb") as source, path.open("wb", buffering=0) as target:
                shutil.copyfileobj(source, target)
            return
        temporary.chmod(stat.S_IMODE(mode))
        if sync:
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())
        os.replace(temporary, path)
        if sync:
            _sync_folder(path.parent)
    except Exception as error:
        reason = _reason(error, temporary)
        if reason is None:
            raise
        raise OSError(
            reason.errno, reason.strerror or str(reason), str(path)
        ) from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def write_bytes(path: str | Path, data: bytes, *, sync: bool = True) -> None:
    """Write bytes whole or not at all. Raises OSError."""
    write(path, lambda file: file.write_bytes(data), sync=sync)


def write_text(path: str | Path, text: str) -> None:
    """Write a text (UTF-8, lines that end in \\n) whole or not at all. Raises OSError."""
    write_bytes(path, text.encode())


def failure_text(error: OSError) -> str:
    """Describe which file could not be written, and why."""
    return (
        f"{error.filename or 'The file'} cannot be written: {error.strerror or error}."
    )


def _mode(path: Path) -> int:
    """Return the type and permissions of `path`; of a missing one those of a new file."""
    try:
        return path.stat().st_mode
    except FileNotFoundError:  # or a link to nowhere
        return stat.S_IFREG | (0o666 & ~_umask())


def _reason(error: Exception, temporary: Path | None) -> OSError | None:
    """Return the system error behind a writer's error; None if it is not about writing `temporary`."""
    text = str(error)
    if isinstance(error, OSError):
        ours = (
            temporary is None
            or error.filename is None
            or str(temporary) in (error.filename, error.filename2)
        )
        return error if ours else None
    if type(error).__name__ == "SafetensorError":
        code = _CODE.search(text)
        return (
            OSError(int(code[1]), os.strerror(int(code[1]))) if code else OSError(text)
        )
    if (
        temporary is None
        or not isinstance(error, RuntimeError)
        or not _TORCH.search(text)
    ):
        return None
    try:  # torch's writer hides the reason; another write reveals it
        with temporary.open("ab", buffering=0) as file:
            file.write(bytes(1 << 16))
            os.fsync(file.fileno())
    except OSError as write_error:
        return write_error
    return OSError(text.splitlines()[0])


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _sync_folder(folder: Path) -> None:
    """Sync the folder so that the rename survives a power failure, where the system supports it."""
    if os.name != "posix":
        return
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
