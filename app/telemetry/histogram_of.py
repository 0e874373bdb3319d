"""Count how the values of a tensor are spread."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from app.telemetry.histogram import BINS, Histogram

if TYPE_CHECKING:
    from torch import Tensor


def histogram(layer: str, values: Tensor, size: int = 0) -> Histogram:
    """Return the histogram of the finite elements of `values`, any shape, a sample of `size` ones if that is given.

    Counts with NumPy: torch would share so few values among its threads, and a run's next step wait for all of them.
    """
    counted = values.detach().float().cpu().flatten().numpy()
    size, value_count = size or len(counted), len(counted)
    if not (finite := np.isfinite(counted)).all():
        counted = counted[finite]
    left_out = value_count - len(counted)
    if not len(counted):
        return Histogram(layer, 0.0, 0.0, (0,) * BINS, not_finite=left_out, size=size)
    low, high = float(counted.min()), float(counted.max())
    wide = counted.astype(np.float64)
    mean = float(wide.mean())
    std = float(np.sqrt(np.square(wide - mean).mean()))
    figures = mean, std, len(counted) - int(np.count_nonzero(counted)), left_out, size
    if not high > low:
        alone = (0,) * (BINS // 2) + (len(counted),) + (0,) * (BINS - BINS // 2 - 1)
        return Histogram(layer, low, high, alone, *figures)
    bins = np.minimum((wide - low) * (BINS / (high - low)), BINS - 1).astype(np.intp)
    return Histogram(
        layer, low, high, tuple(np.bincount(bins, minlength=BINS).tolist()), *figures
    )
