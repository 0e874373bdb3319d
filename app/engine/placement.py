"""Where a run is carried out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Place:
    """`processes` is 1 for a process of its own, and more for as many on this machine.

    `launch_blocking` sets CUDA_LAUNCH_BLOCKING=1: every kernel is waited for, so an error of
    CUDA shows at the line that caused it, and everything is slower. A run that is `watched` is somewhere else, and its
    lines go into that file.
    """

    processes: int = 1
    launch_blocking: bool = False
    watched: Path | None = None


OWN_PROCESS = Place()
