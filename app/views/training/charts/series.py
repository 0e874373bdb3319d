"""Curves as arrays: incremental smoothing, and decimation to the resolution of the screen. Qt-free."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

BLOCK = 128


class Smoother:
    """An exponential moving average that is extended as values come; every value costs once.

    `weight` is the share of the past, 0 (raw) up to less than 1. The average is divided by the sum of its weights, so
    that it starts at the first value instead of at zero; values that are not finite are left out of it. It lies between
    the least and the largest of them, as a mean does that is not rounded: a constant stays itself, bit by bit.
    """

    def __init__(self, weight: float) -> None:
        self.weight = weight
        self._values = np.empty(1024)
        self._count = 0
        self._top = 0.0
        self._bottom = 0.0
        self._least = math.inf
        self._largest = -math.inf

    def __len__(self) -> int:
        return self._count

    @property
    def values(self) -> Floats:
        """One value a raw value; a view that is valid until the next `extend`."""
        return self._values[: self._count]

    def extend(self, raw: Floats) -> None:
        """Take in the values that came after those already taken."""
        if not len(raw):
            return
        self._reserve(self._count + len(raw))
        finite = np.isfinite(raw)
        top = self._average(np.where(finite, raw, 0.0), self._top)
        bottom = self._average(finite.astype(float), self._bottom)
        self._top, self._bottom = float(top[-1]), float(bottom[-1])
        least = np.minimum(
            np.minimum.accumulate(np.where(finite, raw, math.inf)), self._least
        )
        largest = np.maximum(
            np.maximum.accumulate(np.where(finite, raw, -math.inf)), self._largest
        )
        self._least, self._largest = float(least[-1]), float(largest[-1])
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            mean = top / bottom
        self._values[self._count : self._count + len(raw)] = np.clip(
            mean, least, largest
        )
        self._count += len(raw)

    def _reserve(self, size: int) -> None:
        if size > len(self._values):
            grown = np.empty(max(size, 2 * len(self._values)))
            grown[: self._count] = self.values
            self._values = grown

    def _average(self, raw: Floats, before: float) -> Floats:
        """s[k] = w·s[k−1] + (1 − w)·raw[k], block by block: inside a block it is one matrix product."""
        weight, count = self.weight, len(raw)
        size = min(BLOCK, count)
        padded = np.zeros(math.ceil(count / size) * size)
        padded[:count] = raw
        powers = weight ** np.arange(size + 1)
        index = np.arange(size)
        distance = index[None, :] - index[:, None]
        kernel = np.where(distance >= 0, powers[np.maximum(distance, 0)], 0.0) * (
            1 - weight
        )
        blocks = padded.reshape(-1, size) @ kernel
        before_each, decay = [], float(powers[-1])
        for end in blocks[:, -1].tolist():
            before_each.append(before)
            before = end + before * decay
        blocks += np.outer(before_each, powers[1:])
        return blocks.reshape(-1)[:count]


def visible(x: Floats, low: float, high: float) -> slice:
    """Return the part of an ascending `x` from `low` to `high`, with one more point at each side to reach the edges."""
    first = int(np.searchsorted(x, low, "left"))
    last = int(np.searchsorted(x, high, "right"))
    return slice(max(0, first - 1), min(len(x), last + 1))


def thin_peaks(x: Floats, y: Floats, pixels: int) -> tuple[Floats, Floats]:
    """Decimate to about two points a pixel: minimum and maximum of each bucket, so that no peak is lost.

    Bucket sizes are powers of two, so that a growing curve does not flicker.
    """
    stride = _stride(len(x), pixels)
    if stride == 1:
        return x, y
    bucketed = len(x) // stride * stride
    groups = y[:bucketed].reshape(-1, stride)
    ends = np.empty((len(groups), 2))
    np.fmin.reduce(groups, axis=1, out=ends[:, 0])
    np.fmax.reduce(groups, axis=1, out=ends[:, 1])
    bucket_x = np.repeat(x[:bucketed:stride], 2)
    return np.concatenate([bucket_x, x[bucketed:]]), np.concatenate(
        [ends.reshape(-1), y[bucketed:]]
    )


def thin(x: Floats, y: Floats, pixels: int) -> tuple[Floats, Floats]:
    """Decimate a smooth curve to about one point a pixel, keeping the last one."""
    stride = _stride(len(x), pixels)
    if stride == 1:
        return x, y
    chosen = np.append(np.arange(0, len(x) - 1, stride), len(x) - 1)
    return x[chosen], y[chosen]


def _stride(count: int, pixels: int) -> int:
    stride = 1
    while count > 2 * max(pixels, 1) * stride:
        stride *= 2
    return stride


def nice_step(span: float, most: int) -> float:
    """Return the smallest of 1, 2, 5, 10, ... that splits `span` into at most `most` parts.

    >>> nice_step(2300, 5), nice_step(1, 4), nice_step(7, 10)
    (500.0, 0.5, 1.0)
    """
    if not span > 0:
        return 1.0
    rough = span / max(most, 1)
    decade = 10.0 ** math.floor(math.log10(rough))
    for factor in (1, 2, 5, 10):
        if factor * decade >= rough * (1 - 1e-9):
            return factor * decade
    return 10 * decade


CLOCK_STEPS = (
    1,
    2,
    5,
    10,
    15,
    30,
    60,
    120,
    300,
    600,
    900,
    1800,
    3600,
    7200,
    14400,
    21600,
    43200,
    86400,
)


def clock_step(span: float, most: int) -> float:
    """Like `nice_step` for seconds: from a second on, steps that a clock has."""
    rough = span / max(most, 1)
    if rough <= 1:
        return nice_step(span, most)
    return float(
        next(
            (step for step in CLOCK_STEPS if step >= rough),
            nice_step(span / 86400, most) * 86400,
        )
    )


def log_ticks(low: float, high: float, most: int) -> list[float]:
    """Return exponents to label between `low` and `high` (both log10), at least two.

    They are 1 and 3 per decade if they fit, else decades; within less than that, round values.

    >>> [round(10**e, 3) for e in log_ticks(-1.6, 0.5, 6)]
    [0.03, 0.1, 0.3, 1.0, 3.0]
    >>> log_ticks(-6, 0, 4), [round(10**e, 6) for e in log_ticks(math.log10(0.21), math.log10(0.29), 3)]
    ([-6.0, -4.0, -2.0, 0.0], [0.22, 0.28])
    >>> log_ticks(-1.85, 0.65, 3)
    [-1.0, 0.0]
    """
    ticks = _log_ticks(low, high, most)
    if len(ticks) < 2:
        ticks = _round_ticks(low, high, most)
    return ticks


def _round_ticks(low: float, high: float, most: int) -> list[float]:
    """Return the exponents of round values, evenly apart, at least two; [] where floats are too coarse."""
    start, end = 10.0**low, 10.0**high
    for count in (most - 1, most, 2 * most, 4 * most):
        step = nice_step(end - start, count)
        first, last = math.ceil(start / step - 1e-6), math.floor(end / step + 1e-6)
        values = [number * step for number in range(first, last + 1) if number > 0]
        if len(values) >= 2:
            labelled = values if len(values) <= most else [values[0], values[-1]]
            return [min(max(math.log10(value), low), high) for value in labelled]
    return []


def _log_ticks(low: float, high: float, most: int) -> list[float]:
    decades = np.arange(math.floor(low), math.ceil(high) + 1)
    for factors in ((1, 1.5, 2, 3, 4, 5, 7), (1, 2, 3, 5), (1, 3)):
        ticks = [float(d + math.log10(f)) for d in decades for f in factors]
        ticks = [t for t in ticks if low - 1e-9 <= t <= high + 1e-9]
        if len(ticks) <= most:
            return ticks
    stride = max(1, math.ceil((high - low) / max(most - 1, 1) - 1e-9))
    inside = [float(d) for d in decades if low - 1e-9 <= d <= high + 1e-9]
    apart = [d for d in inside if d % stride == 0]
    return apart if len(apart) > 1 else inside[:: max(1, len(inside) - 1)]


def grown(end: float, before: float) -> float:
    """Return the end of an axis that must reach `end`: it grows in strides, so that labels rarely change.

    >>> grown(100, 0), grown(100, 105), grown(106, 105)
    (108.0, 105, 114.48)
    """
    return before if end <= before <= 1.25 * end else 1.08 * end


def snapped(
    low: float, high: float, floor: float = -math.inf, ceiling: float = math.inf
) -> tuple[float, float]:
    """Return a range around `low` to `high` with round ends, so that it is stable while the values change a little.

    >>> snapped(0.03, 0.97), snapped(0.2, 0.2), snapped(91.2, 99.1, 0.0, 100.0)
    ((0.0, 1.0), (0.175, 0.225), (91.0, 100.0))
    """
    if not high > low:
        room = 0.1 * abs(low) or 0.5
        low, high = low - room, high + room
    step = nice_step(high - low, 12)
    bottom = step * math.floor(low / step - 0.2)
    top = step * math.ceil(high / step + 0.2)
    return max(round(bottom, 12), floor), min(round(top, 12), ceiling)
