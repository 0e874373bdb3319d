"""Count how the values of a tensor are spread."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.telemetry.histogram import BINS, Histogram

if TYPE_CHECKING:
    from torch import Tensor


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
