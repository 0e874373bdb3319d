"""Count how the values of a tensor are spread."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.telemetry.histogram import BINS, Histogram

if TYPE_CHECKING:
    from torch import Tensor


def histogram(layer: str, values: Tensor, size: int = 0) -> Histogram:
    """Return the histogram of the finite elements of `values`, any shape, a sample of `size` ones if that is given."""
    import torch

    values = values.detach().float().cpu().flatten()
    size, given = size or len(values), len(values)
    values = values[values.isfinite()]
    left_out = given - len(values)
    if not len(values):
        return Histogram(layer, 0.0, 0.0, (0,) * BINS, not_finite=left_out, size=size)
    low, high = (float(end) for end in values.aminmax())
    std, mean = (float(value) for value in torch.std_mean(values.double(), correction=0))
    figures = mean, std, len(values) - int(values.count_nonzero()), left_out, size
    if not high > low:
        alone = (0,) * (BINS // 2) + (len(values),) + (0,) * (BINS - BINS // 2 - 1)
        return Histogram(layer, low, high, alone, *figures)
    counts = torch.histc(values, BINS, low, high)
    return Histogram(layer, low, high, tuple(int(count) for count in counts.tolist()), *figures)
