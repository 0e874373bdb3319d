"""The page of curves over the events of a real run: what it shows, and what the mouse does."""

from __future__ import annotations

import csv
import io
import json
import math
from collections import Counter
from datetime import datetime
from itertools import pairwise

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace
from PySide6.QtCore import QEvent, QObject, QPoint, QPointF, QRect, QRectF, Qt
from PySide6.QtGui import QFont, QFontMetricsF, QImage, QWheelEvent
from PySide6.QtWidgets import QApplication

from app.engine.watched.reader import Reader
from app.runs.record import TAGGED
from app.training.events import Cut, MemorySample, Started, StepDone
from app.training.history import History
from app.training.loop import train
from app.training.monitoring import watcher
from app.training.surgery.values import Outcome
from app.util import formatting
from app.views.run.session import Run, measure_progress
from app.views.training.charts import export
from app.views.training.charts.card import ChartLegend, LegendEntry, _widths
from app.views.training.charts.charts import MemoryChart, RateChart, ThroughputChart
from app.views.training.charts.curves import Curves
from app.views.training.charts.gradient_map import LayerAxis
from app.views.training.charts.plot import CutLine
from app.views.ui import theme
from tests.support.training_jobs import CONV_NET, job

SMOOTHED = "training, smoothed"


@pytest.fixture(scope="module")
def events():
    """Of a run that was measured at every step: how often it is else hangs on how quick the machine is just then."""
    with pytest.MonkeyPatch.context() as patch:
        for pace in ("LOOKS", "NORMS", "MEMORY"):
            patch.setattr(watcher, pace, (0.0, math.inf))
        return list(train(job(CONV_NET, epochs=3)))


@pytest.fixture
def run(events):
    made = Run(1, job(CONV_NET, epochs=3), datetime.now())
    made.history.extend(events)
    return made


@pytest.fixture
def curves(qtbot, qapp):
    theme.apply(qapp, "dark")
    page = Curves()
    qtbot.addWidget(page)
    page.resize(976, 304)
    with qtbot.waitExposed(page):
        page.show()
    return page


@pytest.fixture
def run_curves(qtbot, curves, run):
    curves.loss.set_loss_name(run.job.training.loss_name)
    curves.set_history(run.history, run.job.source)
    for _ in range(4):  # run_curves, laid out, resized, drawn again
        QApplication.processEvents()
    return curves


def test_a_run_that_goes_on_lays_nothing_out_anew(qtbot, qapp, curves, events):
    """Each time would be a layout of the whole window, once a second, on a core that the run uses."""

    class LayoutRequests(QObject):
        count = 0

        def eventFilter(self, watched, event):
            self.count += event.type() == QEvent.Type.LayoutRequest
            return False

    history, half = History(), len(events) // 2
    history.extend(events[:half])
    curves.set_history(history)
    for _ in range(4):
        QApplication.processEvents()
    requests, shown = LayoutRequests(), set()
    qapp.installEventFilter(requests)
    for event in events[half:]:
        history.extend([event])
        curves.redraw()
        QApplication.processEvents()
        shown.add(curves.chart(ThroughputChart).heading.texts[2])
    qapp.removeEventFilter(requests)
    assert len(shown) > 5, "the figures changed"
    assert requests.count == 0


def drawn(chart, label):
    """The points of the curves of a label, in the view's x and y."""
    of_label = [c for c in chart.plot.curves if c.series and c.series.label == label]
    return [curve.points() for curve in of_label]


def wheel(plot, x=0.5, up=True, modifiers=Qt.KeyboardModifier.NoModifier):
    rect = plot.view.sceneBoundingRect()
    place = QPointF(rect.left() + x * rect.width(), rect.center().y())
    event = QWheelEvent(
        place,
        plot.viewport().mapToGlobal(place),
        QPoint(),
        QPoint(0, 120 if up else -120),
        Qt.MouseButton.NoButton,
        modifiers,
        Qt.ScrollPhase.NoScrollPhase,
        False,
    )
    QApplication.sendEvent(plot.viewport(), event)


