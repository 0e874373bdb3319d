"""Console and list of runs: what they say of a run, and what they ask for."""

from __future__ import annotations

import pytest
from PySide6.QtCore import Qt, QUrl
from PySide6.QtGui import QGuiApplication

from app.features.runs import console as console_module
from app.features.runs.console import Console
from app.features.runs.page import RunPanel
from app.features.runs.table_model import STATES
from app.training.events import Paused, Resumed
from app.views.run.transport_deck import LOOKS
from app.views.ui import theme
from tests.support.run_sessions import FAILED, session
from tests.support.training_jobs import job, net

__all__ = ["session"]


@pytest.fixture(autouse=True)
def themed(qapp):
    theme.apply(qapp, "dark")


def test_every_state_of_a_run_has_a_look_and_a_name():
    assert set(STATES) - {"interrupted"} == set(LOOKS) - {"idle"}


@pytest.fixture
def console(qtbot):
    made = Console()
    qtbot.addWidget(made)
    made.resize(700, 200)
    made.show()
    return made


def test_a_traceback_is_one_click_away_and_can_be_copied(qapp, qtbot, console):
    console.log("Captured 12 backward nodes.")
    console.write_events([FAILED])
    shown = console._view.toPlainText
    qtbot.waitUntil(lambda: "Show traceback" in shown())
    assert "Error: no" not in shown()
    console._view.anchorClicked.emit(QUrl("detail:1"))
    qtbot.waitUntil(lambda: "Hide traceback" in shown() and "Error: no" in shown())
    theme.apply(qapp, "light")
    qtbot.waitUntil(lambda: "Error: no" in shown())
    console._view.anchorClicked.emit(QUrl("detail:1"))
    qtbot.waitUntil(lambda: "Show traceback" in shown())
    assert "Error: no" not in shown()
    console.copy_all()
    copied = QGuiApplication.clipboard().text()
    assert "Captured 12 backward nodes." in copied and "Error: no" in copied
    console.clear()
    assert console.texts == [] and shown() == ""


def test_the_console_keeps_the_newest_lines(monkeypatch, qtbot):
    monkeypatch.setattr(console_module, "MOST", 5)
    console = Console()
    qtbot.addWidget(console)
    console.show()

    def lines():
        return [line[10:] for line in console._view.toPlainText().splitlines() if line]

    console.write_events([FAILED])
    qtbot.waitUntil(lambda: len(lines()) == 1)
    for number in range(7):
        console.log(f"line {number}")
    assert console.texts == [f"line {number}" for number in range(2, 7)]
    qtbot.waitUntil(lambda: lines() == console.texts)
    console.write_events([FAILED])
    console._view.anchorClicked.emit(QUrl("detail:8"))
    qtbot.waitUntil(lambda: "Error: no" in console._view.toPlainText())


def test_a_narrower_console_stays_at_its_newest_line_unless_an_older_one_is_read(
    qtbot, console
):
    bar = console._view.verticalScrollBar()
    for number in range(40):
        console.log(
            f"line {number} "
            + "of a run with words that are wrapped in a narrow page " * 2
        )
    qtbot.waitUntil(
        lambda: (
            "line 39" in console._view.toPlainText()
            and bar.value() == bar.maximum() > 0
        )
    )
    console.resize(320, 200)
    qtbot.waitUntil(lambda: bar.maximum() > 1500)
    assert bar.value() == bar.maximum()
    bar.setValue(100)
    console.resize(280, 200)
    console.log("one more line")
    qtbot.waitUntil(lambda: "one more" in console._view.toPlainText())
    assert bar.value() < bar.maximum() - 100


def test_lines_written_out_of_sight_are_there_when_the_page_is_opened(qtbot, console):
    console.log("Seen at once.")
    qtbot.waitUntil(lambda: "Seen at once." in console._view.toPlainText())
    console.hide()
    for number in range(3000):
        console.log(f"line {number}")
    assert (
        console.texts[-1] == "line 2999" and len(console.texts) == console_module.MOST
    )
    console.show()
    qtbot.waitUntil(lambda: "line 2999" in console._view.toPlainText())
    written = [line[10:] for line in console._view.toPlainText().splitlines() if line]
    assert written == console.texts
    bar = console._view.verticalScrollBar()
    assert bar.value() == bar.maximum() > 0


def test_standing_batch_by_batch_is_said_once(console):
    console.write_events([Paused(1, 1), Paused(1, 2)])
    console.write_events([Paused(1, 3), Resumed(1, 3), Paused(1, 9)])
    assert console.texts == [
        "Paused after step 1.",
        "Resumed after step 3.",
        "Paused after step 9.",
    ]


def test_runs_are_compared_although_they_are_listed_anew_meanwhile(qtbot, session):
    panel, compared = RunPanel(), []
    qtbot.addWidget(panel)
    panel.set_session(session)
    panel.compared.connect(compared.append)
    panel.show()
    bad = net(
        ["self.linear1 = nn.Linear(63, 10)"], ["return self.linear1(x.flatten(1))"]
    )
    for _ in range(2):
        session.start(job(bad))
        qtbot.waitUntil(lambda: session.state == "failed")
    panel.table.selectAll()
    panel.set_stored([])
    panel.set_settings(compared[-1], ())
    assert panel.compare.isVisible() and [
        column.title for column in panel.compare.table.cells.columns[1:]
    ] == [
        "Run 2",
        "Run 1",
    ]
    panel.table.selectRow(0)
    panel.set_settings(compared[-1], ())
    assert not panel.compare.isVisible(), "an answer to other rows"


def test_the_runs_of_the_window_with_what_they_reached(qtbot, session):
    panel, chosen = RunPanel(), []
    qtbot.addWidget(panel)
    panel.set_session(session)
    panel.runChosen.connect(chosen.append)
    panel.resize(900, 200)
    panel.show()
    assert panel.empty.isVisible()
    session.start(job(epochs=1))
    qtbot.waitUntil(lambda: session.state == "done")
    bad = net(
        ["self.linear1 = nn.Linear(63, 10)"], ["return self.linear1(x.flatten(1))"]
    )
    session.start(job(bad))
    qtbot.waitUntil(lambda: session.state == "failed")
    model = panel.model

    def text(row, column):
        titles = [shown.title for shown in model.columns]
        return model.index(row, titles.index(column)).data()

    first, second = session.runs
    assert [text(row, "State") for row in (0, 1)] == ["Failed", "Done"]
    assert text(0, "Validation accuracy") == "–" and text(0, "Steps") == "0"
    assert (
        text(1, "Validation accuracy")
        == f"{100 * first.history.epochs['val_accuracy'][-1]:.2f} %"
    )
    assert (text(1, "Device"), text(1, "Epochs")) == ("cpu", "1/1")
    assert (
        text(1, "Optimizer"),
        text(1, "Learning rate"),
        text(1, "Batch size"),
        text(1, "Seed"),
    ) == (
        "Adam",
        "0.001",
        "64",
        "0",
    )
    assert chosen[-1] is second
    spot = panel.table.visualRect(model.index(1, 0)).center()
    qtbot.mouseClick(panel.table.viewport(), Qt.MouseButton.LeftButton, pos=spot)
    assert chosen[-1] is first
    panel.grab()
