"""Pauses of Python's automatic cyclic garbage collector: while many long-lived objects are made, or in a window.

It scans all objects repeatedly as their number grows, which can take as long as the work itself; and it runs on
whichever thread allocates, while Qt's objects may be destroyed on the window's alone.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter

FEW = 700  # new objects that are not worth a collection, and
MIDDLE = 10  # collections of the young generation before one of the middle generation: Python's own rule
MANY = 10_000  # new objects after which a full collection is due
LATEST = 50  # times that many: then it does not wait for a rest
SHORT = (
    0.008  # seconds of a full collection that are too short to notice, even during work
)
REST = 40  # times as long as the last full collection took: without work, before one that is not short
LONG_REST = 8.0  # seconds without work, after which a full collection is due for a few objects too
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


class Collector:
    """Collects on the thread that calls `look`, in place of Python's automatic collection."""

    def __init__(self, many: int = MANY) -> None:
        self._many = many
        self._made = 0  # objects that were new at a collection since the last full one
        self._took = 0.0  # seconds, by the last full one

    def collect_due(self, rests: Callable[[float], bool]) -> None:
        """Collect the generations that are due; `rests` returns whether the window was idle for some seconds."""
        freeze_new_modules()
        young, middle, _ = gc.get_count()
        if self._is_full_due(self._made + young, rests):
            begun = perf_counter()
            gc.collect()
            self._made, self._took = 0, perf_counter() - begun
        elif young > FEW:
            gc.collect(1 if middle >= MIDDLE else 0)
            self._made += young

    def _is_full_due(self, made: int, rests: Callable[[float], bool]) -> bool:
        if made > LATEST * self._many:
            return True
        if made > self._many:
            return self._took <= SHORT or rests(REST * self._took)
        return made > FEW and rests(LONG_REST)
