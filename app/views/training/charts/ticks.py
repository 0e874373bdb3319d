"""Positions and labels of the ticks of an axis, and the range that it shows. Qt-free."""

from __future__ import annotations

import math

import numpy as np

from app.util.formatting import MINUS, duration, scientific, steady
from app.util.language import grouped

UNITS = (1e9, "G"), (1e6, "M"), (1e3, "k")


def tick(value: float, spacing: float, largest: float) -> str:
    """Format a label of an axis with ticks `spacing` apart up to `largest`, in thousands or millions where shorter.

    >>> [tick(v, 500, 1500) for v in (0, 500, 1000, 1500)], tick(500, 100, 600), tick(0.25, 0.05, 1)
    (['0', '0.5k', '1k', '1.5k'], '500', '0.25')
    >>> tick(2_500_000, 500_000, 3e6), tick(1250, 50, 1300), tick(-20, 10, 30)
    ('2.5M', '1,250', '−20')
    >>> tick(-2.8e-17, 0.1, 0.3), tick(900, 99.99999999999999, 999.9999999999999)
    ('0', '0.9k')
    """
    spacing, largest = steady(spacing), steady(largest)
    if abs(value) < 1e-6 * spacing:  # ticks are multiples of their spacing, computed
        return "0"
    scale, suffix = next(
        (u for u in UNITS if largest >= u[0] and spacing >= u[0] / 10), (1.0, "")
    )
    shown, step = steady(value / scale), spacing / scale
    if step < 1e-4:
        return scientific(value, 2)
    decimals = max(0, math.ceil(-math.log10(step) - 1e-9))
    text = grouped(f"{shown:,.{decimals}f}")
    if "." in text and suffix:
        text = text.rstrip("0").rstrip(".")
    return (text + suffix).replace("-", MINUS)


def log_tick(exponent: float) -> str:
    """Format the label of `10 ** exponent`.

    >>> [log_tick(e) for e in (-5, -4, -2, 0, 1, 4, 6)], [log_tick(math.log10(one)) for one in (0.03, 0.15, 1.5, 150)]
    (['1e−5', '1e−4', '0.01', '1', '10', '10k', '1M'], ['0.03', '0.15', '1.5', '150'])
    >>> [log_tick(math.log10(one)) for one in (0.214, 0.216, 1.5e-5)]
    ['0.214', '0.216', '1.5e−5']
    >>> log_tick(10), log_tick(12)
    ('10G', '1e12')
    >>> log_tick(2.9999999999999996), log_tick(-3.3010299956639813), log_tick(-3.3010299956639808)
    ('1k', '0.0005', '0.0005')
    """
    value = steady(10**exponent)
    if value < 5e-4 or value >= 1e12:
        return scientific(value, 5)
    scale, suffix = next((u for u in UNITS if value >= u[0]), (1.0, ""))
    return f"{value / scale:.6g}{suffix}"


def clock_tick(seconds: float, spacing: float) -> str:
    """
    >>> clock_tick(20, 10), clock_tick(0.5, 0.5), clock_tick(90, 30), clock_tick(7200, 3600), clock_tick(0, 10)
    ('20 s', '0.5 s', '1:30', '2:00:00', '0')
    """
    if seconds == 0:
        return "0"
    if spacing >= 30 or abs(seconds) >= 120:
        return duration(seconds)
    return f"{tick(seconds, spacing, abs(seconds))} s"


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


def labels(low: float, high: float, most: int) -> list[tuple[float, str]]:
    """Return round values between two, at most about `most`, with their labels.

    >>> labels(-0.5, 1.0, 3)
    [(-0.5, '−0.5'), (0.0, '0'), (0.5, '0.5'), (1.0, '1.0')]
    """
    step, largest = nice_step(high - low, most), max(abs(low), abs(high))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    values = [number * step for number in range(first, last + 1)]
    return [(value, tick(value, step, largest)) for value in values]


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
