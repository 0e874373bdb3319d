"""The table of watched scripts sees a difference."""

from __future__ import annotations

import pytest

from tests.slow.watched_scripts import Row, compared, counts

PRINTED = [{"step": 1, "loss": 0.5, "norms": {"net.0.weight": 3.0, "net.0.bias": 4.0}}]


def told(loss: float = 0.5, norm: float | None = 5.0) -> list[dict]:
    norms = {"event": "norms", "step": 1, "norms": [norm, 7.0]}
    return [
        {"event": "layers", "layers": ["0", "another"]},
        norms,
        {"event": "step", "step": 1, "loss": loss},
    ]


def test_what_is_told_as_printed_is_counted():
    assert compared(PRINTED, told()) == (1, 1, 1, "")


@pytest.mark.parametrize(
    ("frames", "why"),
    [
        (told(loss=0.5000000000000001), "the loss of step 1"),
        (told(norm=5.001), "the norm of 0 at step 1"),
        (told(norm=None), "told as None"),
        (told()[:2], "the loss of step 1 is told as None"),
        (told()[:1] + told()[2:], "no norm"),
    ],
)
def test_a_difference_is_said(frames, why):
    assert why in compared(PRINTED, frames)[-1]


def test_scripts_that_were_not_tried_are_not_counted_as_equal():
    rows = [
        Row("a", "", 1, 1, 1, 1),
        Row("b", "", why="differs"),
        Row("c", "", why="no package", tried=False),
    ]
    assert (
        counts(rows)
        == "1 of 2 scripts equal, 1 losses and 1 norms reported as printed. c was not tried: no package."
    )