def centre(plot, x=0.5, y=0.5):
    rect = plot.view.sceneBoundingRect()
    return QPoint(
        int(rect.left() + x * rect.width()), int(rect.top() + y * rect.height())
    )


def test_an_empty_page_offers_the_run(qtbot, curves):
    assert curves.empty.isVisible() and not curves.cards.isVisible()
    with qtbot.waitSignal(curves.runRequested):
        curves.empty.acted.emit()


def test_runs_are_compared_under_one_smoothing_each_by_its_name(curves, events):
    """The same run twice: equal numbers and curves, and neither is called "training"."""
    histories = [History(), History()]
    for history in histories:
        history.extend(events)
    curves.set_run_name(f"baseline{TAGGED}sgd")
    curves.set_history(histories[0], None, (("Run 2", histories[1]),))
    baseline = f"baseline{TAGGED}sgd"
    for chart in (curves.loss, curves.accuracy):
        own, other = chart.entries(None)
        assert (own.label, own.short, other.label) == (
            f"baseline{TAGGED}sgd",
            "baseline",
            "Run 2",
        )
        assert own.value == other.value and own.series != other.series
    ((_, smoothed),) = drawn(curves.loss, baseline)
    assert np.array_equal(smoothed, drawn(curves.loss, "Run 2")[0][1])
    assert not drawn(curves.loss, "training") and not drawn(curves.loss, "validation")
    assert [len(x) for x, _ in drawn(curves.loss, "")] == [3, 3], "each validation"
    assert (
        "smoothed" in curves.loss.heading.texts[1]
        and "dots: validation" in curves.loss.heading.texts[1]
    )
    curves.set_history(histories[0])
    assert [entry.label for entry in curves.loss.entries(None)] == [
        "training",
        "validation",
    ]
    assert curves.loss.heading.texts[1].startswith("baseline, ")
    assert drawn(curves.loss, "training")


def test_every_number_in_the_legends_was_measured(run_curves, run):
    history = run.history
    last = history.epochs.matrix()[:, -1]
    names = dict(zip(history.epochs.names, last, strict=True))
    assert run_curves.loss.legend.texts == [
        f"training {formatting.figure(history.steps['loss'][-1])}",
        f"validation {formatting.figure(names['val_loss'])}",
    ]
    assert run_curves.accuracy.legend.texts == [
        f"training {100 * names['train_accuracy']:.2f}",
        f"validation {100 * names['val_accuracy']:.2f}",
    ]
    assert run_curves.loss.heading.texts[1] == "CrossEntropyLoss, log scale"
    assert (
        run_curves.chart(ThroughputChart).heading.texts[2]
        == f"{history.samples_per_second():,.0f}"
    )


@pytest.mark.parametrize("choice", ["dark", "light"])
@pytest.mark.parametrize("mode", ["step", "epoch", "time"])
def test_it_is_drawn_in_both_themes_and_by_every_axis(
    qtbot, qapp, run_curves, choice, mode
):
    theme.apply(qapp, choice)
    run_curves.set_mode(mode)
    picture = run_curves.grab().toImage()
    rect = run_curves.gradients.plot
    corner = rect.mapTo(run_curves, centre(rect))
    ramp = {QImage_rgb(color) for color in theme.heat_table()}
    assert picture.pixel(corner) & 0xFFFFFF in ramp
    ((x, y),) = drawn(run_curves.loss, SMOOTHED)
    assert len(x) > 10 and np.isfinite(y).all()


def test_a_run_of_one_step_has_a_point(qtbot, curves, run, events):
    first = next(
        place for place, event in enumerate(events) if isinstance(event, StepDone)
    )
    history = History()
    history.extend(events[: first + 1])
    curves.set_history(history, run.job.source)
    plot = curves.loss.plot
    qtbot.waitUntil(lambda: len(drawn(curves.loss, SMOOTHED)[0][0]) == 1)
    (((x,), (y,)),) = drawn(curves.loss, SMOOTHED)
    spot = plot.mapFromScene(plot.view.mapViewToScene(QPointF(x, y))) - QPoint(1, 0)
    qtbot.waitUntil(
        lambda: plot.grab().toImage().pixelColor(spot) == theme.current().series[0]
    )


