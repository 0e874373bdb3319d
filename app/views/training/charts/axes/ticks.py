"""Tick labels of an axis."""

from __future__ import annotations

import math

from app.util.formatting import MINUS, duration, scientific, steady


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
    units = ((1e9, "G"), (1e6, "M"), (1e3, "k"))
    scale, suffix = next(
        (u for u in units if largest >= u[0] and spacing >= u[0] / 10), (1.0, "")
    )
    shown, step = steady(value / scale), spacing / scale
    if step < 1e-4:
        return scientific(value, 2)
    decimals = max(0, math.ceil(-math.log10(step) - 1e-9))
    text = f"{shown:,.{decimals}f}"
    if "." in text and suffix:
        text = text.rstrip("0").rstrip(".")
    return (text + suffix).replace("-", MINUS)


def log_tick(exponent: float) -> str:
    """Format the label of `10 ** exponent`.

    >>> [log_tick(e) for e in (-5, -4, -2, 0, 1, 4, 6)], [log_tick(math.log10(one)) for one in (0.03, 0.15, 1.5, 150)]
    (['1e−5', '1e−4', '0.01', '1', '10', '10k', '1M'], ['0.03', '0.15', '1.5', '150'])
    >>> [log_tick(math.log10(one)) for one in (0.214, 0.216, 1.5e-5)]
    ['0.214', '0.216', '1.5e−5']
    >>> log_tick(2.9999999999999996), log_tick(-3.3010299956639813), log_tick(-3.3010299956639808)
    ('1k', '0.0005', '0.0005')
    """
    value = steady(10**exponent)
    if value < 5e-4:
        return scientific(value, 5)
    scale, suffix = (
        (1e6, "M") if value >= 1e6 else (1e3, "k") if value >= 1e3 else (1.0, "")
    )
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
