"""Numbers as a person reads them: a real minus sign, thousands apart, no more digits than were measured."""

from __future__ import annotations

import math

MINUS = "\u2212"
MEBIBYTE = 1024 * 1024


def figure(value: float | None, digits: int = 3) -> str:
    """A value with about `digits` significant digits.

    >>> figure(0.054123), figure(12480.4), figure(-0.00078), figure(0.0), figure(float("nan")), figure(None)
    ('0.0541', '12,480', '−7.8e−4', '0', 'nan', '–')
    """
    if value is None:
        return "–"
    if math.isnan(value):
        return "nan"
    if math.isinf(value):
        return "∞" if value > 0 else f"{MINUS}∞"
    size = abs(value)
    if size == 0:
        text = "0"
    elif size < 1e-3 or size >= 1e7:
        text = _scientific(value, digits - 1)
    elif size >= 10 ** (digits - 1):
        text = f"{value:,.0f}"
    else:
        text = f"{value:.{digits - 1 - math.floor(math.log10(size))}f}"
    return text.replace("-", MINUS)


def _scientific(value: float, decimals: int) -> str:
    mantissa, exponent = f"{value:.{decimals}e}".split("e")
    if "." in mantissa:
        mantissa = mantissa.rstrip("0").rstrip(".")
    return f"{mantissa}e{int(exponent)}"


def count(value: int) -> str:
    """
    >>> count(1640)
    '1,640'
    """
    return f"{value:,}".replace("-", MINUS)


def percent(share: float | None) -> str:
    """A share of 0 to 1 in percent with two decimals, without the sign. Only nothing is 0.00, and only all is 100.00.

    >>> percent(0.98623), percent(None), percent(1e-6), percent(0.99999), percent(1.0)
    ('98.62', '–', '< 0.01', '> 99.99', '100.00')
    """
    if share is None:
        return "–"
    if 0 < share < 0.0001:
        return "< 0.01"
    return "> 99.99" if 0.9999 < share < 1 else f"{100 * share:.2f}"


def looking(spent: float, seconds: float, steps: int) -> str:
    """What measuring costs a run.

    >>> looking(0.02, 1.0, 1000)
    'Measuring takes 0.020 ms a step, 2.00 % of the time.'
    """
    a_step = 1000 * spent / max(steps, 1)
    return f"Measuring takes {a_step:.3f} ms a step, {percent(spent / max(seconds, 1e-9))} % of the time."


def mebibytes(size: float | None) -> str:
    """
    >>> mebibytes(21_286_912), mebibytes(2 * 1024**3)
    ('20.3', '2,048')
    """
    return "–" if size is None else figure(size / MEBIBYTE)


def duration(seconds: float) -> str:
    """
    >>> duration(39.2), duration(3723), duration(0.4)
    ('0:39', '1:02:03', '0:00')
    """
    whole = int(round(seconds))
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def tick(value: float, spacing: float, largest: float) -> str:
    """A label of an axis with ticks `spacing` apart up to `largest`, in thousands or millions where that is shorter.

    >>> [tick(v, 500, 1500) for v in (0, 500, 1000, 1500)], tick(500, 100, 600), tick(0.25, 0.05, 1)
    (['0', '0.5k', '1k', '1.5k'], '500', '0.25')
    >>> tick(2_500_000, 500_000, 3e6), tick(1250, 50, 1300), tick(-20, 10, 30)
    ('2.5M', '1,250', '−20')
    """
    if value == 0:
        return "0"
    units = ((1e9, "G"), (1e6, "M"), (1e3, "k"))
    scale, suffix = next((u for u in units if largest >= u[0] and spacing >= u[0] / 10), (1.0, ""))
    shown, step = value / scale, spacing / scale
    if step < 1e-4:
        return _scientific(value, 2).replace("-", MINUS)
    decimals = max(0, math.ceil(-math.log10(step) - 1e-9))
    text = f"{shown:,.{decimals}f}"
    if "." in text and suffix:
        text = text.rstrip("0").rstrip(".")
    return (text + suffix).replace("-", MINUS)


def log_tick(exponent: float) -> str:
    """The label of `10 ** exponent`.

    >>> [log_tick(e) for e in (-5, -4, -2, 0, 1, 4, 6)], [log_tick(math.log10(one)) for one in (0.03, 0.15, 1.5, 150)]
    (['1e−5', '1e−4', '0.01', '1', '10', '10k', '1M'], ['0.03', '0.15', '1.5', '150'])
    """
    value = 10**exponent
    if value < 5e-4:
        return _scientific(value, 0).replace("-", MINUS)
    if value < 1:
        return f"{value:.2g}"
    scale, suffix = (1e6, "M") if value >= 1e6 else (1e3, "k") if value >= 1e3 else (1.0, "")
    return f"{value / scale:.3g}{suffix}"


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
