"""Numbers as people read them."""

from __future__ import annotations


def grouped_digits(number: int) -> str:
    """A whole number with a comma after every three digits and a real minus sign.

    >>> grouped_digits(1179776), grouped_digits(-5)
    ('1,179,776', '−5')
    """
    return f"{number:,}".replace("-", "−")


def counted(number: int, one: str, many: str = "") -> str:
    """A number and its noun.

    >>> counted(1, "parameter"), counted(18496, "parameter"), counted(2, "class", "classes")
    ('1 parameter', '18,496 parameters', '2 classes')
    """
    return f"{grouped_digits(number)} {one if number == 1 else many or one + 's'}"


def share(part: float, whole: float) -> str:
    """What `part` is of `whole`, in per cent; "" if there is no whole. Only nothing is 0 %, and only all is 100 %.

    >>> share(18496, 1277642), share(1, 1000000), share(0, 5), share(5, 5), share(9999, 10000)
    ('1.4 %', '< 0.1 %', '0 %', '100 %', '> 99.9 %')
    """
    if whole <= 0:
        return ""
    percent = 100 * part / whole
    if 0 < percent < 0.1:
        return "< 0.1 %"
    if 99.9 < percent < 100:
        return "> 99.9 %"
    return f"{percent:.1f} %".replace(".0 %", " %")


def megabytes(count: int) -> str:
    """A number of bytes in MB of a million, as downloads are counted.

    >>> megabytes(11594722), megabytes(120000)
    ('11.6 MB', '0.1 MB')
    """
    return f"{count / 1e6:.1f} MB"
