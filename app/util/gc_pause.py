"""Pauses of Python's cyclic garbage collector while many long-lived objects are created.

It scans all objects repeatedly as their number grows, which can take as long as the work itself.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

OFTEN = 10  # generation-1 collections after which Python makes a full one
_NEVER = 2**31 - 1

_lock = threading.Lock()
_waiting = 0


@contextmanager
def put_off() -> Iterator[None]:
    """Disable collection until the last user, in any thread, is done; a disabled collector stays disabled."""
    global _waiting
    with _lock:
        if _waiting or gc.isenabled():
            _waiting += 1
            gc.disable()
            ours = True
        else:
            ours = False
    try:
        yield
    finally:
        if ours:
            with _lock:
                _waiting -= 1
                if not _waiting:
                    gc.enable()


def leave_to_us(ours: bool) -> None:
    """Reserve full collections for explicit `gc.collect`, or, if not `ours`, return them to Python."""
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, _NEVER if ours else OFTEN)


def overdue() -> float:
    """Return how many full collections are due since the last one."""
    return gc.get_count()[2] / OFTEN
