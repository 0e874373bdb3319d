"""One gradient inspected, as frozen plain data: numbers, histogram, pictures."""

from __future__ import annotations

from msgspec import Struct

from app.autograd.playback.steps import GradStats
from app.telemetry.histogram import Histogram


class Picture(Struct, frozen=True):
    """`height` rows of `width` bytes: 128 is 0, 1 and 255 are minus and plus the gradient's `absmax`, and 0 is NaN or
    infinite. Larger gradients are subsampled: `every` are the strides of rows and columns."""

    height: int
    width: int
    data: bytes
    every: tuple[int, int] = (1, 1)


class GradientLook(Struct, frozen=True):
    """`rows` are numbers as text from the start of the last two dimensions, at the index `where`.

    `histogram` is of the finite values; `nan`, `positive_inf` and `negative_inf` count the others. `pictures` are one
    for each channel of the sample at `at` (4 dimensions), or one (2 and 3 dimensions, and 1 as a single row). `leading`
    are the sizes of the dimensions that `at` chooses in.
    """

    stats: GradStats
    where: str
    rows: tuple[tuple[str, ...], ...]
    histogram: Histogram
    nan: int
    positive_inf: int
    negative_inf: int
    pictures: tuple[Picture, ...]
    at: tuple[int, ...] = ()
    leading: tuple[int, ...] = ()

    @property
    def edges(self) -> tuple[float, ...]:
        """The bounds of the histogram's bins, one more than there are bins."""
        low, high, bins = (
            self.histogram.low,
            self.histogram.high,
            len(self.histogram.counts),
        )
        return tuple(low + (high - low) * index / bins for index in range(bins + 1))
