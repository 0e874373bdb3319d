"""Histogram of a tensor's values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

BINS = 32


@dataclass(frozen=True)
class Histogram:
    """How many of a layer's values lie in each of `BINS` equal parts of `low` to `high`; what is not finite in none."""

    layer: str
    low: float
    high: float
    counts: tuple[int, ...]


def histogram(layer: str, values: Tensor) -> Histogram:
    """Return the histogram of the finite elements of `values`, any shape."""
    import torch

    values = values.detach().float().cpu().flatten()
    values = values[values.isfinite()]
    if not len(values):
        return Histogram(layer, 0.0, 0.0, (0,) * BINS)
    low, high = (float(end) for end in values.aminmax())
    if not high > low:
        return Histogram(layer, low, high, (0,) * (BINS // 2) + (len(values),) + (0,) * (BINS - BINS // 2 - 1))
    counts = torch.histc(values, BINS, low, high)
    return Histogram(layer, low, high, tuple(int(count) for count in counts.tolist()))
