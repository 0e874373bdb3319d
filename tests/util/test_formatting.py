"""Numbers read right, whatever they are; the examples of `app.util.formatting` are tested where they stand."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.util import formatting


@given(st.integers(-(10**15), 10**15))
def test_digits_that_are_grouped_are_those_of_the_number(number: int) -> None:
    text = formatting.grouped_digits(number)
    assert int(text.replace(",", "").replace(formatting.MINUS, "-")) == number and "-" not in text
    assert all(len(group) == 3 for group in text.split(",")[1:])


@given(st.floats(0, 1))
def test_only_nothing_is_no_percent_and_only_all_is_all(share: float) -> None:
    assert (formatting.percent(share) == "100.00") == (share == 1)
    assert (formatting.share(share, 1) == "0 %") == (share == 0)


@given(st.integers(0, 2**49))
def test_memory_has_three_figures(count: int) -> None:
    number, unit = formatting.bytes_text(count).split()
    assert len(re.sub(r"\D", "", number)) <= 4 and float(number) < 1024 and unit in ("B", "KiB", "MiB", "GiB", "TiB")


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.00 KiB"), (1024 * 1024 - 1, "1.00 MiB"), (10 * 1024, "10.0 KiB"),
     (27 << 20, "27.0 MiB"), (5 << 40, "5.00 TiB"), (5000 << 40, "5000 TiB")],
)  # fmt: skip
def test_memory_reads_in_three_figures(count: int, text: str) -> None:
    assert formatting.bytes_text(count) == text
