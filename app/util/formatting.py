"""Number and shape formatting: a real minus sign, thousands grouped as in the language, limited significant digits.

A computed number has another last bit on another processor. What is written goes through `steady` first, so that no
text hangs on that bit, and is rounded before its notation is chosen.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any

from app.util.language import grouped

MINUS = "\u2212"
MEBIBYTE = 1024 * 1024
UNKNOWN = "–"
STEADY = 12  # digits of a float64 on which processors agree


def steady(value: float) -> float:
    """Return the number of twelve significant digits next to a value; infinite and nan stay.

    >>> steady(0.1 + 0.2), steady(0.0010000000000000002), steady(1 / 3), steady(float("-inf"))
    (0.3, 0.001, 0.333333333333, -inf)
    """
    return float(f"{value:.{STEADY}g}")


def grouped_digits(number: int) -> str:
    """Format an integer with thousands separators and a real minus sign.

    >>> grouped_digits(1179776), grouped_digits(-5)
    ('1,179,776', '−5')
    """
    return grouped(f"{number:,}").replace("-", MINUS)


def plural(number: Any, singular: str, many: str = "") -> str:
    """Choose the noun's form for a number, or a symbolic size such as N.

    >>> plural(1, "node"), plural(0, "node"), plural(2, "class", "classes"), plural("N", "sample")
    ('node', 'nodes', 'classes', 'samples')
    """
    return singular if number == 1 else many or f"{singular}s"


def counted(number: int, singular: str, many: str = "") -> str:
    """Format a number with its noun.

    >>> counted(1, "parameter"), counted(18496, "parameter"), counted(2, "class", "classes")
    ('1 parameter', '18,496 parameters', '2 classes')
    """
    return f"{grouped_digits(number)} {plural(number, singular, many)}"


def parameters_text(total: int, frozen: int = 0) -> str:
    """Format the number of parameters, and how many of them are trainable where some are frozen.

    >>> parameters_text(85066), parameters_text(85066, 65600)
    ('85,066 parameters', '85,066 parameters: 19,466 trainable, 65,600 frozen')
    """
    total_text = counted(total, "parameter")
    trainable, frozen_text = grouped_digits(total - frozen), grouped_digits(frozen)
    return (
        f"{total_text}: {trainable} trainable, {frozen_text} frozen"
        if frozen
        else total_text
    )


def figure(value: float | None, digits: int = 3) -> str:
    """Format a value with about `digits` significant digits.

    >>> figure(0.054123), figure(12480.4), figure(-0.00078), figure(0.0), figure(float("nan")), figure(None)
    ('0.0541', '12,480', '−7.8e−4', '0', 'nan', '–')
    >>> figure(0.001), figure(0.0009999), figure(9.996), figure(99.97), figure(9_999_999.6)
    ('0.00100', '0.00100', '10.0', '100', '1e7')
    """
    if value is None:
        return UNKNOWN
    if math.isnan(value):
        return "nan"
    if math.isinf(value):
        return "∞" if value > 0 else f"{MINUS}∞"
    exponent = _exponent(value, digits - 1)
    integral = exponent >= digits - 1
    number = float(round(steady(value))) if integral else steady(value)
    if number == 0:
        text = "0"
    elif exponent < -3 or abs(number) >= 1e7:
        text = scientific(value, digits - 1)
    else:
        text = grouped(f"{number:,.{0 if integral else digits - 1 - exponent}f}")
    return text.replace("-", MINUS)


def _exponent(value: float, decimals: int) -> int:
    """Return the power of ten of a finite value whose mantissa is rounded to `decimals`."""
    return int(f"{steady(value):.{decimals}e}".split("e")[1])


def significant(value: float, digits: int = 6) -> str:
    """Format a value with at most `digits` significant digits, without zeros at its end.

    >>> significant(8.4e-05), significant(-9.83e-6, 2), significant(2.0, 4), significant(1250000.0, 3)
    ('8.4e−5', '−9.8e−6', '2', '1.25e6')
    """
    return typeset(f"{steady(value):.{digits}g}")


def in_units(value: float, digits: int = 4) -> str:
    """Format a value in its own unit: in full where that is below ten million, else as `significant` does. Four digits
    are not grouped: they may be a year.

    >>> in_units(349512.3), in_units(-137000.0), in_units(2.0), in_units(0.00123456), in_units(1965.4, 3)
    ('349,512', '−137,000', '2', '0.001235', '1965')
    """
    if not 10**digits <= abs(value) < 1e7:
        return significant(value, digits)
    rounded = round(steady(value))
    return (
        grouped_digits(rounded)
        if abs(rounded) >= 10_000
        else str(rounded).replace("-", MINUS)
    )


def typeset(numbers: str) -> str:
    """Write the numbers of a text of Python's as those of this module.

    >>> typeset("[8.4e-05, -2, 1e+20, nan, -inf]")
    '[8.4e−5, −2, 1e20, nan, −∞]'
    """
    text = re.sub(r"e([+-])0?(?=\d)", lambda sign: "e" + sign[1].strip("+"), numbers)
    return text.replace("-", MINUS).replace("inf", "∞")


def scientific(value: float, decimals: int) -> str:
    """Format a value as mantissa and power of ten.

    >>> scientific(0.00123, 2), scientific(4e-7, 3), scientific(-2.5e9, 1)
    ('1.23e−3', '4e−7', '−2.5e9')
    """
    mantissa, exponent = f"{steady(value):.{decimals}e}".split("e")
    if "." in mantissa:
        mantissa = mantissa.rstrip("0").rstrip(".")
    return f"{mantissa}e{int(exponent)}".replace("-", MINUS)


def percent(share: float | None) -> str:
    """Format a fraction in percent with two decimals, without the sign. Only exactly 0 is 0.00, and only 1 is 100.00.

    >>> percent(0.98623), percent(None), percent(1e-6), percent(0.99999), percent(1.0)
    ('98.62', '–', '< 0.01', '> 99.99', '100.00')
    """
    if share is None:
        return UNKNOWN
    share = steady(share)
    if 0 < share < 0.0001:
        return "< 0.01"
    return "> 99.99" if 0.9999 < share < 1 else f"{100 * share:.2f}"


def percent_sign(share: float | None) -> str:
    """Format as `percent`, with the sign after a number.

    >>> percent_sign(0.98623), percent_sign(None)
    ('98.62 %', '–')
    """
    return UNKNOWN if share is None else f"{percent(share)} %"


def share(amount: float, total: float) -> str:
    """Format `amount` of `total` in percent; "" if `total` is 0. Only exactly none is 0 %, and only all is 100 %.

    >>> share(18496, 1277642), share(1, 1000000), share(0, 5), share(5, 5), share(9999, 10000)
    ('1.4 %', '< 0.1 %', '0 %', '100 %', '> 99.9 %')
    """
    if total <= 0:
        return ""
    percentage = steady(100 * amount / total)
    if 0 < percentage < 0.1:
        return "< 0.1 %"
    if 99.9 < percentage < 100:
        return "> 99.9 %"
    return f"{percentage:.1f} %".replace(".0 %", " %")


def bytes_text(count: int) -> str:
    """Memory in binary units with three figures.

    >>> bytes_text(160), bytes_text(2048), bytes_text(5_536_482), bytes_text(3 << 30)
    ('160 B', '2.00 KiB', '5.28 MiB', '3.00 GiB')
    >>> bytes_text(196 * 1024), bytes_text(1023 * 1024), bytes_text(1048575)
    ('196 KiB', '1023 KiB', '1.00 MiB')
    """
    if count < 1024:
        return f"{count} B"
    value = float(count)
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        value /= 1024
        digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
        if round(value, digits) < 1024 or unit == "TiB":
            return f"{value:.{digits}f} {unit}"
    raise AssertionError("unreachable")


def mebibytes(size: float | None) -> str:
    """Format bytes in MiB, without the unit.

    >>> mebibytes(21_286_912), mebibytes(2 * 1024**3)
    ('20.3', '2,048')
    """
    return UNKNOWN if size is None else figure(size / MEBIBYTE)


def megabytes(count: int) -> str:
    """Format bytes in MB of a million, as usual for downloads.

    >>> megabytes(11594722), megabytes(120000)
    ('11.6 MB', '0.1 MB')
    """
    return f"{count / 1e6:.1f} MB"


def milliseconds(seconds: float) -> str:
    """Format a short time, in ms below a second.

    >>> milliseconds(0.0123), milliseconds(2.5), milliseconds(0.99996)
    ('12.3 ms', '2.50 s', '1.00 s')
    """
    return (
        f"{figure(seconds * 1000)} ms"
        if round(seconds, 3) < 1
        else f"{figure(seconds)} s"
    )


def duration(seconds: float) -> str:
    """Format a duration as h:mm:ss.

    >>> duration(39.2), duration(3723), duration(0.4)
    ('0:39', '1:02:03', '0:00')
    """
    total_seconds = int(round(seconds))
    hours, minutes, rest = (
        total_seconds // 3600,
        total_seconds // 60 % 60,
        total_seconds % 60,
    )
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def shape_text(sizes: Iterable[Any], empty: str = "") -> str:
    """Join sizes with multiplication signs; `empty` is returned for none.

    >>> shape_text((64, 32, 3, 3)), shape_text(("N", 8)), shape_text((), "scalar")
    ('64×32×3×3', 'N×8', 'scalar')
    """
    return "×".join(map(str, sizes)) or empty


def flop_text(count: int) -> str:
    """Format a number of floating-point operations with three digits.

    >>> flop_text(46_100_000), flop_text(1280), flop_text(90), flop_text(999_600)
    ('46.1 MFLOP', '1.28 kFLOP', '90 FLOP', '1.00 MFLOP')
    """
    if count < 1000:
        return f"{count} FLOP"
    value = float(count)
    for unit in ("k", "M", "G", "T", "P"):
        value /= 1000
        digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
        if round(value, digits) < 1000 or unit == "P":
            break
    return f"{value:.{digits}f} {unit}FLOP"


def number_text(value: int | float | None) -> str:
    """Format a number for a field.

    >>> number_text(-1), number_text(1e-05), number_text(0.1), number_text(None)
    ('−1', '1e−5', '0.1', 'None')
    """
    if isinstance(value, float):
        text = re.sub(
            r"e([+-])0*(\d)", lambda m: "e" + m[1].replace("+", "") + m[2], repr(value)
        )
        return text.replace("-", MINUS)
    return str(value).replace("-", MINUS)
