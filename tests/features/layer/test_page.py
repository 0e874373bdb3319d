"""The map of layers and steps shows what was chosen, and names what goes wrong."""

import numpy as np
import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QFontMetricsF

from app.features.layer.cards import InsideCard
from app.features.layer.page import LayerPage
from app.telemetry.histogram import BINS, Histogram
from app.training.events import (
    GradientNorms,
    Histograms,
    LayerFigures,
    Started,
    StepDone,
)
from app.training.history import History
from app.training.monitoring.looks import Channels, LayerInside
from app.views.training.charts.card import LINE, ChartLegend, LegendEntry
from app.views.training.charts.curves import Curves
from app.views.ui import theme
from tests.support.training_jobs import SMALL_NET, net


@pytest.fixture
def history() -> History:
    history = History()
    history.add(Started("cpu", None, 1, 64, 20, 0, 10, ("linear1", "linear2"), 64, 0))
    for step in range(1, 21):
        history.add(StepDone(1, step, 1.0, 64, step / 10))
        history.add(
            GradientNorms(step, history.layers, (1e-9 if step > 10 else 0.1, 1.0))
        )
    for step, dead in ((1, 0.0), (10, 0.25), (20, 0.5)):
        history.add(
            LayerFigures(
                step, history.layers, (2.0, 4.0), (1e-3, 1e-2), ("act1",), (dead,)
            )
        )
    return history


@pytest.fixture
def run_curves(qtbot, history) -> Curves:
    curves = Curves()
    qtbot.addWidget(curves)
    curves.resize(1400, 310)
    curves.set_history(history, SMALL_NET)
    with qtbot.waitExposed(curves):
        curves.show()
    return curves


def test_the_quantity_is_chosen_in_the_list_by_keys(qtbot, run_curves):
    chart = run_curves.gradients
    assert (
        chart.layers == ("linear1", "linear2")
        and chart.heading.texts[0] == "Gradient norm per layer"
    )
    chart.choice.setFocus()
    for _ in range(3):
        qtbot.keyClick(chart.choice, Qt.Key.Key_Down)
    assert chart._quantity == "dead" and chart.layers == ("act1",)
    assert (
        chart.heading.texts[0] == "Dead units per layer"
        and chart._ramp.accessibleName() == "0 % to 100 %"
    )


def test_a_share_that_is_nearly_nothing_or_all_is_not_shown_as_such(
    run_curves, history
):
    for step, dead, text in (
        (21, 0.0004, "< 0.1 %"),
        (22, 0.9996, "> 99.9 %"),
        (23, 1.0, "100 %"),
        (24, 0.0, "0 %"),
    ):
        history.add(StepDone(1, step, 1.0, 64, step / 10))
        history.add(GradientNorms(step, history.layers, (0.1, 1.0)))
        history.add(
            LayerFigures(
                step, history.layers, (2.0, 4.0), (1e-3, 1e-2), ("act1",), (dead,)
            )
        )
        chart = run_curves.gradients
        chart.set_quantity("dead")
        chart.redraw()
        chart._hovered = 0
        assert chart.rows(float(step))[0][2] == text


def test_each_quantity_tells_its_figures_at_the_cursor(run_curves):
    chart = run_curves.gradients
    for key, row, at, text in (
        ("weight", 1, 19, "4.00"),
        ("update", 0, 19, "0.00100"),
        ("dead", 0, 12, "25 %"),
    ):
        chart.set_quantity(key)
        chart._hovered = row
        assert chart.rows(at)[0][2] == text
    assert chart.note_at(12) == "measured at 10"


def test_the_layer_whose_gradient_vanishes_is_named_in_words(run_curves, history):
    words = run_curves.gradients.words
    assert (
        words.isVisible()
        and "vanishes" in words.toolTip()
        and "linear1" in words.toolTip()
    )
    run_curves.gradients.set_cause("The learning rate is too large")
    assert words.toolTip() == "linear1: The learning rate is too large"
    run_curves.gradients.set_cause("")
    assert not words.isVisible(), "something else is said of the run"
    run_curves.gradients.set_cause(None)
    assert words.isVisible()
    for step in range(21, 40):
        history.add(StepDone(1, step, 1.0, 64, step / 10))
        history.add(GradientNorms(step, history.layers, (0.1, 1.0)))
    run_curves.redraw()
    assert not words.isVisible()


def test_a_run_without_looks_shows_an_empty_map(qtbot):
    curves, history = Curves(), History()
    qtbot.addWidget(curves)
    history.add(Started("cpu", None, 1, 64, 20, 0, 10, ("a",), 64, 0))
    curves.set_history(history, SMALL_NET)
    for key in ("weight", "update", "dead"):
        curves.gradients.set_quantity(key)
        assert curves.gradients.bounds is None


def some(low: float, high: float) -> Histogram:
    return Histogram("linear1", low, high, (1,) * BINS, 0.0, 1.0, size=BINS)


