"""The execution target of a run."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct


class RunPlacement(Struct, frozen=True):
    """`processes` is 1 for a single separate process, more to split each batch between as many of this machine.

    `launch_blocking` sets CUDA_LAUNCH_BLOCKING=1: kernels run synchronously, so an error of CUDA points at the line
    that caused it, at the cost of speed. A `watched` run executes elsewhere and writes its lines to that file; Stop
    ends one that is `owned`, since it was started from here.
    """

    processes: int = 1
    launch_blocking: bool = False
    watched: Path | None = None
    owned: bool = False


OWN_PROCESS = RunPlacement()
