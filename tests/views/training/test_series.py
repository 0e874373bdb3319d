"""The arithmetic of the curves: smoothing, thinning, ticks, and where things stand on the x axis."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytestqt.qtbot import QtBot

from app.training.events import EpochDone, GradientNorms, Started, StepDone
from app.training.history import History
from app.util.frozen import FrozenMap
from app.views.training.charts import series, ticks
from app.views.training.charts.axis import FigureAxis, Scale
from app.views.training.charts.charts import stretches
from app.views.training.charts.gradients import (
    BoundsTracker,
    GradientOverlay,
    nodes_by_layer,
)
from app.views.training.charts.series import Smoother, TimeScale
from app.views.training.charts.small_plot import PlotLine, SmallPlot
from app.views.training.charts.ticks import log_tick
from tests.support.training_jobs import SMALL_NET


def plain_average(raw, weight):
    """The definition, one value after the other."""
    top = bottom = 0.0
    result = []
    for value in raw:
        finite = math.isfinite(value)
        top = weight * top + (1 - weight) * (value if finite else 0.0)
        bottom = weight * bottom + (1 - weight) * finite
        result.append(top / bottom if bottom else math.nan)
    return result


values = st.lists(st.floats(-1e6, 1e6) | st.just(math.nan), max_size=400)


@given(values, st.sampled_from([0.0, 0.5, 0.9, 0.99]), st.integers(1, 150))
def test_smoothing_piece_by_piece_is_the_moving_average(raw, weight, piece):
    smoother = Smoother(weight)
    for start in range(0, len(raw), piece):
        smoother.extend(np.array(raw[start : start + piece]))
    np.testing.assert_allclose(
        smoother.values, plain_average(raw, weight), rtol=1e-9, atol=1e-6
    )


@given(
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(1, 700),
    st.sampled_from([0.5, 0.9, 0.99]),
    st.integers(1, 150),
)
def test_a_constant_is_smoothed_to_itself_bit_by_bit(value, count, weight, piece):
    smoother = Smoother(weight)
    for start in range(0, count, piece):
        smoother.extend(np.full(min(piece, count - start), value))
    assert np.array_equal(smoother.values, np.full(count, value))


@given(values, st.sampled_from([0.5, 0.9, 0.99]))
def test_a_smoothed_value_lies_between_those_before_it(raw, weight):
    smoother = Smoother(weight)
    smoother.extend(np.array(raw))
    for number, mean in enumerate(smoother.values):
        finite = [value for value in raw[: number + 1] if math.isfinite(value)]
        assert not finite and math.isnan(mean) or min(finite) <= mean <= max(finite)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=3000), st.integers(5, 200))
def test_thinning_keeps_every_peak_and_the_order(raw, pixels):
    x, y = np.arange(len(raw), dtype=float), np.array(raw)
    thin_x, thin_y = series.thin_peaks(x, y, pixels)
    assert (thin_y.min(), thin_y.max()) == (y.min(), y.max())
    assert np.all(np.diff(thin_x) >= 0) and len(thin_x) <= 5 * pixels + 1
    smooth_x, smooth_y = series.thin(x, y, pixels)
    assert (
        smooth_x[-1] == x[-1]
        and smooth_y[-1] == y[-1]
        and len(smooth_x) <= 2 * pixels + 2
    )


@given(st.floats(-8, 8), st.floats(0.1, 12), st.integers(3, 9))
def test_log_ticks_stay_in_the_axis(low, span, most):
    exponents = ticks.log_ticks(low, low + span, most)
    assert all(low - 1e-6 <= tick <= low + span + 1e-6 for tick in exponents)
    assert len(exponents) <= most + 1 and exponents == sorted(exponents)


@given(st.floats(-8, 8), st.floats(2e-4, 3), st.integers(3, 9))
def test_a_log_axis_has_two_labels_that_differ_at_least(low, span, most):
    """Also where a loss stays within a decade."""
    found = [log_tick(tick) for tick in ticks.log_ticks(low, low + span, most)]
    assert len(found) >= 2 and len(set(found)) == len(found)


def test_speed_is_cut_into_stretches_that_are_long_enough():
    seconds = np.arange(1000) * 0.01
    cuts = stretches(seconds, 50, 0.1)
    assert np.all(np.diff(seconds[cuts]) >= 0.1 - 1e-9) and len(cuts) <= 101
    assert len(stretches(seconds[:1], 50, 0.1)) == 0


def history_of(steps, layers=("linear1", "linear2"), norms=()):
    history = History()
    history.add(Started("cpu", None, 2, 10, 5, 0, 100, layers, 50, 10))
    for step in range(1, steps + 1):
        history.add(StepDone((step - 1) // 5 + 1, step, 1 / step, 10, 0.5 * step))
        if step % 5 == 0:
            history.add(
                EpochDone(step // 5, step, 0.5, 0.8, 0.6, 0.7, 0.5 * step + 0.2)
            )
    for step, row in norms:
        history.add(GradientNorms(step, layers, row))
    return history


def test_the_same_steps_by_step_epoch_and_time():
    history = history_of(10)
    by = {mode: TimeScale(history, mode) for mode in ("step", "epoch", "time")}
    assert (
        by["step"].of_steps()[-1] == 10
        and by["epoch"].of_steps()[-1] == 2
        and by["time"].of_steps()[-1] == 5
    )
    assert [by[mode].end() for mode in by] == [10, 2, 5]
    steps = np.array([5.0])
    assert [by[mode].x_of(steps)[0] for mode in by] == [5, 1, 2.5]
    assert by["time"].x_of(steps, np.array([2.7]))[0] == 2.7
    assert by["epoch"].nearest(0.61) == 2 and by["step"].nearest(99) == 9
    assert (
        TimeScale(History(), "epoch").nearest(1.0) is None
        and TimeScale(History(), "time").end() == 0
    )


def test_bounds_are_whole_decades_that_grow_and_do_not_reach_for_ever():
    history, tracker = history_of(4), BoundsTracker()
    assert tracker.update(history) is None
    history.add(GradientNorms(1, history.layers, (0.03, math.nan)))
    assert (tracker.update(history).low, tracker.update(history).high) == (0.01, 0.1)
    history.add(GradientNorms(2, history.layers, (5.0, 0.0)))
    bounds = tracker.update(history)
    assert (bounds.low, bounds.high, bounds.clipped) == (0.01, 10.0, False)
    history.add(GradientNorms(3, history.layers, (1e-20, 1.0)))
    bounds = tracker.update(history)
    assert bounds.low == pytest.approx(1e-5) and bounds.clipped
    assert (bounds.position(10.0), bounds.position(1e-20), bounds.position(0.0)) == (
        1.0,
        0.0,
        0.0,
    )
    assert math.isnan(bounds.position(math.nan))


def test_the_canvas_gets_the_newest_norms_by_node():
    rows = [(step, (step / 10, step / 100)) for step in range(1, 41)]
    overlay = GradientOverlay(SMALL_NET, history_of(40, norms=rows)).read()
    assert set(overlay.norms) == {"linear1", "linear2"}
    assert len(overlay.norms["linear1"]) == 32 and overlay.norms["linear1"][-1] == 4.0
    assert (overlay.low, overlay.high) == (0.01, 10.0)
    assert GradientOverlay(SMALL_NET, history_of(3)).read() is None


def test_a_module_that_is_called_twice_belongs_to_both_nodes():
    from msgspec.structs import replace

    shared = replace(
        SMALL_NET, modules=FrozenMap({"a": "linear1", "b": "linear1", "c": "linear2"})
    )
    assert nodes_by_layer(shared, ["linear1", "linear2"]) == {
        "linear1": ("a", "b"),
        "linear2": ("c",),
    }


def test_the_norm_of_a_block_is_that_of_all_gradients_in_it():
    from app.source.generated import ClassText, Source

    inner = ClassText(modules=FrozenMap(conv="conv"))
    net = ClassText(
        modules=FrozenMap(n1="stage", n2="fc"),
        blocks=FrozenMap(n1="Residual"),
        repeated=frozenset(["n1"]),
    )
    source = Source(
        "", modules=net.modules, classes=FrozenMap({"": net, "Residual": inner})
    )
    history = history_of(
        1, ("stage.0.conv", "stage.1.conv", "fc"), [(1, (3.0, 4.0, 0.5))]
    )
    overlay = GradientOverlay(source, history)
    assert overlay.read().norms == {"n1": (5.0,), "n2": (0.5,)}
    assert overlay.read(within=(("n1", 1),)).norms == {"conv": (4.0,)}


@pytest.mark.parametrize("kind", ["number", "clock", "log"])
@pytest.mark.parametrize("high", [3.66e-4, 1.0, 0.0041, 7.9, 41.0, 820.0])
def test_an_axis_of_any_range_has_two_labels_at_least(
    qapp: object, kind: Scale, high: float
) -> None:
    axis = FigureAxis("left", kind)
    low, end = (
        (math.log10(high / 1.3), math.log10(high)) if kind == "log" else (0.0, high)
    )
    spacing, values = axis.ticks(low, end, 40)
    texts = {axis.text(value, spacing, end) for value in values}
    assert len(texts) == len(values) >= 2


def test_the_range_test_has_labels_between_its_ends(qtbot: QtBot) -> None:
    plot = SmallPlot("Loss by learning rate", 180)
    qtbot.addWidget(plot)
    plot.resize(480, 180)
    rates = [10 ** (-7 + 7 * step / 99) for step in range(100)]
    plot.show_lines(
        rates,
        (PlotLine(tuple(2.3 - 2 * step / 99 for step in range(100))),),
        log_x=True,
    )
    assert [text for _, text in plot.places()] == [
        "1e−7",
        "1e−6",
        "1e−5",
        "1e−4",
        "0.001",
        "0.01",
        "0.1",
        "1",
    ]
    assert [text for _, text in plot.levels()] == ["0.5", "1.0", "1.5", "2.0"]
    plot.grab()
    plot.show_lines(rates[40:45], (PlotLine((3.0, 2.0, 1.0, 0.9, 0.8)),), log_x=True)
    assert len(plot.places()) >= 2, "below one decade too"
