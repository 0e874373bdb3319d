"""A test of all members of a table goes on after one that fails, and tells which those are."""

from __future__ import annotations

import pytest

from tests.support.every import every


def test_all_that_fail_are_told_by_name_and_the_others_are_checked_too() -> None:
    checked = []

    @every({"one": 1, "two": 2, "three": 3, "four": 4})
    def of_a_number(number: int) -> None:
        checked.append(number)
        if number == 2:
            pytest.fail("it is even")
        assert number != 3, "it is three"

    with pytest.raises(BaseExceptionGroup, match="2 of 4 fail: two, three") as told:
        of_a_number()
    assert checked == [1, 2, 3, 4]
    assert [str(error).partition("\n")[0] for error in told.value.exceptions] == [
        "it is even",
        "it is three",
    ]


def test_an_empty_table_is_no_test() -> None:
    with pytest.raises(AssertionError, match="nothing to be checked"):
        every({})
