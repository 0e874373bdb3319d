"""What is kept of the layers of a run, and what is said of their gradients."""

import math

import numpy as np
import pytest

from app.telemetry.histogram import BINS, Histogram
from app.training.events import GainFigures, Histograms, LayerFigures, Looking, Started
from app.training.history import History
from app.training.monitoring import gradient_verdict
from app.training.monitoring.gradient_verdict import verdict
from app.training.monitoring.layer_history import (
    HistogramSeries,
    LayerHistory,
    LayerTable,
    spread,
)


def histogram(low: float, high: float, first: int = 1) -> Histogram:
    return Histogram("a", low, high, (first,) + (1,) * (BINS - 1))


def test_a_layer_that_comes_later_was_not_there_before():
    table = LayerTable()
    table.add(1, ("a",), (0.5,))
    table.add(5, ("a", "b"), (0.25, 1.0))
    table.add(9, ("b",), (0.5,))
    assert table.layers == ("a", "b") and table.steps.tolist() == [1, 5, 9]
    np.testing.assert_array_equal(
        table.columns.matrix(), [[0.5, 0.25, np.nan], [np.nan, 1.0, 0.5]]
    )
    table.cut(5)
    assert table.steps.tolist() == [1, 5] and len(table.columns) == 2


def test_what_is_said_of_gradients_is_of_their_medians():
    random = np.random.default_rng(0)
    rows = random.choice([0.0, 1e-9, 1.0, 3.0, 1e9, math.inf, math.nan], (400, 8))
    rows = rows[~np.isnan(rows).all(axis=1)]
    np.testing.assert_array_equal(
        gradient_verdict._medians(rows), np.nanmedian(rows, axis=1)
    )


def test_histograms_of_a_long_run_are_thinned_and_reach_from_its_begin_to_its_end():
    series = HistogramSeries(most=16)
    for step in range(1, 1001):
        series.add(Histograms(step, "weights", (histogram(0.0, 1.0),)))
    steps = [step for step, _ in series.samples_of("a")]
    assert len(steps) <= 16 and steps[0] == 1 and steps[-1] > 800
    assert len(set(np.diff(steps))) == 1


def test_histograms_with_ends_of_their_own_are_laid_on_one_scale():
    parts, low, high = spread([(1, histogram(0.0, 1.0)), (2, histogram(0.0, 2.0))], 64)
    assert (low, high) == (0.0, 2.0) and parts.shape == (64, 2)
    assert parts.sum(axis=0) == pytest.approx([1.0, 1.0])
    assert parts[32:, 0].sum() == pytest.approx(0.0) and parts[
        32:, 1
    ].sum() == pytest.approx(0.5)
    one, _, _ = spread([(1, Histogram("a", 3.0, 3.0, (0, 5, 0)))], 8)
    assert one.sum() == pytest.approx(1.0)


def test_a_run_that_goes_on_from_a_checkpoint_lets_go_of_what_came_after_it():
    history = History()
    history.add(Started("cpu", None, 1, 64, 9, 0, 10, ("a",), 64, 0))
    for step in (3, 6):
        history.add(LayerFigures(step, ("a",), (1.0,), (0.1,), ("act",), (0.0,)))
        history.add(Histograms(step, "weights", (histogram(0.0, 1.0),)))
        history.add(GainFigures(step, 4.0, ("a", "b"), (1.0, 4.0), (0.5, 2.0)))
    history.add(Looking(6, 6, 0.01, 1.0))
    assert history.looking is not None and history.looking.spent == 0.01
    history.add(Started("cpu", None, 1, 64, 9, 0, 10, ("a",), 64, 0, 4))
    assert all(table.steps.tolist() == [3] for table in history.seen.tables.values())
    assert [step for step, _ in history.seen.histograms["weights"].samples_of("a")] == [
        3
    ]


def test_the_first_layer_that_vanishes_is_the_last_of_them_on_the_way_back():
    norms = np.array([[1e-9], [1e-7], [0.5], [1.0]])
    found = verdict(("a", "b", "c", "d"), norms)
    assert (found.kind, found.layer) == (
        "vanishing",
        "b",
    ) and "at b, 1e7 times less" in found.text
    assert verdict(("a", "b"), np.array([[0.1], [1.0]])) is None
    assert (
        verdict(("a", "b"), np.array([[0.0], [1.0]])).text
        == "No gradient reaches a: its norm is 0."
    )


def test_the_first_layer_that_explodes_is_named_and_a_single_peak_is_none():
    found = verdict(("a", "b", "c"), np.array([[1e9], [1e5], [1.0]]))
    assert (found.kind, found.layer) == ("exploding", "b")
    assert "infinite at a" in verdict(("a",), np.full((1, 3), math.inf)).text
    peak = np.ones((1, 8))
    peak[0, 3] = 1e6
    assert verdict(("a",), peak) is None


def test_layers_without_a_gradient_are_no_news():
    assert verdict(("a", "b"), np.array([[math.nan], [1.0]])) is None
    assert (
        verdict((), np.empty((0, 0))) is None
        and verdict(("a",), np.empty((1, 0))) is None
    )


def test_gains_of_layers_that_are_not_called_at_every_step_are_kept(tmp_path):
    from app.runs import layer_tables

    told = [
        GainFigures(
            1, 2.0, ("a", "cell", "head"), (1.0, 2.0, 2.0), (float("nan"), 1.0, 2.0)
        ),
        GainFigures(
            2,
            3.0,
            ("a", "cell", "cell#2", "head"),
            (1.0, 2.0, 3.0, 3.0),
            (0.5, 1.0, 4.0, 3.0),
        ),
        GainFigures(3, 2.0, ("a", "head"), (1.0, 2.0), (0.25, 1.0)),
    ]
    for event in told:
        layer_tables.append(tmp_path, [event])
    before, after = LayerHistory(), LayerHistory()
    for event in told:
        before.add(event)
    for event in layer_tables.read_events(tmp_path):
        after.add(event)
    for name in ("gain", "reach"):
        ours, theirs = before.tables[name], after.tables[name]
        assert ours.layers == theirs.layers == ("a", "cell", "cell#2", "head") and list(
            theirs.steps
        ) == [1, 2, 3]
        assert np.array_equal(
            ours.columns.matrix(), theirs.columns.matrix(), equal_nan=True
        )