def test_labels_of_epochs_are_legible_over_a_curve(run_curves):
    plot, now = run_curves.loss.plot, theme.current()
    line = next(line for line in plot.backdrop.epoch_lines() if line.label)
    corner = plot.mapFromScene(plot.view.mapToScene(QPointF(line.label_at, 0)))
    size = QFontMetricsF(theme.font("axis")).boundingRect(line.label).size().toSize()

    def colors():
        picture = plot.grab(QRect(corner, size)).toImage()
        return Counter(
            picture.pixelColor(x, y).name()
            for x in range(picture.width())
            for y in range(picture.height())
        )

    curve = next(c for c in plot.curves if c.series.label == SMOOTHED)
    (x0, x1), (y0, y1) = plot.view.viewRange()
    beside = colors()
    across = np.linspace(x0, x1, 2000)
    curve.set_points(
        across, np.where(np.arange(2000) % 2, y0, y1)
    )  # over all of the plot
    over = colors()
    assert (
        now.text3.name() in beside
        and over[now.text3.name()] >= beside[now.text3.name()]
    )
    assert now.plot.name() in over, "outlined"


@pytest.mark.parametrize(
    ("width", "scale"),
    [(150, 1.0), (190, 1.0), (240, 1.0), (600, 1.0), (300, 1.5), (360, 1.5)],
)
def test_every_line_of_an_epoch_has_its_number_and_no_two_touch(
    run_curves, monkeypatch, width, scale
):
    font = QFont(theme.font("axis"))
    font.setPointSizeF(font.pointSizeF() * scale)
    monkeypatch.setattr(theme, "font", lambda _role: font)
    backdrop = run_curves.loss.plot.backdrop
    backdrop.boundingRect = lambda: QRectF(0, 0, width, 100)
    backdrop.set_epochs([23.0 * epoch for epoch in range(1, 13)])
    run_curves.loss.plot.view.setXRange(0, 276, padding=0)
    lines, metrics = backdrop.epoch_lines(), QFontMetricsF(theme.font("axis"))
    assert len(lines) > 1 and lines[0].label.startswith("epoch ")
    assert all(line.label.isdecimal() for line in lines[1:] if line.place < width)
    assert all(line.label == "" for line in lines if line.place == width), (
        "nothing follows the last epoch"
    )
    labelled = [line for line in lines if line.label]
    spans = sorted(
        (line.label_at, line.label_at + metrics.horizontalAdvance(line.label))
        for line in labelled
    )
    assert (
        all(one[1] < other[0] for one, other in pairwise(spans))
        and spans[-1][1] < width
    )


def QImage_rgb(color):
    red, green, blue = color
    return red << 16 | green << 8 | blue


def test_the_wheel_zooms_all_charts_and_a_double_click_follows_again(qtbot, run_curves):
    before = run_curves.loss.plot.view.viewRange()[0]
    wheel(run_curves.loss.plot)
    low, high = run_curves.loss.plot.view.viewRange()[0]
    assert high - low < before[1] - before[0] and not run_curves.following
    assert all(
        chart.plot.view.viewRange()[0] == [low, high] for chart in run_curves.charts
    )
    plot = run_curves.accuracy.plot
    qtbot.mouseDClick(plot.viewport(), Qt.MouseButton.LeftButton, pos=centre(plot))
    assert (
        run_curves.following
        and run_curves.chart(MemoryChart).plot.view.viewRange()[0] == before
    )


