"""The threads that OpenMP keeps ready for a thread that computed with torch.

Every thread that runs a large operation of torch gets a team of OpenMP threads that waits for its next one. GNU's
libgomp lets waiting threads spin for a moment only while there are no more of them than processors; with a second team
in the process all of them sleep instead, and on two cores a run of small steps was a third as fast for as long as
another thread, long done, kept its team.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from functools import cache

_SOFT = 1  # omp_pause_soft: what was set, such as the number of threads, stays


def let_go() -> bool:
    """End the idle team of the calling thread; its next large operation makes another. Tells whether it could.

    Only with libgomp, which torch brings on Linux, and only once torch is loaded; LLVM's OpenMP needs none of it.
    """
    pause = _pause() if "torch" in sys.modules and sys.platform == "linux" else None
    return pause is not None and pause(_SOFT) == 0


@cache
def _pause() -> Callable[[int], int] | None:
    """`omp_pause_resource_all` of the libgomp that torch loaded."""
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        paths = {line.split(maxsplit=5)[-1].strip() for line in maps if "libgomp" in line and "/torch" in line}
    for path in sorted(paths):
        pause = getattr(ctypes.CDLL(path), "omp_pause_resource_all", None)
        if pause is not None:
            return pause
    return None
