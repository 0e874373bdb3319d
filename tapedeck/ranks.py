"""Ranks of a script: their job, and how long one may be paused while the others wait for it.

Imports torch.distributed only where the script has.
"""

from __future__ import annotations

import math
import os
import sys
from typing import Any

SHARE = 0.5  # of a process group's timeout that a rank may be held


def rank() -> int:
    """Return the rank that the launcher gave this process, 0 without one."""
    return _number("RANK", 0)


def job() -> tuple[int, str]:
    """Return the number of ranks of this process's job, and a name that all of them have for it; 1 and "" if alone."""
    world = _number("WORLD_SIZE", 1)
    if world < 2:
        return 1, ""
    names = (
        "TORCHELASTIC_RUN_ID",
        "MASTER_ADDR",
        "MASTER_PORT",
        "TORCHELASTIC_RESTART_COUNT",
        "SLURM_JOB_ID",
    )
    launched = (os.environ.get(name) or "-" for name in names)
    return world, " ".join((*launched, str(os.getppid())))


def _number(name: str, default: int) -> int:
    text = os.environ.get(name, "")
    return int(text) if text.isdecimal() else default


def _distributed() -> Any:
    """Return torch.distributed if it runs on several ranks, else None."""
    distributed: Any = sys.modules.get("torch.distributed")
    if (
        distributed is None
        or not distributed.is_available()
        or not distributed.is_initialized()
        or distributed.get_world_size() < 2
    ):
        return None
    return distributed


def timeout() -> float:
    """Return the seconds after which a collective of the default process group fails; infinite without ranks."""
    distributed = _distributed()
    if distributed is None:
        return math.inf
    group = distributed.distributed_c10d._get_default_group()
    timeouts = []
    for device in getattr(group, "_device_types", ()):
        try:
            timeouts.append(group._get_backend(device).options._timeout.total_seconds())
        except (RuntimeError, AttributeError):
            continue  # a backend without options, as of MPI
    return min(timeouts, default=distributed.default_pg_timeout.total_seconds())


def patience() -> float:
    """Return how many seconds this rank may be paused without failing collectives of the others; infinite if alone."""
    return SHARE * timeout()


def notes(averaged: bool) -> list[str]:
    """Describe what in a captured step is of this rank only, and how long it may be paused; empty without ranks.

    `averaged` says that DistributedDataParallel averages the gradients over the ranks.
    """
    distributed = _distributed()
    if distributed is None:
        return []
    this_rank, count = distributed.get_rank(), distributed.get_world_size()
    remarks = [
        f"gradients are those of rank {this_rank} only, and the other ranks wait"
    ]
    if averaged:
        remarks[0] = (
            f"gradients are those of rank {this_rank} only: `.grad` will hold their mean over the "
            f"{count} ranks, which wait"
        )
    limit = timeout()
    if math.isfinite(limit):
        remarks.append(
            f"the script continues by itself after {_duration(SHARE * limit)}, since the process group's timeout is "
            f"{_duration(limit)}"
        )
    return remarks


def went_on() -> str:
    """Describe why a paused rank has continued by itself."""
    limit = timeout()
    return (
        f"It continued by itself after {_duration(SHARE * limit)}: the other ranks' collectives fail after "
        f"{_duration(limit)}."
    )


def _duration(seconds: float) -> str:
    """Return a time as text.

    >>> _duration(900.0), _duration(45.0), _duration(0.5)
    ('15 min', '45 s', '0.5 s')
    """
    return (
        f"{seconds / 60:g} min"
        if seconds >= 120 and not seconds % 6
        else f"{seconds:.3g} s"
    )