def test_a_zoomed_page_stays_where_it_is_while_the_run_goes_on(qtbot, run_curves, run):
    wheel(run_curves.loss.plot)
    held = run_curves.loss.plot.view.viewRange()[0]
    for step in range(70, 400):
        run.history.add(StepDone(4, step, 0.5, 64, 1.0 + step / 100))
    run_curves.redraw()
    assert run_curves.loss.plot.view.viewRange()[0] == held
    run_curves.follow()
    assert run_curves.loss.plot.view.viewRange()[0][1] >= 399


def test_ctrl_wheel_zooms_one_chart_upwards_alone(run_curves):
    x, y = run_curves.loss.plot.view.viewRange()
    wheel(run_curves.loss.plot, modifiers=Qt.KeyboardModifier.ControlModifier)
    assert (
        run_curves.loss.plot.view.viewRange()[0] == x
        and run_curves.loss.plot.view.viewRange()[1] != y
    )
    assert run_curves.following
    run_curves.redraw()
    assert run_curves.loss.plot.view.viewRange()[1] != y


def test_dragging_moves_all_charts(qtbot, run_curves):
    plot = run_curves.loss.plot
    port, start = plot.viewport(), centre(plot)
    qtbot.mousePress(port, Qt.MouseButton.LeftButton, pos=start)
    for moved in (10, 30, 60):
        qtbot.mouseMove(port, start - QPoint(moved, 0))
        qtbot.wait(2)
    qtbot.mouseRelease(port, Qt.MouseButton.LeftButton, pos=start - QPoint(60, 0))
    low = plot.view.viewRange()[0][0]
    assert low > 0 and run_curves.gradients.plot.view.viewRange()[0][0] == low


def test_the_cursor_reads_all_charts_at_one_step(qtbot, run_curves, run):
    plot = run_curves.loss.plot
    qtbot.mouseMove(plot.viewport(), centre(plot, 0.9))
    qtbot.waitUntil(plot.readout.isVisible)
    step = int(plot.readout.texts[0].split()[1].replace(",", ""))
    loss = formatting.figure(run.history.steps["loss"][step - 1])
    assert (
        plot.readout.texts[0]
        == f"step {step} epoch {int(run.history.steps['epoch'][step - 1])}"
    )
    assert (
        f"training {loss}" in plot.readout.texts
        and run_curves.loss.legend.texts[0] == f"training {loss}"
    )
    assert any(text.startswith("training, smoothed") for text in plot.readout.texts)
    assert not run_curves.accuracy.plot.readout.isVisible()
    at = {chart.plot.cursor_line._x for chart in run_curves.charts}
    assert at == {float(step)}
    plot.pointed.emit(None)
    assert not plot.readout.isVisible() and {
        chart.plot.cursor_line._x for chart in run_curves.charts
    } == {None}


def test_a_click_on_a_row_or_on_its_name_selects_the_layer(qtbot, run_curves):
    layers = run_curves.gradients.layers
    assert layers == ("conv1", "norm1", "conv2", "linear1")
    plot = run_curves.gradients.plot
    with qtbot.waitSignal(run_curves.layerSelected) as told:
        qtbot.mouseClick(
            plot.viewport(), Qt.MouseButton.LeftButton, pos=centre(plot, 0.5, 2.5 / 4)
        )
    assert told.args == ["conv2"]
    with qtbot.waitSignal(run_curves.layerSelected) as told:
        qtbot.mouseClick(
            plot.viewport(), Qt.MouseButton.LeftButton, pos=centre(plot, -0.1, 0.5 / 4)
        )
    assert told.args == ["conv1"]


def test_hovering_a_row_names_its_layer_and_its_norm(qtbot, run_curves):
    plot, heard = run_curves.gradients.plot, []
    run_curves.layerHovered.connect(heard.append)
    qtbot.mouseMove(plot.viewport(), centre(plot, 0.5, 3.5 / 4))
    qtbot.waitUntil(plot.readout.isVisible)
    assert heard == ["linear1"] and plot.readout.texts[1].startswith("linear1 ")
    plot.pointed.emit(None)
    assert heard == ["linear1", None]


