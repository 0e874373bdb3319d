"""The ranks of a watched script, each with its own folder of frames."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from app.engine.json_lines.frame_types import Script, first_frame
from app.util import regular_files
from tapedeck.frames import FRAMES

LONGEST = 1 << 20  # bytes of a first line


def script_of(path: Path) -> Script | None:
    """Return the first frame of the script whose own file of frames this is; None of any other file."""
    with suppress(OSError, ValueError):
        line, end, _ = regular_files.read_private(path, LONGEST).partition(b"\n")
        return first_frame(line) if end else None
    return None


def ranks_of(path: Path, script: Script) -> dict[int, Path]:
    """Return the frames of all ranks that are known by now, by rank; `script` is the first frame of `path`.

    Empty for a script that has one process.
    """
    if not script.job:
        return {}
    above = path.parent.parent
    ranks = {}
    for file in (
        *sorted(above.glob(f"*/{FRAMES}")),
        above / FRAMES,
        *path.parent.glob(f"*/{FRAMES}"),
        path,
    ):
        other = script_of(file)
        if other is not None and other.job == script.job:
            ranks[other.rank] = file
    return dict(sorted(ranks.items()))
