"""The ranks of a watched script, each with its own folder of frames."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from tapedeck.frames import FRAMES

LONGEST = 1 << 16  # bytes of a first line


def first_frame(path: Path) -> Mapping[str, Any]:
    """Return the fields of the first line of frames; none of a file that cannot be read or has no whole line yet."""
    with suppress(OSError, msgspec.DecodeError), path.open("rb") as file:
        line = file.readline(LONGEST)
        if line.endswith(b"\n"):
            return msgspec.json.decode(line, type=dict[str, Any])
    return {}


def ranks_of(path: Path, script: Mapping[str, Any]) -> dict[int, Path]:
    """Return the frames of all ranks that are known by now, by rank; `script` is the first frame of `path`.

    Empty for a script that has one process.
    """
    job = script.get("job")
    if not job:
        return {}
    above = path.parent.parent
    found = {}
    for file in (*sorted(above.glob(f"*/{FRAMES}")), above / FRAMES, *path.parent.glob(f"*/{FRAMES}"), path):
        frame = first_frame(file)
        if frame.get("job") == job and isinstance(rank := frame.get("rank"), int):
            found[rank] = file
    return dict(sorted(found.items()))