def test_a_selected_node_is_outlined_in_the_map(run_curves):
    run_curves.select_nodes(["conv2", "something else"])
    assert run_curves.gradients._heat._selected == {2}
    run_curves.select_nodes([])
    assert not run_curves.gradients._heat._selected


def test_smoothing_and_scale_are_the_persons(qtbot, run_curves, run):
    run_curves.set_smoothing(0.0)
    np.testing.assert_allclose(run_curves.loss.smoothed, run.history.steps["loss"])
    run_curves.set_smoothing(0.95)
    assert run_curves.loss.smoothed.std() < run.history.steps["loss"].std()
    run_curves.loss.set_log(False)
    assert run_curves.loss.heading.texts[1] == "CrossEntropyLoss, linear"
    low, high = run_curves.loss.plot.view.viewRange()[1]
    assert low == 0 and high > run.history.steps["loss"].max()


def test_a_page_out_of_sight_draws_nothing_until_it_is_seen(qtbot, run_curves, run):
    run_curves.hide()
    run.history.add(StepDone(4, 70, 0.123, 64, 99.0))
    run_curves.refresh()
    qtbot.waitUntil(lambda: not run_curves._timer.isActive())
    assert run_curves.loss.legend.texts[0] != "training 0.123"
    run_curves.show()
    qtbot.waitUntil(lambda: run_curves.loss.legend.texts[0] == "training 0.123")


def test_news_are_drawn_soon(qtbot, run_curves, run):
    run.history.add(StepDone(4, 70, 0.123, 64, 99.0))
    run_curves.refresh()
    qtbot.waitUntil(lambda: run_curves.loss.legend.texts[0] == "training 0.123")


def test_a_new_run_does_not_begin_on_the_axes_of_the_one_before(run_curves):
    run_curves.set_history(History())
    assert run_curves.accuracy.plot.view.viewRange()[1] == [0, 100]
    assert [
        chart.plot.view.viewRange()[1]
        for chart in (run_curves.loss, run_curves.chart(RateChart))
    ] == [[0, 1], [0, 1]]


def test_losses_that_no_log_scale_can_show_are_said_to_be_left_out(run_curves, run):
    for step, loss in enumerate([0.0, -3.0, math.nan, math.inf, 0.5], start=70):
        run.history.add(StepDone(4, step, loss, 64, 1.0 + step))
    run_curves.redraw()
    assert "non-positive values omitted" in run_curves.loss.heading.texts[1]
    run_curves.loss.set_log(False)
    assert run_curves.loss.plot.view.viewRange()[1][0] < -3
    run_curves.grab()


def test_memory_is_called_what_it_is(qtbot, curves, events):
    process, device = History(), History()
    process.extend(events)
    curves.set_history(process)
    assert curves.chart(MemoryChart).heading.texts[:2] == (
        "Resident memory",
        "MiB, of the process",
    )
    assert (
        curves.chart(MemoryChart).legend.texts[0].endswith(" MiB")
        and curves.chart(MemoryChart).rows(1.0)[0][2].count("MiB") == 1
    )
    started = next(event for event in events if isinstance(event, Started))
    device.add(msgspec.structs.replace(started, device="cuda:0"))
    for step in (1, 2, 3):
        device.add(StepDone(1, step, 1.0, 64, step / 10))
        device.add(
            MemorySample(step, step / 10, "device", 20 << 20, 90 << 20, 71 << 20, None)
        )
    curves.set_history(device)
    assert curves.chart(MemoryChart).heading.texts[:2] == (
        "Device memory",
        "MiB, cuda:0",
    )
    assert curves.chart(MemoryChart).legend.texts == [
        "allocated 20.0",
        "peak 71.0",
        "reserved 90.0",
    ]
    mps = History()
    mps.add(msgspec.structs.replace(started, device="mps"))
    mps.add(StepDone(1, 1, 1.0, 64, 0.1))
    mps.add(MemorySample(1, 0.1, "device", 20 << 20, 90 << 20, None, None))
    curves.set_history(mps)
    assert curves.chart(MemoryChart).legend.texts == ["allocated 20.0", "reserved 90.0"]


