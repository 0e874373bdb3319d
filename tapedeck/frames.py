"""The frames of a watched script: JSON lines in an append-only file, in a folder that only its owner can open.

The lines are those of `train.py --json` with a few more kinds; a number that is not finite is null:

- "script": `argv`, `pid`, `rank`, and where commands go: the path of a Unix `socket`, or a `port` with a `secret` file;
  of several ranks also the size of their `world`, and the `job` that all of them name
- "started": as of a run, with `train_count` 0, since a script tells no number of samples
- "layers": the names of the rows of all later "norms"; "norms": L2 norms of gradients, one a layer
- "step": also `seconds` since the first step without pauses, and `rate` where it changed
- "rates": `groups` and `rates` of several parameter groups; "memory"; "looking": what watching has cost so far
- "said": a `message` for the person who watches
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import stat
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

FRAMES = "frames.jsonl"
MOST_KEPT = 30  # folders of scripts
FLUSH_EVERY = 0.05  # seconds
_LONG_LINES = 256  # lines that are written at once without waiting for that


def home() -> Path:
    """Return the parent folder of the watched scripts' folders; it need not exist."""
    if given := os.environ.get("TAPEDECK_WATCHED"):
        return Path(given)
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or str(Path.home() / "AppData" / "Local")
    else:
        base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(base) / "tapedeck" / "watched"


def new_folder(name: str) -> Path:
    """Create a folder of mode 0700 for a script, falling back to a temporary one; remove the oldest of many."""
    letters = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in name)[:40] or "script"
    title = f"{time.strftime('%Y%m%d-%H%M%S')}-{letters}-{os.getpid()}-"
    try:
        above = home()
        above.mkdir(parents=True, exist_ok=True, mode=0o700)
        _remove_oldest(above)
        return Path(tempfile.mkdtemp(prefix=title, dir=above))  # of mode 0700
    except OSError:
        return Path(tempfile.mkdtemp(prefix=f"tapedeck-{title}"))


def _remove_oldest(above: Path) -> None:
    folders = sorted(path for path in above.iterdir() if (path / FRAMES).is_file())
    for path in folders[: max(0, len(folders) - MOST_KEPT)]:
        with contextlib.suppress(OSError):
            if time.time() - (path / FRAMES).stat().st_mtime > 86_400:  # seconds; its script may still be there
                shutil.rmtree(path)


def newest() -> Path | None:
    """Return the frames of the script that was started last; None if there is none."""
    try:
        return max((path / FRAMES for path in home().iterdir() if (path / FRAMES).is_file()), default=None)
    except OSError:
        return None


def is_private(path: Path) -> bool:
    """Return whether a folder belongs to the caller, and no other user can open it."""
    found = os.lstat(path)
    if not hasattr(os, "geteuid"):
        return stat.S_ISDIR(found.st_mode)
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not stat.S_IMODE(found.st_mode) & 0o077


def number(value: float | None) -> str:
    """Return a float as JSON, at full precision; null if it is not finite."""
    return repr(value) if value is not None and math.isfinite(value) else "null"


class FrameFile:
    """Appends lines to a file, several at once; errors are ignored, so that the script continues."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lines: list[str] = []
        self._flushed = -math.inf
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0)
        self._file = os.open(path, flags, 0o600)

    def add(self, lines: list[str], now: float) -> None:
        """Append lines of JSON; they are written with the next ones after at most FLUSH_EVERY seconds of steps."""
        self._lines += lines
        if now - self._flushed >= FLUSH_EVERY or len(self._lines) >= _LONG_LINES:
            self._flushed = now
            self.flush()

    def tell(self, event: str, **fields: Any) -> None:
        """Append a rare frame, and write all there is."""
        self._lines.append(json.dumps({"event": event} | {name: _plain(value) for name, value in fields.items()}))
        self.flush()

    def flush(self) -> None:
        """Write the lines that wait."""
        if not self._lines or self._file < 0:
            self._lines.clear()
            return
        data = memoryview(("\n".join(self._lines) + "\n").encode("utf-8", "replace"))
        self._lines.clear()
        try:
            while data:
                data = data[os.write(self._file, data) :]
        except OSError:
            self.close()  # no room on the disk: half a line stays, and nothing is put behind it

    def close(self) -> None:
        """Close the file without flushing pending lines."""
        if self._file >= 0:
            with contextlib.suppress(OSError):
                os.close(self._file)
            self._file = -1


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value
