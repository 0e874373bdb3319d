"""Rate limit for progress reports."""

from __future__ import annotations

from time import monotonic

OFTEN = 0.1  # seconds between two words


class Pace:
    """`due()` is true at first, and then once in OFTEN seconds."""

    def __init__(self) -> None:
        self._said = -OFTEN

    def due(self) -> bool:
        now = monotonic()
        if now - self._said < OFTEN:
            return False
        self._said = now
        return True
