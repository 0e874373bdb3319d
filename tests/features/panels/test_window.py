"""The page "Panels" in the window: the runs that are selected, panels that are there again, runs that go."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec.structs import replace
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication, QWidget
from shiboken6 import isValid

from app.main import main
from app.project import file as project_file
from app.project import file_lock
from app.runs import store
from app.training.config import Choice as Setting
from app.util.frozen import FrozenMap
from app.views.pictures import headless_pictures
from app.views.training.charts.metrics import Choice
from app.views.ui import theme
from tests.support.needs import needs
from tests.support.run_windows import closed, listed, opened, run, small
from tests.support.whole_window import WholeWindow

pytestmark = needs("runs")  # where they are selected


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a project and two runs of it, at two rates."""
    folder = tmp_path_factory.mktemp("trained")
    project = small()
    slow = replace(project.training, optimizer=Setting("Adam", FrozenMap(lr=1e-5)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(headless_pictures, "run_pictures", lambda *_: None)
        for number, training in enumerate((project.training, slow)):
            project_file.write(replace(project, training=training), folder / "net.tape")
            assert (
                main(
                    [
                        "train",
                        str(folder / "net.tape"),
                        "--out",
                        str(folder / f"{number}"),
                    ]
                )
                == 0
            )
            (kept,) = store.listed(folder / f"{number}" / "runs")
            store.move(kept, store.runs_beside(folder / "net.tape"))
    project_file.write(project, folder / "net.tape")
    return folder


@pytest.fixture
def path(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "copy")) / "net.tape"


@pytest.fixture
def window(qtbot, qapp, path: Path) -> Iterator[WholeWindow]:
    theme.apply(qapp, "dark")
    made = opened(qtbot, path)
    try:
        listed(qtbot, made, 2)
        yield made
    finally:
        if isValid(made):
            closed(made)


def compared(qtbot, window: WholeWindow, count: int = 2) -> None:
    """Select all runs on the page Runs, and press Panels."""
    window.pages.show("runs")
    window.runs.table.selectAll()
    qtbot.waitUntil(lambda: window.runs.panels.isEnabled())
    qtbot.mouseClick(window.runs.panels, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(
        lambda: window.furnished and len(window.panels.runs) == count and drawn(window)
    )


def drawn(window: WholeWindow) -> bool:
    page = window.panels
    return (
        not page._unmade
        and not page._waiting
        and all(chart.legend.texts for chart in page.charts)
    )


def test_selected_runs_are_shown_and_their_panels_are_there_again_after_a_restart(
    qtbot, window, path
) -> None:
    tabs = window.centre.tabs
    assert not tabs.isTabVisible(tabs.index("panels")), "until it is asked for"
    compared(qtbot, window)
    page = window.panels
    assert window.centre.page == "panels" and [run.label for run in page.runs] == [
        "Run 2",
        "Run 1",
    ]
    layer = page.runs[0].history.layers[0]
    qtbot.mouseClick(page.charts[0].close_button, Qt.MouseButton.LeftButton)
    page.charts[0].metric_field.setFocus()
    qtbot.keyClicks(page.charts[0].metric_field, "Layer: gr")
    expected = (Choice("gradient", layer), *(chart.choice for chart in page.charts[1:]))
    assert page.choices == expected
    closed(window)
    again = opened(qtbot, path)
    try:
        listed(qtbot, again, 2)
        compared(qtbot, again)
        assert (
            again.panels.choices == expected
            and again.panels.charts[0].layer_field.value() == layer
        )
    finally:
        closed(again)


def text(window: WholeWindow, row: int, column: int) -> str:
    model = window.panels.samples.model
    return model.index(row, column).data(Qt.ItemDataRole.AccessibleTextRole)


def pictured(window: WholeWindow) -> bool:
    view = window.panels.samples
    return (
        bool(view.model.rows)
        and view.model.index(0, 0).data(Qt.ItemDataRole.DecorationRole) is not None
    )


def tabbed_to(qtbot, target: QWidget) -> None:
    """Press Tab until a widget has the keys."""
    for _ in range(20):
        focused = QApplication.focusWidget()
        if focused is target:
            return
        qtbot.keyClick(focused, Qt.Key.Key_Tab)
    raise AssertionError("Tab does not lead there")


def test_samples_are_evaluated_in_the_column_of_a_run_and_stored(
    qtbot, window, path
) -> None:
    compared(qtbot, window)
    view = window.panels.samples
    qtbot.mouseClick(window.panels.view._segments["samples"], Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: all("is stored" in column.words for column in view.columns))
    window.activateWindow()
    qtbot.waitUntil(window.isActiveWindow)
    assert "Evaluate a run" in view.model.index(0, 0).data(), "in place of samples"
    view.part.setFocus()
    for place in (0, 1):
        tabbed_to(qtbot, view.cells[place].evaluate)
        qtbot.keyClick(view.cells[place].evaluate, Qt.Key.Key_Space)
        assert view.columns[place].busy and view.cells[place].cancel.hasFocus()
    qtbot.waitUntil(
        lambda: all(column.evaluation for column in view.columns) and pictured(window)
    )
    assert (
        not view.cells
        and view.chosen_order == "differ"
        and window.panels.samples.table.hasFocus()
    )
    slow, fast = (column.evaluation.found for column in view.columns)
    (numbers,) = view.model.rows[0]
    assert numbers[0] == numbers[1], "they are of one split"
    said = [
        found.name(int(found.columns["called"][numbers[0], 0]))
        for found in (slow, fast)
    ]
    assert said[0] != said[1] and text(window, 0, 1).startswith(f"Run 2, {said[0]}, ")
    target = slow.name(int(slow.columns["true"][numbers[0], 0]))
    assert f"target {target}" in text(window, 0, 0)
    word = "right" if said[1] == target else "wrong"
    assert text(window, 0, 2).startswith(f"Run 1, {said[1]}, {word}"), "in words"
    view.table.setCurrentIndex(view.model.index(20, 1))
    view.table.verticalScrollBar().setValue(500)
    shown = len(view.model.rows)
    assert view.model.headerData(0, Qt.Orientation.Horizontal).startswith(
        f"{shown} of "
    )
    qtbot.mouseClick(view.more, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: len(view.model.rows) > shown)
    assert (
        view.table.currentIndex().row(),
        view.table.verticalScrollBar().value(),
    ) == (20, 500)
    view.order.setFocus()
    qtbot.keyClicks(view.order, "Miscl")
    qtbot.waitUntil(
        lambda: (
            "wrong" in text(window, 0, 1) + text(window, 0, 2)
            and view.chosen_order == "wrong"
        )
    )
    closed(window)
    again = opened(qtbot, path)
    try:
        listed(qtbot, again, 2)
        compared(qtbot, again)
        assert again.panels.view.value() == "samples"
        qtbot.waitUntil(lambda: pictured(again))
        assert [
            column.evaluation.found.loss for column in again.panels.samples.columns
        ] == [slow.loss, fast.loss]
    finally:
        closed(again)


def test_an_evaluation_is_cancelled_and_one_of_weights_that_changed_is_offered_again(
    qtbot, window
) -> None:
    compared(qtbot, window)
    view = window.panels.samples
    qtbot.mouseClick(window.panels.view._segments["samples"], Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: len(view.cells) == 2)
    qtbot.mouseClick(view.cells[0].evaluate, Qt.MouseButton.LeftButton)
    qtbot.mouseClick(view.cells[0].cancel, Qt.MouseButton.LeftButton)
    assert (
        not view.columns[0].busy
        and view.columns[0].words == "The evaluation was cancelled."
    )
    qtbot.mouseClick(view.cells[0].evaluate, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: view.columns[0].evaluation is not None)
    assert 1 in view.cells and view.cells[1].evaluate.isVisible(), (
        "the other run has none still"
    )
    (newest, _) = listed(qtbot, window, 2)
    (newest.checkpoints / "best.pt").touch()
    store.changed(newest, state="running")
    lock = file_lock.Lock(newest.folder / store.LOCK)  # as who trains it holds it
    view.part.setFocus()
    qtbot.keyClick(view.part, Qt.Key.Key_Down)
    qtbot.keyClick(view.part, Qt.Key.Key_Up)
    qtbot.waitUntil(
        lambda: (
            0 in view.cells and view.columns[0].goes_on and not view.columns[1].goes_on
        )
    )
    qtbot.mouseClick(view.cells[0].evaluate, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: view.columns[0].evaluation is not None)
    assert view.model.headerData(1, Qt.Orientation.Horizontal).endswith(
        "\nrun in progress"
    )
    (newest.checkpoints / "best.pt").touch()
    store.changed(newest, state="done")
    lock.release()
    window.session.runEnded.emit(
        SimpleNamespace(figures=SimpleNamespace(folder=newest.folder))
    )
    qtbot.waitUntil(lambda: "have changed" in view.columns[0].words and 0 in view.cells)
    qtbot.mouseClick(view.cells[0].evaluate, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: view.columns[0].evaluation is not None and pictured(window))
    (newest.checkpoints / "best.pt").touch()
    view.part.setFocus()
    qtbot.keyClick(view.part, Qt.Key.Key_Down)
    qtbot.keyClick(view.part, Qt.Key.Key_Up)
    qtbot.waitUntil(lambda: "have changed" in view.columns[0].words and 0 in view.cells)


def test_an_answer_about_a_run_that_is_no_longer_shown_is_dropped(
    qtbot, window
) -> None:
    compared(qtbot, window)
    view = window.panels.samples
    qtbot.mouseClick(window.panels.view._segments["samples"], Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: len(view.cells) == 2)
    qtbot.mouseClick(view.cells[1].evaluate, Qt.MouseButton.LeftButton)
    window.runs.table.selectRow(0)
    qtbot.mouseClick(window.runs.panels, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(
        lambda: (
            len(window.panels.runs) == 1
            and 0 in view.cells
            and not view.columns[0].busy
        )
    )
    qtbot.mouseClick(view.cells[0].evaluate, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: view.columns[0].evaluation is not None and pictured(window))
    assert [column.label for column in view.columns] == ["Run 2"]


def test_a_run_is_renamed_and_deleted_while_it_is_shown(qtbot, window) -> None:
    compared(qtbot, window)
    model = window.runs.model
    assert model.setData(model.index(1, 0), "baseline")
    qtbot.waitUntil(
        lambda: [run.label for run in window.panels.runs] == ["Run 2", "baseline"]
    )
    qtbot.waitUntil(
        lambda: any(
            text.startswith("baseline") for text in window.panels.charts[0].legend.texts
        )
    )
    (_, first) = listed(qtbot, window, 2)
    other = store.begin(
        store.runs_beside(window.document.path), window.document.project
    )
    window.runs_control.delete([other])
    qtbot.waitUntil(lambda: not other.folder.exists() and not window.background.busy)
    assert [run.label for run in window.panels.runs] == ["Run 2", "baseline"], (
        "another one went"
    )
    window.runs_control.delete([first])
    qtbot.waitUntil(lambda: window.panels.empty.isVisible() and not window.panels.runs)
    assert not store.runs_beside(window.document.path).joinpath("0001").exists()


def test_a_run_that_goes_on_is_followed(qtbot, window) -> None:
    window.pages.show("panels")
    qtbot.waitUntil(lambda: window.furnished)
    run(qtbot, window)
    qtbot.waitUntil(
        lambda: (
            [each.label for each in window.panels.runs] == ["Run 3"] and drawn(window)
        )
    )
    newest = window.session.history.steps["step"][-1]
    qtbot.waitUntil(
        lambda: newest in window.panels.charts[0].plot.curves[0].points()[0]
    )


def test_the_page_pushes_no_tab_out_of_the_bar(qtbot, window) -> None:
    tabs, pages = window.centre.tabs, window.pages
    for width in range(1100, 1500, 40):
        pages.show("network")
        pages.set_offered("panels", False)
        window.resize(width, 760)
        QApplication.processEvents()
        pages.show("panels")
        QApplication.processEvents()
        out = [
            tabs.tabText(place)
            for place in range(tabs.count())
            if tabs.isTabVisible(place)
            and not tabs.rect().contains(tabs.tabRect(place))
        ]
        assert not out, width