def test_the_page_of_a_layer_shows_how_its_values_are_spread_and_how_far_they_move(
    qtbot, history
):
    for step in (1, 10, 20):
        history.add(Histograms(step, "weights", (some(-1.0, 1.0 + step),)))
    page = LayerPage()
    qtbot.addWidget(page)
    page.resize(1400, 310)
    page.set_history(history)
    page.set_layers(("linear1", "linear2"))
    with qtbot.waitExposed(page):
        page.show()
    shown = "\u22121.00 to 21.0 at 20"
    assert (
        page.list.currentText() == "linear1" and page.values.heading.texts[1] == shown
    ), "the one that the list names"
    with qtbot.waitSignal(page.layerChosen) as told:
        page.list.setFocus()
        qtbot.keyClick(page.list, Qt.Key.Key_Down)
    assert told.args == ["linear2"] and page.values.heading.texts[1] == "none yet"
    page.show_layer("linear1")
    assert page.list.value() == "linear1"
    assert (
        page.values.heading.texts[1] == shown
        and page.ratio.heading.texts[2] == "0.00100"
    )
    assert [name for name, _ in page.values.figures.figures] == [
        "norm",
        "mean",
        "std",
        "largest",
    ]
    assert [(each.name, each.ok) for each in page.health.list.checks] == [
        ("Update / weight", True)
    ]
    low, high = page.ratio.plot.view.viewRange()[1]
    assert low < -3 < high
    page.values.kind.set_value("gradients")
    assert page.values.heading.texts[1] == "none yet"


def test_figures_keep_their_distance_and_the_usual_ratio_has_its_name_in_the_chart(
    qtbot, qapp, history
):
    history.add(Histograms(1, "weights", (some(-1.23e-4, 1.1e-4),)))
    page = LayerPage()
    qtbot.addWidget(page)
    page.resize(700, 200)
    page.set_history(history)
    page.set_layers(("linear1",))
    page.show()
    theme.apply(qapp, "dark", 1.5)
    figures, metrics = page.values.figures, QFontMetricsF(theme.font("section"))
    assert (
        figures.minimumWidth() <= figures.width()
        and figures.height() >= 2 * metrics.height() - 4
    )
    lefts = figures.columns()
    for left, right, (_, value) in zip(lefts, lefts[1:], figures.figures, strict=False):
        assert left + metrics.horizontalAdvance(value) + 8 <= right
    area, words = page.ratio._usual.area()
    assert "usual" in words and page.ratio.plot.view.rect().contains(area)
    theme.apply(qapp, "dark", 1.0)


def test_the_inside_of_a_layer_is_shown_with_what_it_was_made_from(qtbot):
    card = InsideCard()
    qtbot.addWidget(card)
    card.resize(600, 300)
    card.show()
    assert "Choose a layer" in card.words.text() and card.shown_channels is None
    channels = Channels(
        np.arange(48, dtype=np.float32).reshape(3, 4, 4), 5, "conv1: 5×4×4"
    )
    card.show_inside(
        LayerInside(
            "conv1",
            7,
            100,
            "3",
            np.zeros((1, 8, 8)),
            channels,
            None,
            "fresh weights, seed 0",
        )
    )
    assert card.grid.count == 3 and card.picture.isVisible()
    assert card.heading.texts[1] == "conv1: 5×4×4; 2 more"
    assert card.words.text() == "of 100, label 3; with fresh weights, seed 0"
    card.what.set_value("filters")
    assert card.grid.count == 0 and card.heading.texts[1] == "no filters to display"
    with qtbot.waitSignal(card.wanted) as told:
        card.sample.setFocus()
        qtbot.keyClick(card.sample, Qt.Key.Key_Up)
    assert told.args == [1]


def test_a_click_on_a_row_of_dead_units_selects_the_layer(qtbot, history):
    source = net(
        [
            "self.linear1 = nn.Linear(64, 16)",
            "self.act1 = nn.ReLU()",
            "self.linear2 = nn.Linear(16, 10)",
        ],
        ["x = self.act1(self.linear1(x.flatten(1)))", "return self.linear2(x)"],
    )
    curves = Curves()
    qtbot.addWidget(curves)
    curves.set_history(history, source)
    curves.gradients.set_quantity("dead")
    with qtbot.waitSignal(curves.layerSelected) as told:
        curves.gradients.layerClicked.emit("act1")
    assert told.args == ["act1"]


def test_a_legend_without_room_for_everything_keeps_the_names(qtbot):
    legend = ChartLegend()
    qtbot.addWidget(legend)
    names = ("the main group", "conv1", "layers.0.attention", "fc2")
    legend.set_entries(
        [
            LegendEntry(name, "0.00100", number, short="main" if not number else "")
            for number, name in enumerate(names)
        ]
    )
    with qtbot.waitExposed(legend):
        legend.show()
    for width in (1000, 400, 300, 240, 182):
        legend.resize(width, legend.height())
        shown = legend.fitted_entries()
        assert all(label for label, *_ in shown), (
            "a value without its name says nothing"
        )
        lines = legend.height() // LINE
        assert sum(row_width for *_, row_width in shown) <= lines * (width + 16)
    assert [value for _, value, *_ in shown] == [""] * 4 and shown[1][0] == "conv1"
    assert legend.toolTip().splitlines()[1] == "conv1 0.00100"
