"""Histogram of a tensor's values."""

from __future__ import annotations

import math

from msgspec import Struct

BINS = 32


class Histogram(Struct, frozen=True):
    """Counts of a layer's values in `BINS` equal bins from `low` to `high`; non-finite ones are left out.

    `mean` and `std` are of the counted values, `zeros` and `not_finite` how many are exactly 0 and how many were left
    out, and `size` the elements of the tensor, of which the values may be a sample; NaN and 0 where not recorded.
    """

    layer: str
    low: float
    high: float
    counts: tuple[int, ...]
    mean: float = math.nan
    std: float = math.nan
    zeros: int = 0
    not_finite: int = 0
    size: int = 0

    @property
    def recorded(self) -> bool:
        """Return whether the figures beside the counts are known: runs of earlier versions have none."""
        return self.size > 0

    @property
    def sampled(self) -> bool:
        """Return whether the values are a sample of the tensor's."""
        return self.size > sum(self.counts) + self.not_finite

    @property
    def norm(self) -> float:
        """Return the 2-norm of the tensor; of a sample an estimate."""
        sampled_count = sum(self.counts) + self.not_finite
        finite = self.size * sum(self.counts) / sampled_count if sampled_count else 0.0
        return math.sqrt((self.mean**2 + self.std**2) * finite) if finite else math.nan

    @property
    def largest(self) -> float:
        """Return the largest magnitude of the counted values."""
        return max(abs(self.low), abs(self.high)) if any(self.counts) else math.nan
