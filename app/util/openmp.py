"""The OpenMP thread team of a thread that computed with torch.

Every thread that runs a large torch operation gets a team of OpenMP threads that waits for its next one. GNU's libgomp
lets waiting threads spin only while there are no more of them than processors; with a second team in the process all of
them sleep instead, and on two cores a run of small steps was a third as fast while another, idle thread kept its team.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from functools import cache

_SOFT = 1  # omp_pause_soft: keeps settings such as the number of threads


def release_idle_threads() -> bool:
    """End the idle team of the calling thread; its next large operation creates another. Return whether that was
    possible.

    Only with libgomp, bundled with torch on Linux, and once torch is loaded; LLVM's OpenMP does not need it.
    """
    pause = pause_function() if "torch" in sys.modules and sys.platform == "linux" else None
    return pause is not None and pause(_SOFT) == 0


@cache
def pause_function() -> Callable[[int], int] | None:
    """Return `omp_pause_resource_all` of the libgomp that torch loaded. Looking for it takes a while, once."""
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        paths = {line.split(maxsplit=5)[-1].strip() for line in maps if "libgomp" in line and "/torch" in line}
    for path in sorted(paths):
        pause = getattr(ctypes.CDLL(path), "omp_pause_resource_all", None)
        if pause is not None:
            return pause
    return None
