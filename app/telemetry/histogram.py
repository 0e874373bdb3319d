"""Histogram of a tensor's values."""

from __future__ import annotations

from dataclasses import dataclass

BINS = 32


@dataclass(frozen=True)
class Histogram:
    """How many of a layer's values lie in each of `BINS` equal parts of `low` to `high`; what is not finite in none."""

    layer: str
    low: float
    high: float
    counts: tuple[int, ...]
