"""Adaptive throttle: keeps telemetry below a fraction of run time."""

from __future__ import annotations

from time import perf_counter
from typing import Any

from tapedeck import devices


class Meter:
    """Measures the cost of one kind of telemetry, `with meter:` around each part, and decides when it is due again.

    After `rest()` the next is due `every` seconds later, or when the cost of the last one is at most `share` of the
    time: expensive measurements become rarer. `seconds` is the total cost. On an accelerator device time is added to
    host time, once its events have completed; without synchronising, so the sum is an upper bound.
    """

    def __init__(self, device: str, every: float, share: float) -> None:
        self._every, self._share, self._device = every, share, device
        self._pending: list[tuple[Any, Any]] = []
        self._began = self._cost = 0.0
        self._first: Any = None
        self.due = 0.0
        self.seconds = 0.0

    def __enter__(self) -> Meter:
        self._began = perf_counter()
        self._first = devices.event(self._device)
        return self

    def __exit__(self, *_exception: object) -> None:
        if self._first is not None:
            self._pending.append((self._first, devices.event(self._device)))
        spent = perf_counter() - self._began
        self._cost += spent
        self.seconds += spent

    def schedule_next(self) -> None:
        """Finish a measurement and schedule the next one."""
        self.due = perf_counter() + max(self._every, self._cost / self._share)
        self._cost = 0.0

    def settle(self) -> None:
        """Add the device time of the recorded events."""
        while self._pending and self._pending[0][1].query():
            first, last = self._pending.pop(0)
            spent = first.elapsed_time(last) / 1000
            self.seconds += spent
            self.due += spent / self._share
