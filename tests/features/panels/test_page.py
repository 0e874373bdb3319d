"""The page "Panels" over the histories of real runs: what its panels show, and what mouse and keys do."""

from __future__ import annotations

import csv
import math

import numpy as np
import pytest
from msgspec.structs import replace
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QWidget

from app.features.panels.metric_chart import histogram_text
from app.features.panels.page import PanelsPage
from app.telemetry.histogram import Histogram
from app.training.config import Choice as Setting
from app.training.history import History
from app.training.loop import train
from app.training.monitoring import watcher
from app.util.frozen import FrozenMap
from app.views.shown_run import ComparedRun
from app.views.training.charts.histograms import (
    RunHistogram,
    RunHistograms,
    densities,
)
from app.views.training.charts.metrics import Choice, metric_of, offered
from app.views.ui import theme
from tests.support.training_jobs import CONV_NET, SMALL_NET, job


def history_of(net, **settings) -> History:
    history = History()
    history.extend(train(job(net, **settings)))
    return history


@pytest.fixture(scope="module")
def histories() -> list[History]:
    """Of three runs: two of one net at different rates, and one of another net."""
    with pytest.MonkeyPatch.context() as patch:
        for pace in ("LOOKS", "NORMS", "MEMORY"):
            patch.setattr(watcher, pace, (0.0, math.inf))
        rates = [Setting("SGD", FrozenMap(lr=lr)) for lr in (0.1, 0.001)]
        runs = [history_of(CONV_NET, epochs=2, optimizer=rate) for rate in rates]
        return [*runs, history_of(SMALL_NET, epochs=1, optimizer=rates[0])]


@pytest.fixture
def runs(histories) -> list[ComparedRun]:
    return [
        ComparedRun(name, each, None)
        for name, each in zip(("fast", "slow", "small"), histories, strict=True)
    ]


@pytest.fixture
def page(qtbot, qapp) -> PanelsPage:
    theme.apply(qapp, "dark")
    made = PanelsPage()
    qtbot.addWidget(made)
    made.resize(1100, 600)
    with qtbot.waitExposed(made):
        made.show()
    return made


def shown(qtbot, page: PanelsPage, runs, *choices: Choice):
    page.set_choices(choices or page.choices)
    page.set_runs(runs)
    qtbot.waitUntil(
        lambda: (
            not page._unmade
            and not page._waiting
            and all(chart.legend.texts for chart in page.charts)
        )
    )
    return page.charts


def lines(chart) -> list[tuple[np.ndarray, np.ndarray]]:
    return [curve.points() for curve in chart.plot.curves if curve.series]


def test_each_run_is_a_line_in_the_colours_and_under_the_names_of_the_comparison(
    qtbot, page, runs, histories
):
    page.controls.smoothingChanged.disconnect()
    page.controls.show_smoothing(0.0)
    (loss, held_out) = shown(
        qtbot, page, runs, Choice("loss", log=False), Choice("val_accuracy")
    )
    assert all(text.endswith(" %") for text in held_out.legend.texts) and not any(
        "%" in t for t in loss.legend.texts
    )
    for (x, y), history in zip(lines(loss), histories, strict=True):
        assert np.array_equal(x, history.steps["step"]) and np.allclose(
            y, history.steps["loss"]
        )
    for (x, y), history in zip(lines(held_out), histories, strict=True):
        assert np.array_equal(x, history.epochs["step"]) and np.allclose(
            y, 100 * history.epochs["val_accuracy"]
        )
    names = [text.rpartition(" ")[0] for text in loss.legend.texts]
    assert names == ["fast", "slow", "small"] and [
        entry.series for entry in loss.legend._entries
    ] == [0, 2, 4]


def test_all_that_runs_have_stored_is_offered_and_read_as_it_is(histories):
    metrics = {metric.key: metric for metric in offered(histories)}
    assert {
        "loss",
        "val_loss",
        "val_accuracy",
        "train_accuracy",
        "rate",
        "gradient_norm",
        "gradient",
        "update",
        "weight",
        "activations.mean",
        "activations.std",
        "activations.zeros",
    } <= set(metrics)
    assert not any(key.startswith(("score:", "part:")) for key in metrics), (
        "which none of them has"
    )
    history, layer = histories[0], histories[0].layers[0]
    norms = history.gradients.matrix()
    assert np.allclose(
        metrics["gradient_norm"].read(history, "").values,
        np.sqrt(np.square(norms).sum(axis=0)),
    )
    assert np.array_equal(metrics["gradient"].read(history, layer).values, norms[0])
    samples = history.seen.histograms["activations"].samples
    name = next(iter(samples[0][1]))
    found = metrics["activations.std"].read(history, name)
    assert found.steps.tolist() == [step for step, _ in samples]
    assert found.values.tolist() == [layers[name].std for _, layers in samples]
    zeros = metrics["activations.zeros"].read(history, name).values
    assert ((zeros >= 0) & (zeros <= 1)).all()
    assert (
        metric_of("score:auroc").title == "Validation AUROC"
        and metric_of("of a later version") is None
    )


