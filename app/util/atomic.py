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

_CODE = re.compile(r"\(os error (\d+)\)")  # how safetensors tells the system's error
_TORCH = re.compile(r"inline_container|PytorchStreamWriter")


def write(path: str | Path, fill: Callable[[Path], object]) -> None:
    """Let `fill` write a temporary file beside `path`, sync it, then put it in the place of `path`.

    A link stays a link, a file keeps its permissions, and what is no file (a pipe, /dev/stdout) is written to. Raises
    OSError, which names `path` also where it was the writer of torch or of safetensors that failed; `path` stays as it
    was. Other errors of `fill` come through.
    """
    path = Path(path)
    temporary: Path | None = None
    try:
        mode = _mode(path)
        beside = stat.S_ISREG(mode)
        path = Path(os.path.realpath(path)) if beside else path
        temporary = leftovers.new_file(path.parent if beside else Path(tempfile.gettempdir()))
        fill(temporary)
        if not beside:
            with temporary.open("rb") as whole, path.open("wb", buffering=0) as target:
                shutil.copyfileobj(whole, target)
            return
        temporary.chmod(stat.S_IMODE(mode))
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _sync_folder(path.parent)
    except Exception as error:
        reason = _reason(error, temporary)
        if reason is None:
            raise
        raise OSError(reason.errno, reason.strerror or str(reason), str(path)) from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def write_bytes(path: str | Path, data: bytes) -> None:
    """Write bytes whole or not at all. Raises OSError."""
    write(path, lambda file: file.write_bytes(data))


def write_text(path: str | Path, text: str) -> None:
    """Write a text (UTF-8, lines that end in \\n) whole or not at all. Raises OSError."""
    write_bytes(path, text.encode())


def words(error: OSError) -> str:
    """Say which file could not be written, and why."""
    return f"{error.filename or 'The file'} cannot be written: {error.strerror or error}."


def _mode(path: Path) -> int:
    """What `path` is, and its permissions; of one that is not there those of any file that the user makes."""
    try:
        return path.stat().st_mode
    except FileNotFoundError:  # or a link to nowhere
        return stat.S_IFREG | (0o666 & ~_umask())


def _reason(error: Exception, temporary: Path | None) -> OSError | None:
    """The error of the system behind what a writer said; None if it is no error of writing `temporary`."""
    text = str(error)
    if isinstance(error, OSError):
        ours = temporary is None or error.filename is None or str(temporary) in (error.filename, error.filename2)
        return error if ours else None
    if type(error).__name__ == "SafetensorError":
        code = _CODE.search(text)
        return OSError(int(code[1]), os.strerror(int(code[1]))) if code else OSError(text)
    if temporary is None or not isinstance(error, RuntimeError) or not _TORCH.search(text):
        return None
    try:  # torch's writer does not say why the disk took no more; the disk does
        with temporary.open("ab", buffering=0) as file:
            file.write(bytes(1 << 16))
            os.fsync(file.fileno())
    except OSError as found:
        return found
    return OSError(text.splitlines()[0])


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _sync_folder(folder: Path) -> None:
    """Make the rename last, where the system lets a folder be synced; the file is in its place all the same."""
    if os.name != "posix":
        return
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
