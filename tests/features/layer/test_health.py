"""What is said of a layer's health at a measured step, and what a stored run knows of it."""

import math

from app.features.layer.health import health_checks, histogram_at
from app.runs import layer_tables, tables
from app.telemetry.histogram import BINS, Histogram
from app.training.events import GainFigures, Histograms, LayerFigures
from app.training.history import History

GOOD = Histogram(
    "conv", -0.5, 0.5, (2,) * BINS, 0.0, 0.1, zeros=1, not_finite=0, size=64
)
BAD = Histogram(
    "conv", -0.5, 0.5, (1,) * BINS, 0.0, 0.1, zeros=30, not_finite=8, size=4000
)
EVENTS = (
    LayerFigures(1, ("conv",), (1.0,), (0.002,), ("conv.act",), (0.25,)),
    GainFigures(1, 1.0, ("conv", "fc"), (0.4, 1.0), (0.5, 1.0)),
    Histograms(1, "gradients", (GOOD,)),
    LayerFigures(9, ("conv",), (1.0,), (0.5,), ("conv.act",), (0.75,)),
    GainFigures(9, 1.0, ("conv", "fc"), (1e-6, 1.0), (1e-6, 1.0)),
    Histograms(9, "gradients", (BAD,)),
)


def checks(history, step=None):
    return {
        each.name: (each.value, each.ok)
        for each in health_checks(history.seen, "conv", step)
    }


def test_a_layer_is_judged_at_the_chosen_step_and_at_the_newest():
    history = History()
    history.extend(EVENTS)
    assert checks(history, 4) == {
        "Dead units, conv.act": ("25 %", True),
        "NaN or Inf": ("none", True),
        "Zero gradients": ("1.6 %", True),
        "Gradient at input": ("arrives", True),
        "Update / weight": ("0.00200", True),
    }
    now = checks(history)
    assert (
        not any(ok for _, ok in now.values())
        and now["Gradient at input"][0] == "vanishes"
    )
    assert (
        now["NaN or Inf"][0] == "8"
        and histogram_at(history.seen, "gradients", "conv") == BAD
    )
    assert health_checks(history.seen, "another") == ()


def test_the_figures_are_stored_with_the_run_and_one_of_an_earlier_version_has_none(
    tmp_path,
):
    layer_tables.append(tmp_path, EVENTS)
    read = [
        each
        for each in layer_tables.read_events(tmp_path)
        if isinstance(each, Histograms)
    ]
    assert read == [event for event in EVENTS if isinstance(event, Histograms)]
    old = tmp_path / "old"
    old.mkdir()
    names = (
        "step",
        *(f"conv/{end}" for end in ("low", "high", *map(str, range(BINS)))),
    )
    tables.append(old / "histograms-weights.bin", names, [(3, -1.0, 1.0, *range(BINS))])
    (found,) = (
        each for each in layer_tables.read_events(old) if isinstance(each, Histograms)
    )
    assert found.layers[0].counts == tuple(range(BINS)) and not found.layers[0].recorded
    assert math.isnan(found.layers[0].mean)