def test_histograms_of_a_layer_are_beside_one_another_over_one_axis(
    qtbot, page, runs, histories
):
    layer = next(iter(histories[0].seen.histograms["weights"].samples[-1][1]))
    only = next(
        layer for layer in histories[0].layers if layer not in histories[2].layers
    )
    (chart,) = shown(qtbot, page, runs, Choice("weights.histogram", layer))
    assert chart.bars.isVisible() and not chart.plot.isVisible()
    found = [
        each.seen.histograms["weights"].samples[-1][1].get(layer) for each in histories
    ]
    own = [each for each in found if each is not None]
    assert chart.bars.span() == (
        min(each.low for each in own),
        max(each.high for each in own),
    )
    for text, values in zip(chart.legend.texts, found, strict=True):
        assert (histogram_text(values) if values else "not recorded") in text
    assert all(value for _, value, *_ in chart.legend.fitted_entries()[:2]), (
        "a line each"
    )
    heights = densities(own[0])
    assert math.isclose(sum(heights) * (own[0].high - own[0].low) / len(heights), 1.0)
    middle = (own[0].low + own[0].high) / 2
    (line, *_) = chart.bars.shares_at(chart.bars.x_of(middle) + 0.01)
    at = len(own[0].counts) // 2
    assert f"{100 * own[0].counts[at] / sum(own[0].counts):.2f} %" in line
    chart.setFocus()
    qtbot.keyClick(chart, Qt.Key.Key_Right)  # there are no steps to go along
    assert histogram_text(own[0]) in chart.legend.texts[0]
    qtbot.keyClicks(chart.layer_field, only)
    assert chart.legend.texts[2].startswith("small: not recorded")
    chart.metric_field.setFocus()
    qtbot.keyClicks(chart.metric_field, "Training loss")
    assert chart.plot.isVisible() and not chart.bars.isVisible()


def test_values_that_are_all_equal_or_not_finite_are_shown_and_counted(qtbot):
    bars = RunHistograms()
    qtbot.addWidget(bars)
    equal = Histogram("fc", 2.0, 2.0, (7, 0), 2.0, 0.0, size=9, not_finite=2)
    bars.show_histograms(
        [
            RunHistogram("Run 1", 0, 5, equal),
            RunHistogram("Run 2", 2, 5, Histogram("fc", 0, 0, (0,))),
        ]
    )
    assert densities(equal) == [] and bars.span() == (1.0, 3.0) and bars.grab().width()
    assert histogram_text(equal) == "mean 2.00 ± 0, 2 not finite, 9 values"
    assert bars.shares_at(0) == ["Run 1, step 5: all are 2.00"], (
        "none of a run without finite values"
    )


@pytest.mark.parametrize("choice", ["loss", "weights.histogram"])
def test_a_panel_is_written_as_picture_and_numbers(
    qtbot, page, runs, histories, tmp_path, choice
):
    layer = histories[0].layers[0] if choice != "loss" else ""
    (chart,) = shown(qtbot, page, runs[:2], Choice(choice, layer))
    chart.more.setFocus()
    for kind, start in (
        ("png", b"\x89PNG"),
        ("svg", b"<?xml"),
        ("csv", b"run,layer,step,"),
    ):
        chart.write(tmp_path / f"panel.{kind}", kind)
        assert (tmp_path / f"panel.{kind}").read_bytes().startswith(start)
    assert (
        chart.metric_field.isVisible()
        and not chart.heading.isVisible()
        and chart.more.hasFocus()
    )
    rows = list(csv.DictReader((tmp_path / "panel.csv").open()))
    if choice == "loss":
        losses = [float(row["Training loss"]) for row in rows if row["run"] == "slow"]
        assert losses == histories[1].steps["loss"].tolist()
    else:
        step, layers = histories[1].seen.histograms["weights"].samples[-1]
        of_slow = [row for row in rows if row["run"] == "slow"]
        assert [int(row["count"]) for row in of_slow] == list(layers[layer].counts)
        assert {int(row["step"]) for row in of_slow} == {step}


def test_panels_that_are_made_behind_the_samples_are_beside_one_another(
    qtbot, page, runs
):
    page.resize(760, 400)
    page.set_view("samples")
    shown(qtbot, page, runs, Choice("loss"), Choice("val_loss"))
    page.set_view("metrics")
    assert [
        page.grid.getItemPosition(page.grid.indexOf(chart))[:2] for chart in page.charts
    ] == [(0, 0), (0, 1)]


