"""Attention, attribution and muted parts of a net against its own code; `tests.slow.looked_at` does 22 nets."""

from tests.slow import looked_at


def test_maps_and_muted_heads_are_those_of_code_by_hand() -> None:
    row = looked_at.measured(next(looked_at.cases()))
    assert row.good and row.count == 1, row
