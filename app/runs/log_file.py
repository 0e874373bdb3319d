"""Read the log of a run: one event a line, as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def logged(path: Path, *kinds: str) -> list[dict[str, Any]]:
    """Return the lines of some kinds of events that name a step; one that is not whole, as after a crash, is ignored.

    Raises OSError.
    """
    if not path.is_file():
        return []
    quoted = tuple(f'"{kind}"' for kind in kinds)
    entries = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if any(kind in line for kind in quoted):
            try:
                fields = json.loads(line)
            except ValueError:
                continue
            if (
                isinstance(fields, dict)
                and fields.get("event") in kinds
                and isinstance(fields.get("step"), int)
            ):
                entries.append(fields)
    return entries