def test_a_small_page_in_large_text_has_two_rows_of_tools(qtbot, qapp, page, runs):
    shown(qtbot, page, runs, Choice("loss"))
    theme.apply(qapp, "dark", 1.5)
    try:
        for view in ("metrics", "samples"):
            page.set_view(view)
            page.resize(361, 300)
            tools = [
                each
                for each in page.tools.children()
                if isinstance(each, QWidget) and each.isVisible()
            ]
            qtbot.waitUntil(
                lambda tools=tools: (
                    len({each.geometry().center().y() // 30 for each in tools}) <= 2
                )
            )
            assert all(page.tools.rect().contains(each.geometry()) for each in tools), (
                "none is cut"
            )
    finally:
        theme.apply(qapp, "dark", 1.0)


def test_a_run_without_the_metric_says_so_in_the_legend(qtbot, page, runs, histories):
    layer = next(
        layer for layer in histories[0].layers if layer not in histories[2].layers
    )
    (chart,) = shown(qtbot, page, runs, Choice("gradient", layer))
    assert (
        chart.legend.texts[2].startswith("small: not recorded")
        and chart.layer_field.value() == layer
    )
    assert (
        "small: not recorded" in chart.accessibleDescription()
        and chart.accessibleName().endswith(layer)
    )
    labels = [label for label, *_ in chart.legend.fitted_entries()]
    assert labels[2] == "small: not recorded", "in words that are not cut"


def test_metric_and_layer_are_chosen_with_the_keys_and_panels_added_and_removed(
    qtbot, page, runs
):
    (chart,) = shown(qtbot, page, runs, Choice("loss"))
    chart.metric_field.setFocus()
    with qtbot.waitSignal(page.changed):
        qtbot.keyClick(chart.metric_field, Qt.Key.Key_Down)
    assert (
        chart.choice.metric != "loss"
        and chart.metric_field.value() == chart.choice.metric
    )
    qtbot.keyClicks(chart.metric_field, "Layer: gr")
    assert (
        chart.choice == Choice("gradient", runs[0].history.layers[0])
        and chart.layer_field.isVisible()
    )
    chart.layer_field.setFocus()
    qtbot.keyClick(chart.layer_field, Qt.Key.Key_Down)
    assert chart.choice.layer == runs[0].history.layers[1]
    with qtbot.waitSignal(page.changed):
        qtbot.mouseClick(page.add, Qt.MouseButton.LeftButton)
    assert [choice.metric for choice in page.choices] == ["gradient", "loss"], (
        "the first that none shows"
    )
    assert page.charts[1].metric_field.hasFocus()
    page.charts[0].setFocus()
    with qtbot.waitSignal(page.changed):
        qtbot.keyClick(page.charts[0], Qt.Key.Key_Delete)
    assert [choice.metric for choice in page.choices] == ["loss"] and page.charts[
        0
    ].hasFocus()
    qtbot.mouseClick(page.charts[0].close_button, Qt.MouseButton.LeftButton)
    assert page.choices == () and page.add.hasFocus()


def test_panels_share_smoothing_axis_and_cursor(qtbot, page, runs, histories):
    charts = shown(
        qtbot, page, runs, Choice("loss", log=False), Choice("val_loss"), Choice("rate")
    )
    before = [lines(chart)[0][1].copy() for chart in charts]
    page.controls._slider.setFocus()
    qtbot.keyClick(page.controls._slider, Qt.Key.Key_End)
    qtbot.waitUntil(lambda: not np.array_equal(lines(charts[0])[0][1], before[0]))
    qtbot.waitUntil(lambda: not page._waiting)
    assert np.array_equal(lines(charts[1])[0][1], before[1]), (
        "one value an epoch is not smoothed"
    )
    page.controls._mode._segments["epoch"].click()
    qtbot.waitUntil(lambda: not page._waiting)
    assert all(
        chart.plot.view.viewRange()[0] == charts[0].plot.view.viewRange()[0]
        for chart in charts
    )
    assert 2 <= charts[0].plot.view.viewRange()[0][1] < 2.5
    charts[2].setFocus()
    qtbot.keyClick(charts[2], Qt.Key.Key_Left)
    qtbot.keyClick(charts[2], Qt.Key.Key_Left)
    steps = histories[0].steps["step"]
    assert (
        charts[2].plot.readout.isVisible()
        and charts[0].plot.cursor_line._x == charts[2].plot.cursor_line._x
    )
    assert charts[2].plot.cursor_line._x == pytest.approx(
        steps[-2] / histories[0].started.steps_per_epoch
    )
    assert [text.rpartition(" ")[2] for text in charts[2].legend.texts] == [
        "0.100",
        "0.00100",
        "–",
    ]


def test_panels_have_the_room_beside_one_another_that_the_page_has(qtbot, page, runs):
    charts = shown(qtbot, page, runs)
    assert page.across == 3 and charts[3].y() > charts[2].y() == charts[0].y()
    page.resize(480, 300)
    qtbot.waitUntil(lambda: page.across == 1 and charts[1].y() > charts[0].y())
    assert all(chart.height() >= 160 and chart.width() <= 480 for chart in charts), (
        "scrolled inside the page"
    )


def test_runs_may_be_renamed_and_others_chosen(qtbot, page, runs):
    (chart,) = shown(qtbot, page, runs, Choice("loss"))
    page.set_runs([replace(runs[0], label="renamed"), runs[2]])
    qtbot.waitUntil(
        lambda: (
            [text.rpartition(" ")[0] for text in chart.legend.texts]
            == ["renamed", "small"]
        )
    )
    page.set_runs([])
    assert page.empty.isVisible() and not page.add.isEnabled()