def test_without_validation_samples_nothing_is_said_of_them(curves):
    history = History()
    history.extend(
        train(job(data=replace(job().data, validation_fraction=0.0), epochs=1))
    )
    curves.set_history(history)
    assert [text.split()[0] for text in curves.loss.legend.texts] == ["training"]
    curves.grab()


def test_the_numbers_can_be_taken_away(run_curves, run):
    rows = list(csv.DictReader(io.StringIO(export.to_csv(run.history))))
    steps, epochs = run.history.steps, run.history.epochs
    assert [float(row["loss"]) for row in rows] == steps["loss"].tolist()
    ends = [row for row in rows if row["val_loss"]]
    assert [float(row["val_accuracy"]) for row in ends] == epochs[
        "val_accuracy"
    ].tolist()
    norms = [row["grad_norm:conv2"] for row in rows if row["grad_norm:conv2"]]
    assert [float(norm) for norm in norms] == run.history.gradients["conv2"].tolist()


@pytest.mark.parametrize("kind", ["png", "svg", "csv"])
def test_the_picture_can_be_taken_away(run_curves, tmp_path, kind):
    path = tmp_path / f"curves.{kind}"
    export.save(run_curves.history, run_curves.cards, path, kind)
    if kind == "png":
        assert QImage(str(path)).size() == run_curves.cards.size() * 2
    elif kind == "svg":
        text = path.read_text("utf-8")
        assert (
            text.startswith("<?xml")
            and "Gradient norm per layer" in text
            and "<polyline" in text
            or "<path" in text
        )


def test_a_folder_that_cannot_be_written_is_told(run_curves, tmp_path):
    with pytest.raises(OSError):
        export.save(
            run_curves.history,
            run_curves.cards,
            tmp_path / "missing" / "curves.csv",
            "csv",
        )


def test_a_heading_without_room_for_its_title_is_short_and_told_in_full(
    run_curves,
) -> None:
    heading = run_curves.gradients.heading
    assert heading.fitted_title(400) == "Gradient norm per layer"
    assert heading.fitted_title(97) == "Per layer", (
        "as wide as it is in a window of 1280"
    )
    assert heading.toolTip() == "Gradient norm per layer, log scale"
    assert (
        run_curves.chart(MemoryChart).heading.toolTip()
        == "Resident memory, MiB, of the process"
    )


def test_a_legend_takes_a_second_line_before_it_leaves_out_the_names(qtbot) -> None:
    legend = ChartLegend()
    qtbot.addWidget(legend)
    entries = [
        LegendEntry("Run 2", "1.49", 0, short="2"),
        LegendEntry("validation", "1.28", 1, "dots"),
        LegendEntry("digit", "1.46", 2),
        LegendEntry("again", "0.0524", 3),
    ]
    legend.resize(2000, 18)
    legend.set_entries(entries)
    assert (
        legend.height() == 18
        and [label for label, *_ in legend.fitted_entries()][1] == "validation"
    )
    one_line = sum(width for *_, width in _widths(entries, True, True))
    legend.resize(int(0.7 * one_line), 18)
    legend.grab()
    assert legend.height() == 36 and all(
        label and value for label, value, *_ in legend.fitted_entries()
    )


def test_every_chart_catches_up_in_turn_when_nothing_more_is_told(qtbot, run_curves):
    run_curves.follow()
    redrawn = []
    for chart in run_curves.charts:
        chart.redraw = lambda chart=chart, redraw=chart.redraw: (
            redrawn.append(chart),
            redraw(),
        )
    last = int(run_curves.history.steps["step"][-1])
    run_curves.history.extend([StepDone(9, last + 1, 0.5, 64, 99.0, 0.001)])
    run_curves.refresh()
    qtbot.waitUntil(lambda: set(redrawn) == set(run_curves.charts))
    assert redrawn[0] is run_curves.loss and redrawn.count(run_curves.loss) == 1


