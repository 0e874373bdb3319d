"""Begins at a place, sent there as text: unpacks the package `tapedeck` into a cache, once, and hands over to it."""

import sys

sys.path[:] = filter(None, sys.path)  # a json.py of the home folder is not Python's

import io  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
import shutil  # noqa: E402
import struct  # noqa: E402
import tempfile  # noqa: E402
import zipfile  # noqa: E402
from pathlib import Path  # noqa: E402


def begin(digest: str, length: int) -> None:
    """Unpack what stdin brings next, say so, and serve."""
    data = sys.stdin.buffer.read(length)
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(home, "tapedeck", f"code-{digest}")
    try:
        if not folder.is_dir():
            _unpack(data, folder)
    except OSError as error:
        reason = f"{error.filename or folder}: {error.strerror or error}"
        _tell(error=reason, errno=error.errno)
        return
    sys.path.insert(0, str(folder))
    from tapedeck import place

    _tell(ready=True)
    place.serve()


def _unpack(data: bytes, folder: Path) -> None:
    """Unpack whole or not at all, also where others do the same. Raises OSError."""
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = tempfile.mkdtemp(dir=folder.parent)
    try:
        zipfile.ZipFile(io.BytesIO(data)).extractall(fresh)
        os.rename(fresh, folder)
    except OSError:
        shutil.rmtree(fresh, ignore_errors=True)
        if not folder.is_dir():
            raise


def _tell(**fields: object) -> None:
    message = json.dumps(fields).encode()
    sys.stdout.buffer.write(struct.pack(">II", 0, len(message)) + message)
    sys.stdout.buffer.flush()
