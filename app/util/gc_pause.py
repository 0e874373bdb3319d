"""Pauses of Python's automatic cyclic garbage collector: while many long-lived objects are made, or in a window."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

MODULES = 20  # that are imported without being frozen

_frozen_modules = 0
_lock = threading.Lock()
_pauses = 0
_was_enabled = True


def begin() -> None:
    """Disable automatic collection in all threads until `end` was called equally often."""
    global _pauses, _was_enabled
    with _lock:
        if not _pauses:
            _was_enabled = gc.isenabled()
            gc.disable()
        _pauses += 1


def end() -> None:
    """Undo one `begin`; a collector that was disabled before the first one stays disabled."""
    global _pauses
    with _lock:
        _pauses -= 1
        if not _pauses and _was_enabled:
            gc.enable()


@contextmanager
def put_off() -> Iterator[None]:
    """Disable automatic collection until the last user, in any thread, is done."""
    begin()
    try:
        yield
    finally:
        end()


def freeze_new_modules() -> None:
    """Exclude all objects there are from collection, if modules were imported: they live as long as the process."""
    global _frozen_modules
    if len(sys.modules) > _frozen_modules + MODULES:
        _frozen_modules = len(sys.modules)
        gc.freeze()


def collect_due() -> None:
    """Collect on this thread what is due by Python's own thresholds, in place of its automatic collection."""
    freeze_new_modules()
    counts = zip(gc.get_count(), gc.get_threshold(), strict=True)
    due = [generation for generation, (new, limit) in enumerate(counts) if new > limit]
    if due:
        gc.collect(due[-1])
