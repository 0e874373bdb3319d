"""Histogram of a tensor's values."""

from __future__ import annotations

from app.util.late_dataclass import dataclass

BINS = 32


@dataclass(frozen=True)
class Histogram:
    """Counts of a layer's values in `BINS` equal bins from `low` to `high`; non-finite ones are left out."""

    layer: str
    low: float
    high: float
    counts: tuple[int, ...]
