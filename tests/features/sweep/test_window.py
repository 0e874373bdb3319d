"""A sweep in the window: run after run in the background, while one goes on working."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace
from PySide6.QtCore import Qt, QTimer
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QLabel, QPushButton, QToolButton
from pytestqt.qtbot import QtBot

from app.features.sweep.dialog import SweepDialog
from app.project import file as project_file
from app.runs import store
from app.views.ui.dialogs.message import QuestionDialog
from tests.support.run_windows import closed, listed, opened, small
from tests.support.whole_window import WholeWindow
from tests.views.window.test_window import ready

LEFT = Qt.MouseButton.LeftButton


@pytest.fixture
def window(qtbot: QtBot, window: WholeWindow, tmp_path: Path) -> WholeWindow:
    file = tmp_path / "net.tape"
    project_file.write(small(max_steps=3), file)
    window.files.open(file)
    ready(qtbot, window)
    return window


def begun(qtbot: QtBot, window: WholeWindow, **values: str) -> None:
    """Start a sweep by its dialog."""
    window.actions_by_key["sweep"].trigger()
    dialog = window.findChild(SweepDialog)
    qtbot.waitUntil(lambda: bool(dialog.rows))
    for name, text in values.items():
        row = dialog.rows[0] if name == "lr" else dialog.add_row(name)
        row.values.setText(text)
    QTest.keyClick(dialog.rows[0].values, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: window.session.active)


def test_its_runs_train_the_net_that_it_began_with_and_leave_the_pages_alone(
    qtbot: QtBot, window: WholeWindow
) -> None:
    begun(qtbot, window, lr="0.01, 1e30, 0.001")
    assert window.runs.isVisible() and window.sweeps.strip.isVisible()
    assert window.sweeps.strip.words.text().startswith("Run 1 of 3 of sweep-1: lr ")
    project = window.document.project
    node = next(node for node in project.graph.nodes.values() if node.name == "drop1")
    graph = project.graph.with_param(node.id, "p", 0.125)
    window.document.apply("Edit", replace(project, graph=graph))
    window.pages.show("console")
    window.actions_by_key[
        "run"
    ].trigger()  # one run at a time: it is refused by doing nothing
    qtbot.waitUntil(lambda: window.banner.title() == "Sweep-1 is done: 3 runs")
    assert window.console.isVisible(), "no run of it brought its curves to the front"
    states = sorted(run.state for run in window.session.runs)
    assert states == ["done", "done", "failed"]
    assert window.banner.reason().startswith("Smallest validation loss: ")
    assert "1 run failed: lr 1e+30: The loss of step 2 is nan" in window.banner.reason()
    kept = listed(qtbot, window, 3)
    assert {each.record.tags for each in kept} == {
        ("sweep-1",)
    } and not window.sweeps.strip.isVisible()
    rates = set()
    for each in kept:
        trained = store.project_of(each)
        rates.add(rate := trained.training.optimizer.params["lr"])
        assert each.record.name == f"lr {rate}"
        assert trained.graph == project.graph != window.document.project.graph
    assert rates == {0.01, 1e30, 0.001}
    qtbot.mouseClick(window.banner._action, LEFT)
    assert window.runs.isVisible() and window.runs.search.text() == "tags:sweep-1"
    losses = [row.listed.summary.best_loss for row in window.runs.model.rows]
    assert losses[:2] == sorted(losses[:2]) and losses[2] is None, "the best first"
    window.runs.search.clear()
    window.runs.table.sortByColumn(-1, Qt.SortOrder.DescendingOrder)


def test_stop_ends_it_and_it_can_be_continued_or_ended_with_the_window(
    qtbot: QtBot, window: WholeWindow
) -> None:
    project = window.document.project
    window.document.apply(
        "Longer",
        replace(
            project, training=replace(project.training, max_steps=None, epochs=9_999)
        ),
    )
    qtbot.waitUntil(lambda: window.live.up_to_date)
    begun(qtbot, window, lr="0.01, 0.001, 0.0001")
    window.actions_by_key["sweep"].trigger()
    assert window.banner.title() == "A sweep is in progress"
    qtbot.waitUntil(lambda: window.session.state == "running")
    qtbot.mouseClick(window.sweeps.strip.cancel, LEFT)
    qtbot.waitUntil(
        lambda: window.banner.title() == "Sweep-1 was stopped after 1 of 3 runs",
    )
    assert (
        window.banner._action.text() == "Continue sweep" and not window.session.active
    )
    qtbot.mouseClick(window.banner._action, LEFT)
    qtbot.waitUntil(lambda: window.session.state == "running")
    run = window.session.current
    assert (
        run is not None
        and run.series is not None
        and run.series.place == "2 of 3 of sweep-1"
    )
    asked: list[str] = []

    def answer() -> None:
        dialog = QApplication.activeModalWidget()
        assert isinstance(dialog, QuestionDialog)
        asked.append(" ".join(each.text() for each in dialog.findChildren(QLabel)))
        dialog._choose(type(dialog.answer).DISCARD)

    QTimer.singleShot(0, answer)
    assert window.files._runs.may_end(quits=True)
    assert "The sweep ends: 1 run has not begun." in asked[0]
    qtbot.waitUntil(
        lambda: window.banner.title() == "Sweep-1 was stopped after 2 of 3 runs"
    )
    assert len(window.session.runs) == 2 and not window.session.active


def test_its_button_is_there_from_the_start(qtbot: QtBot, tmp_path: Path) -> None:
    """Before any page or command was used."""
    file = tmp_path / "net.tape"
    project_file.write(small(), file)
    window = opened(qtbot, file, charts=False)
    buttons = window.runs.findChildren(QToolButton)
    buttons += window.runs.findChildren(QPushButton)
    assert "Sweep…" in {button.text() for button in buttons}
    closed(window)


def test_a_number_of_the_drawing_varies_and_each_trial_has_its_seeds(
    qtbot: QtBot, window: WholeWindow
) -> None:
    nodes = window.document.project.graph.nodes.values()
    name = next(node.name for node in nodes if node.op == "nn.Linear")
    window.actions_by_key["sweep"].trigger()
    dialog = window.findChild(SweepDialog)
    qtbot.waitUntil(lambda: bool(dialog.rows))
    dialog.add_row(f"{name}.out_features").values.setText("5, 7")
    dialog.seeds.setFocus()
    dialog.seeds.selectAll()
    QTest.keyClicks(dialog.seeds, "2")
    qtbot.waitUntil(lambda: "each with 2 seeds" in dialog.count.text())
    dialog.start_button.click()
    qtbot.waitUntil(lambda: window.banner.title() == "Sweep-1 is done: 2 runs")
    made = {
        (
            next(n for n in of.graph.nodes.values() if n.name == name).params[
                "out_features"
            ],
            of.training.seed - window.document.project.training.seed,
        )
        for of in map(store.project_of, listed(qtbot, window, 4))
    }
    assert made == {(5, 0), (5, 1), (7, 0), (7, 1)}
