"""The page "Sweep": trials as rows and pictures, what is done with them, and sweeps of another process."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace
from PySide6.QtCore import QPointF
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.features.sweep.compute.study import Study
from app.features.sweep.feature import SweepPage
from app.features.sweep.plots import KINDS, Axis, axis_of
from app.features.sweep.values import (
    Search,
    SweepTable,
    TrialRow,
    Values,
    parse_values,
)
from app.project import file as project_file
from app.runs import store
from tests.support.run_windows import small
from tests.support.whole_window import WholeWindow
from tests.views.window.test_window import ready

SPACE = (parse_values("lr", "1e-4..1e-1:log"), parse_values("optimizer", "Adam,SGD"))


def row(number: int, lr: float, loss: float, state: str = "done") -> TrialRow:
    values = Values({"lr": lr, "optimizer": "SGD" if number % 2 else "Adam"})
    made = TrialRow(number, state, values, loss, parameters=100.0 + number)  # type: ignore[arg-type]
    return made


TABLE = SweepTable(
    "sweep-3",
    Search(SPACE, "tpe", trials=5),
    (row(0, 1e-3, 0.5), row(1, 1e-2, 0.25), row(2, 1e-4, 2.0, "pruned")),
    Values({"lr": 0.75, "optimizer": 0.25}),
    tags=("sweep-3", "sweep-1"),
)


def test_trials_are_rows_and_points_and_one_is_chosen_in_both(qtbot: QtBot) -> None:
    page = SweepPage()
    qtbot.addWidget(page)
    page.resize(900, 320)
    with qtbot.waitExposed(page):
        page.show()
    assert not page.tags.isVisible()
    page.show_table(TABLE)
    assert page.words.text() == "3 of 5 trials, 1 pruned, tpe"
    titles = [column.title for column in page.rows.cells.columns]
    assert titles[:5] == ["Trial", "State", "Loss", "lr", "optimizer"]
    assert "Accuracy" not in titles, "no trial has one"
    for kind in KINDS:
        page.kind.set_value(kind)
        page.kind.changed.emit(kind)
        page.plot.grab()
        assert page.cost.isVisible() == (kind == "pareto")
        if kind != "importance":
            places = [place for place, of in page.plot._places if of.number == 1]
            assert places and page.plot.trial_at(places[0]) == TABLE.trials[1], kind
    assert page.plot.trial_at(QPointF(-50, -50)) is None
    page.plot.chosen.emit(1)
    assert page.rows.currentIndex().row() == 1 and page.plot.marked == 1


def test_axes_place_numbers_by_their_logarithm_and_words_evenly() -> None:
    lr = axis_of("lr", [1e-4, 1e-3, 1e-2])
    assert lr.log and lr.at(1e-3) == pytest.approx(0.5) and lr.at(0.0) is None
    words = axis_of("optimizer", ["SGD", "Adam", None])
    assert [words.at(word) for word in ("Adam", "None", "SGD", "LBFGS")] == [
        0.0,
        0.5,
        1.0,
        None,
    ]
    assert Axis("x", 2.0, 2.0).at(2.0) == 0.5 and axis_of("x", [3]).ticks(4)


@pytest.fixture
def window(qtbot: QtBot, window: WholeWindow, tmp_path: Path) -> WholeWindow:
    file = tmp_path / "net.tape"
    project_file.write(small(max_steps=3), file)
    window.files.open(file)
    ready(qtbot, window)
    return window


def test_a_sweep_that_another_process_left_is_shown_steered_and_gone_on_with(
    qtbot: QtBot, window: WholeWindow
) -> None:
    runs = store.runs_beside(window.document.path)
    search = Search((parse_values("lr", "1e-4..1e-2:log"),), "random", trials=2)
    study = Study.begin(runs, window.document.project, search)
    window.pages.show("sweep")
    page: SweepPage = window.pages.widget("sweep")
    qtbot.waitUntil(lambda: page.table is not None)
    assert page.table is not None and page.table.held
    assert not page.go_on.isVisible(), "it is in progress elsewhere"
    trial = study.next()
    assert trial is not None
    study.end(trial.number, "done", [0.5])
    study.close()
    window.pages.shown.emit("sweep")
    qtbot.waitUntil(lambda: page.go_on.isVisible())
    assert page.words.text().startswith("1 of 2 trials")
    page.add.click()
    dialog = QApplication.activeModalWidget()
    qtbot.waitUntil(lambda: bool(dialog.rows))
    dialog.rows[0].values.setText("0.005")
    qtbot.waitUntil(lambda: dialog.count.text().startswith("1 run"))
    dialog.start_button.click()
    qtbot.waitUntil(lambda: "of 3 trials" in page.words.text())
    page.go_on.click()
    qtbot.waitUntil(lambda: window.banner.title() == "Sweep-1 is done: 3 runs")
    qtbot.waitUntil(lambda: page.words.text().startswith("3 of 3 trials"))
    states = [(of.state, of.values["lr"]) for of in page.table.trials]
    assert [state for state, _ in states] == ["done"] * 3 and states[1][1] == 0.005


def test_the_figures_of_a_trial_that_has_ended_are_not_cut(qtbot: QtBot) -> None:
    page = SweepPage()
    qtbot.addWidget(page)
    begun = replace(row(0, 1e-3, 0.0), state="running", value=None)
    page.show_table(replace(TABLE, trials=(begun,)))
    page.show_table(replace(TABLE, trials=(row(0, 1e-3, 0.02647),)))
    loss = [column.title for column in page.rows.cells.columns].index("Loss")
    assert page.rows.columnWidth(loss) >= page.rows.sizeHintForColumn(loss) > 0


def test_the_page_is_offered_where_the_runs_of_a_sweep_are_listed(
    qtbot: QtBot, window: WholeWindow
) -> None:
    assert not window.pages.is_offered("bottom", "sweep")
    runs = store.runs_beside(window.document.path)
    search = Search((parse_values("lr", "1e-4..1e-2:log"),), "random", trials=2)
    Study.begin(runs, window.document.project, search).close()
    window.pages.show("runs")
    qtbot.waitUntil(lambda: window.pages.is_offered("bottom", "sweep"))


def test_a_trial_is_stopped_and_the_sweep_goes_on(
    qtbot: QtBot, window: WholeWindow
) -> None:
    from tests.features.sweep.test_window import begun

    project = window.document.project
    long = replace(project.training, max_steps=None, epochs=9_999)
    window.document.apply("Longer", replace(project, training=long))
    qtbot.waitUntil(lambda: window.live.up_to_date)
    begun(qtbot, window, lr="0.01, 0.001")
    window.pages.show("sweep")
    page: SweepPage = window.pages.widget("sweep")
    qtbot.waitUntil(lambda: window.session.state == "running")
    qtbot.waitUntil(lambda: page.stop.isVisible())
    page.pause.click()
    qtbot.waitUntil(lambda: window.session.state == "paused")
    assert page.pause.text() == "Resume"
    page.pause.click()
    qtbot.waitUntil(lambda: window.session.state == "running")
    page.stop.click()
    qtbot.waitUntil(lambda: len(window.session.runs) == 2)
    qtbot.waitUntil(lambda: window.session.state == "running")
    qtbot.waitUntil(
        lambda: page.table is not None and page.table.trials[0].state == "pruned"
    )
    assert page.table.trials[0].note.startswith("stopped at epoch ")
    window.sweeps.cancel()
    qtbot.waitUntil(lambda: window.banner.title() == "Sweep-1 is done: 2 runs")
