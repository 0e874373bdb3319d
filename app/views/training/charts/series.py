"""Curves as arrays: their x axis, incremental smoothing, and decimation to the resolution of the screen. Qt-free."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from app.training.history import History
from app.util import formatting

Floats = NDArray[np.float64]
Mode = Literal["step", "epoch", "time"]
Mark = Literal["line", "dots", "square", "dash"]

BLOCK = 128


class TimeScale:
    """Reads a history's x values in one of three modes."""

    def __init__(self, history: History, mode: Mode = "step") -> None:
        self.history = history
        self.mode: Mode = mode

    @property
    def _per_epoch(self) -> int:
        return (
            self.history.started.steps_per_epoch or 1 if self.history.started else 1
        )  # 0 of a script

    def of_steps(self) -> Floats:
        """Return the x of every step taken, ascending."""
        if self.mode == "time":
            return self.history.steps["seconds"]
        steps = self.history.steps["step"]
        return steps / self._per_epoch if self.mode == "epoch" else steps

    def x_of(self, after: Floats, seconds: Floats | None = None) -> Floats:
        """Return the x of events after the given steps; `seconds` are their own times, if known."""
        if self.mode == "epoch":
            return after / self._per_epoch
        if self.mode == "step":
            return after
        if seconds is not None:
            return seconds
        steps = self.history.steps
        if not len(steps):
            return np.zeros(len(after))
        indices = np.searchsorted(steps["step"], after)
        return steps["seconds"][np.minimum(indices, len(steps) - 1)]

    def end(self) -> float:
        """Return the x of the newest step; 0 before the first."""
        steps = self.history.steps
        if not len(steps):
            return 0.0
        newest = float(steps["seconds" if self.mode == "time" else "step"][-1])
        return newest / self._per_epoch if self.mode == "epoch" else newest

    def nearest(self, x: float) -> int | None:
        """Return the index of the step nearest to `x`; None before the first step."""
        positions = self.of_steps()
        if not len(positions):
            return None
        right = min(int(np.searchsorted(positions, x)), len(positions) - 1)
        left = max(right - 1, 0)
        return left if x - positions[left] < positions[right] - x else right

    def step_at(self, x: float) -> float:
        """Return the last step up to an x; 0 before the first, NaN behind the end of the run."""
        if x > self.end():
            return math.nan
        taken = int(np.searchsorted(self.of_steps(), x, "right"))
        return float(self.history.steps["step"][taken - 1]) if taken else 0.0


class Series(Struct, frozen=True, eq=False):
    """One curve of a chart: values measured after steps of a run, how they are drawn, and how they are written.

    `seconds` are the times of the values, where they are not those of their steps. Series -1 of the colours is that of
    text. The area below is filled with the opacity `fill`; `mean` values have no peaks to keep; `drawn` is False for
    one that is only written. Its value at the cursor is in the legend and the readout where it is `listed`, and has a
    dot where it is `pointed`. NaN is no value, unless `finite` is False. One `at_right` is read on an axis of its own.
    """

    label: str
    scale: TimeScale
    steps: Floats
    values: Floats
    seconds: Floats | None = None
    color: int = 0
    text: Callable[[float], str] = formatting.figure
    short: str = ""
    mark: Mark = "line"
    width: float = 1.5
    opacity: float = 1.0
    dashed: bool = False
    dots: bool = False
    antialiased: bool = True
    fill: float = 0.0
    mean: bool = False
    drawn: bool = True
    listed: Literal["everywhere", "readout", ""] = "everywhere"
    pointed: bool = False
    finite: bool = True
    at_right: bool = False

    @property
    def x(self) -> Floats:
        """The place of each value on the x axis."""
        return self.scale.x_of(self.steps, self.seconds)

    def value_at(self, x: float | None) -> float | None:
        """Return the value measured at an x or last before it; the newest for None, None where there is none."""
        values = self.values
        if x is not None:
            step = self.scale.step_at(x)
            values = values[: int(np.searchsorted(self.steps, step, "right"))]
            if step != step:
                return None
        if not len(values) or not self.finite or values[-1] == values[-1]:
            return float(values[-1]) if len(values) else None
        finite = np.flatnonzero(np.isfinite(values))
        return float(values[finite[-1]]) if len(finite) else None


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
