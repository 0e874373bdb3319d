"""Figures of the benchmarks: medians of ratios, aims from either side."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import _report
from benchmarks._report import Figure, in_turns, percentile


def test_a_figure_is_the_median_of_the_ratios_within_a_round() -> None:
    figure = Figure(
        "speed",
        "steps/s",
        (90.0, 100.0, 50.0),
        (100.0, 100.0, 100.0),
        aim=0.85,
        more_is_better=True,
    )
    assert figure.value == 0.9 and figure.met
    assert str(figure) == (
        "speed: 0.9x (0.5 to 1 in 3 rounds); 90 against 100 steps/s; aim at least 0.85x: met"
    )


def test_an_aim_may_bound_from_above_and_be_missed() -> None:
    figure = Figure("p99 gap", "ms", (40.0, 41.0, 42.0), aim=33)
    assert figure.met is False
    assert str(figure).endswith("aim at most 33 ms: MISSED")


def test_without_an_aim_there_is_nothing_to_meet() -> None:
    assert Figure("start", "s", (1.0,)).met is None


def test_both_sides_are_measured_in_turns() -> None:
    order: list[str] = []

    def measure(side: str) -> float:
        order.append(side)
        return float(len(order))

    ours, theirs = in_turns(lambda: measure("a"), lambda: measure("b"), rounds=3)
    assert "".join(order) == "abbaab"
    assert (ours, theirs) == ((1.0, 4.0, 5.0), (2.0, 3.0, 6.0))


@pytest.mark.parametrize(
    ("share", "value"), [(0.99, 99), (1.0, 100), (0.5, 50), (0.0, 1)]
)
def test_percentiles_are_measured_values(share: float, value: int) -> None:
    assert percentile(range(1, 101), share) == value


def test_published_figures_keep_every_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(_report, "OUT", tmp_path)
    _report.publish("start", [Figure("start", "s", (1.0, 2.0), (1.0, 1.0))])
    kept = json.loads((tmp_path / "start.json").read_text())
    assert kept["figures"][0]["ours"] == [1.0, 2.0] and kept["machine"]["torch"]
    assert "start: 1.5x" in capsys.readouterr().out