def test_a_line_marks_where_the_net_of_a_run_or_of_one_beside_it_was_edited(
    curves, run, events
) -> None:
    step = int(run.history.steps["step"][5])
    edited = History()
    edited.extend(
        [*events, Cut(1, step, 2, "conv2 inserted", Outcome(), ("conv1",), 10, "")]
    )
    curves.set_history(edited, run.job.source)
    assert curves.loss.plot.backdrop.cuts == (CutLine(step, "conv2 inserted"),)
    curves.set_history(run.history, run.job.source, [("Run 2", edited)])
    (cut,) = curves.loss.plot.backdrop.cuts
    assert (cut.x, cut.text) == (step, "Run 2: conv2 inserted") and cut.series >= 0
    curves.set_mode("epoch")
    assert (
        curves.loss.plot.backdrop.cuts[0].x
        == step / run.history.started.steps_per_epoch
    )


def test_a_run_whose_lines_have_no_times_has_no_throughput(curves, events):
    """What its file was read with is no speed of the run."""
    history = History()
    untimed = [
        msgspec.structs.replace(e, timed=False) if isinstance(e, Started) else e
        for e in events
    ]
    history.extend(untimed)
    curves.set_history(history)
    assert (
        history.samples_per_second() is None and measure_progress(history).eta is None
    )
    assert not drawn(curves.chart(ThroughputChart), "samples/s")
    assert curves.chart(ThroughputChart).heading.texts[1:] == (
        "unknown: this run recorded no times",
        "",
    )
    curves.chart(ThroughputChart).show_cursor(3.0)
    assert curves.chart(ThroughputChart).heading.texts[2] == ""
    reader = Reader(lambda: 5.0, timed=False)
    begun = {
        "event": "started",
        "device": "cpu",
        "epochs": 2,
        "batch_size": 8,
        "seed": 0,
        "parameters": 3,
        "train_count": 80,
        "validation_count": 0,
    }
    assert not reader.event(json.dumps(begun)).timed
    assert reader.event(json.dumps(begun | {"train_count": 0})).timed, (
        "a script tells its own times"
    )


def test_in_a_low_window_all_charts_stand_beside_one_another_and_are_scrolled_to(
    qtbot, run_curves
) -> None:
    run_curves.resize(1400, 500)
    qtbot.waitUntil(lambda: run_curves.chart(RateChart).y() > 0)
    assert all(chart.isVisible() for chart in run_curves.charts)
    run_curves.resize(720, 190)
    qtbot.waitUntil(
        lambda: (
            run_curves.chart(RateChart).y() == 0
            and run_curves.chart(RateChart).x() >= run_curves.accuracy.width() >= 148
        )
    )
    bar = run_curves._scrolled.horizontalScrollBar()
    seen = run_curves.chart(ThroughputChart).visibleRegion().boundingRect().width()
    assert bar.maximum() > 0 and seen < run_curves.chart(ThroughputChart).width()
    bar.setValue(bar.maximum())
    assert (
        run_curves.chart(ThroughputChart).visibleRegion().boundingRect().width()
        == run_curves.chart(ThroughputChart).width()
    )
    assert all(
        chart.width() >= chart.minimumSizeHint().width() for chart in run_curves.charts
    )
    for heading in (chart.heading for chart in run_curves.charts):
        assert heading.fitted_title(heading.width()) in (heading.texts[0], "Per layer")


def test_names_of_layers_never_cover_one_another_even_if_all_are_selected(qapp) -> None:
    axis, rows, height = LayerAxis(), 13, 100.0
    axis.set_names([f"residual_block{row}.conv" for row in range(rows)])
    axis.select(frozenset(range(1, rows)))
    _, places = axis.ticks(0, rows, height)
    apart = min(abs(a - b) for a, b in pairwise(places)) * height / rows
    assert len(places) > 4 and apart >= 11
    axis.select(frozenset({6}))
    _, places = axis.ticks(0, rows, height)
    assert rows - 6 - 0.5 in places, "the selected one has its name"
