"""Numbers read right, whatever they are; the examples of `app.util.formatting` are tested where they stand."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.builder.summary import compact
from app.util import formatting
from app.views.training.charts.ticks import log_tick, tick

# What a person chooses, or a mean of few values is: of few decimal digits, which binary floats miss by their last bit.
SHORT_NUMBERS = st.builds(
    lambda digits, exponent: float(f"{digits}e{exponent}"),
    st.integers(-999_999, 999_999).filter(bool),
    st.integers(-12, 6),
)
FORMATS = [
    formatting.figure,
    lambda value: formatting.figure(value, 5),
    formatting.significant,
    lambda value: formatting.significant(value, 2),
    lambda value: formatting.scientific(value, 1),
    lambda value: formatting.percent(abs(value)),
    lambda value: formatting.share(abs(value), 1),
    lambda value: formatting.milliseconds(abs(value)),
    lambda value: tick(value, abs(value) / 3, 1.2 * abs(value)),
    lambda value: log_tick(math.log10(abs(value) or 1)),
]


@given(SHORT_NUMBERS, st.sampled_from([-3, -1, 1, 3]))
@example(-1950.0, -3)
@example(0.001, 1)
def test_no_text_hangs_on_the_last_bits(value: float, ulps: int) -> None:
    """A sum in another order, as another processor takes it, is another number there."""
    computed = value + ulps * math.ulp(value)
    assert [each(computed) for each in FORMATS] == [each(value) for each in FORMATS]


@given(st.floats(1e-12, 1e12), st.integers(2, 6))
def test_a_figure_is_rounded_before_its_notation_is_chosen(
    value: float, digits: int
) -> None:
    """The text of a number is that of the number which the text says."""
    text = formatting.figure(value, digits)
    again = float(text.replace(",", "").replace(formatting.MINUS, "-"))
    assert formatting.figure(again, digits) == text and math.isclose(
        again, value, rel_tol=10.0 ** (1 - digits)
    )
    mantissa = re.sub(r"\D", "", text.partition("e")[0]).lstrip("0")
    assert len(mantissa) <= max(digits, 7) and ("e" in text) == (
        again < 1e-3 or again >= 1e7
    )


@given(st.integers(0, 10**12))
def test_an_abbreviated_count_has_three_figures_and_no_power_of_ten(count: int) -> None:
    number, unit = re.fullmatch(r"([\d.]+)([kMG]?)", compact(count)).groups()
    assert len(re.sub(r"\D", "", number)) <= 3 + (count > 999_000_000_000)
    assert math.isclose(
        float(number) * {"": 1, "k": 1e3, "M": 1e6, "G": 1e9}[unit], count, rel_tol=5e-3
    )


@given(st.integers(-(10**15), 10**15))
def test_digits_that_are_grouped_are_those_of_the_number(number: int) -> None:
    text = formatting.grouped_digits(number)
    assert (
        int(text.replace(",", "").replace(formatting.MINUS, "-")) == number
        and "-" not in text
    )
    assert all(len(group) == 3 for group in text.split(",")[1:])


@pytest.mark.parametrize(
    "formatted",
    [
        formatting.grouped_digits,
        formatting.figure,
        formatting.in_units,
        formatting.mebibytes,
        formatting.milliseconds,
        formatting.parameters_text,
        lambda number: formatting.counted(number, "row"),
        lambda number: tick(number, 1, number),
    ],
)
def test_another_language_than_english_groups_by_a_space(
    formatted: Callable[[int], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    number = 9_876_543 * (
        formatting.MEBIBYTE if formatted is formatting.mebibytes else 1
    )
    english = formatted(number)
    monkeypatch.setenv("TAPEDECK_LANGUAGE", "de")
    assert "," in english
    assert formatted(number) == english.replace(",", "\N{NO-BREAK SPACE}")


@given(st.integers(1, 10**9), st.data())
def test_only_nothing_is_no_percent_and_only_all_is_all(
    whole: int, data: st.DataObject
) -> None:
    count = data.draw(st.integers(0, whole))
    assert (formatting.percent(count / whole) == "100.00") == (count == whole)
    assert (formatting.share(count, whole) == "0 %") == (count == 0)


@given(st.integers(0, 2**49))
def test_memory_has_three_figures(count: int) -> None:
    number, unit = formatting.bytes_text(count).split()
    assert (
        len(re.sub(r"\D", "", number)) <= 4
        and float(number) < 1024
        and unit in ("B", "KiB", "MiB", "GiB", "TiB")
    )


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.00 KiB"),
        (1024 * 1024 - 1, "1.00 MiB"),
        (10 * 1024, "10.0 KiB"),
        (27 << 20, "27.0 MiB"),
        (5 << 40, "5.00 TiB"),
        (5000 << 40, "5000 TiB"),
    ],
)
def test_memory_reads_in_three_figures(count: int, text: str) -> None:
    assert formatting.bytes_text(count) == text
