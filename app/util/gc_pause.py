"""Python's search for circles of garbage, put off while many objects are made at once that all stay.

It looks at every object there is, again and again while their number grows, and can take as long as the work itself.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

OFTEN = 10  # middle searches after which Python makes a full one by itself
_NEVER = 2**31 - 1

_lock = threading.Lock()
_waiting = 0


@contextmanager
def put_off() -> Iterator[None]:
    """No search until the last of those that put it off, in any thread, is done; one that was off stays off."""
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
    """Make full searches only when somebody calls `gc.collect`, or, if not `ours`, when Python wants to."""
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, _NEVER if ours else OFTEN)


def overdue() -> float:
    """How often Python would have begun a full search since the last one."""
    return gc.get_count()[2] / OFTEN
