"""The gain ladder over the steps of a run: its map, its words, and the page without a captured batch."""

import math

import pytest
from PySide6.QtWidgets import QLabel

from app.training.history import History
from app.training.monitoring import watcher
from app.views.autograd.findings.findings_page import FINDINGS, GAIN, OVER, FindingsPage
from app.views.autograd.findings.gain_over_steps import NO_GAINS, NO_RUN, GainsOverRun
from tests.support.training_jobs import CONV_NET, job, net, run

DEEP = net(
    [f"self.linear{n} = nn.Linear({64 if n == 1 else 16}, 16)" for n in range(1, 13)]
    + [f"self.act{n} = nn.Sigmoid()" for n in range(1, 13)],
    [
        "x = x.flatten(1)",
        *(f"x = self.act{n}(self.linear{n}(x))" for n in range(1, 13)),
        "return x[:, :10]",
    ],
)


def label_texts(widget):
    return [part.text() for part in widget.findChildren(QLabel)]


def trained(source, steps):
    history = History()
    history.extend(run(job(source, max_steps=steps)))
    return history


@pytest.fixture
def every_step(monkeypatch):
    for name in ("LOOKS", "NORMS", "MEMORY"):
        monkeypatch.setattr(watcher, name, (0.0, math.inf))


@pytest.fixture
def gain_page(qtbot) -> GainsOverRun:
    made = GainsOverRun()
    qtbot.addWidget(made)
    made.resize(900, 260)
    made.show()
    qtbot.waitExposed(made)
    return made


def test_a_run_whose_gradient_vanishes_is_drawn_and_its_layer_named(
    gain_page, every_step, qtbot
):
    history = trained(DEEP, 4)
    gain_page.set_history(history)
    assert (
        gain_page.rule.text().startswith("Vanishes first at ")
        and "measured step" in gain_page.rule.text()
    )
    assert (
        gain_page.map.isVisible()
        and gain_page.map.layers[0] == "linear1"
        and gain_page.map.layers[-1] == "Net"
    )
    assert gain_page.map.bounds.high >= 1 > 1e-3 > gain_page.map.bounds.low
    assert list(gain_page.map.steps)[0] == 1
    row = gain_page.map.layers.index("act12")
    gain_page.map._hovered = row
    value = history.seen.tables["reach"].columns["act12"][0]
    first = gain_page.map.scale.x_of(gain_page.map.steps)[0]
    assert gain_page.map.rows(first)[0][1] == "act12" and 0 < value
    with qtbot.waitSignal(gain_page.layerChosen) as chosen:
        gain_page.map._clicked(1.0, len(gain_page.map.layers) - row - 0.5)
    assert chosen.args == ["act12"]


def test_what_is_left_is_told_again_as_the_run_goes_on(gain_page):
    history = History()
    events = run(job(CONV_NET, max_steps=3))
    history.extend(events[:1])
    gain_page.set_history(history)
    assert gain_page.empty.isVisible() and NO_GAINS[0] in label_texts(gain_page.empty)
    history.extend(events[1:])
    gain_page.set_history(history)
    assert gain_page.map.isVisible() and gain_page.rule.text().startswith(
        "No gradient vanishes or explodes"
    )


def test_the_page_shows_the_run_without_a_captured_batch(qtbot):
    page = FindingsPage()
    qtbot.addWidget(page)
    page.resize(900, 300)
    page.show()
    assert page.over.isHidden() and page.page == FINDINGS
    page.turn_to(GAIN)
    assert page.over.isVisible() and page.empty.isVisible() and not page.over_run
    page.over.set_value(OVER)
    assert page.over_run and page.steps.isVisible() and page.run.isHidden()
    assert page.steps.empty.isVisible() and NO_RUN[0] in label_texts(page.steps.empty)
    with qtbot.waitSignal(page.steps.runRequested):
        page.steps.empty.acted.emit()
