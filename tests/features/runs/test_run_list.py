"""The page Runs: names, notes and tags are edited in place; runs are filtered, sorted, and their columns chosen."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication, QLineEdit, QMenu
from pytestqt.qtbot import QtBot

from app.features.runs.page import RunPanel
from app.features.runs.table_model import NAME, STATE
from app.project import file as project_file
from app.project import file_lock
from app.runs import list_columns, store
from app.runs.checkpoint_files import measured
from app.runs.record import Summary
from app.training.config import Choice
from app.util.frozen import FrozenMap
from app.util.resources import path as resource_path
from app.views.ui import theme

EXAMPLE = project_file.read(resource_path("examples", "digits.tape"))
RATES = (0.1, 0.001, 0.01)


@pytest.fixture
def panel(qtbot: QtBot, tmp_path: Path) -> RunPanel:
    for number, lr in enumerate(RATES):
        training = replace(
            EXAMPLE.training, optimizer=Choice("SGD", FrozenMap(lr=lr)), seed=number
        )
        kept = store.begin(tmp_path, replace(EXAMPLE, training=training))
        store.changed(
            kept,
            state="done",
            summary=Summary(epochs=1, steps=23, best_loss=1 / (number + 1)),
        )
    made = RunPanel()
    qtbot.addWidget(made)
    made.resize(1280, 300)
    made.show()
    made.set_stored(store.listed(tmp_path))
    return made


def column(panel: RunPanel, title: str) -> list[str]:
    at = titles().index(title)
    return [panel.model.index(row, at).data() for row in range(panel.model.rowCount())]


def test_a_filter_and_a_heading_arrange_the_runs_and_keep_the_selection(
    qtbot: QtBot, panel: RunPanel
) -> None:
    panel.table.selectRow(2)
    assert panel.selected_rows[0].title == "Run 1"
    header = panel.table.horizontalHeader()

    def click(title: str) -> None:
        at = titles().index(title)
        panel.table.scrollTo(panel.model.index(0, at))
        spot = header.viewport().rect().topLeft()
        spot.setX(header.sectionViewportPosition(at) + 12)
        spot.setY(header.height() // 2)
        qtbot.mouseClick(header.viewport(), Qt.MouseButton.LeftButton, pos=spot)

    click("Learning rate")
    assert column(panel, "Learning rate") == ["0.001", "0.01", "0.1"]
    assert [row.title for row in panel.selected_rows] == ["Run 1"]
    click("Learning rate")
    assert column(panel, "Learning rate") == ["0.1", "0.01", "0.001"]
    click("Learning rate")
    assert column(panel, "Run") == ["Run 3", "Run 2", "Run 1"], "newest on top again"
    qtbot.keyClicks(panel.search, "lr<0.05 sgd")
    assert (
        column(panel, "Run") == ["Run 3", "Run 2"]
        and "2 of 3 runs shown" in panel._hint.text()
    )
    panel.search.setText("rate<1")
    assert "no column “rate”" in panel._hint.text() and column(panel, "Run") == [
        "Run 3",
        "Run 2",
    ]
    panel.search.clear()
    assert len(column(panel, "Run")) == 3


def test_a_selected_run_that_the_filter_hides_is_selected_again_and_nothing_is_done_to_it_meanwhile(
    qtbot: QtBot, panel: RunPanel
) -> None:
    panel.table.selectRow(2)
    qtbot.keyClicks(panel.search, "lr<0.05")
    assert not panel.selected_rows
    assert "Run 1 is selected, but the filter hides it." in panel._hint.text()
    for button in (panel.go_on, panel.fork):
        assert (
            not button.isEnabled()
            and button.toolTip() == "Clear the filter, which hides Run 1"
        )
    assert not panel.restore.isEnabled() and panel.curves.isEnabled()
    panel.table.sortByColumn(NAME, Qt.SortOrder.AscendingOrder)
    panel.search.clear()
    assert [row.title for row in panel.selected_rows] == [
        "Run 1"
    ] and "hides" not in panel._hint.text()
    qtbot.keyClicks(panel.search, "lr<0.05")
    spot = panel.table.visualRect(panel.model.index(0, STATE)).center()
    qtbot.mouseClick(panel.table.viewport(), Qt.MouseButton.LeftButton, pos=spot)
    panel.search.clear()
    assert [row.title for row in panel.selected_rows] == ["Run 2"], (
        "another one was chosen meanwhile"
    )


def test_a_run_without_a_checkpoint_or_trained_elsewhere_cannot_be_resumed_and_the_buttons_say_why(
    qtbot: QtBot, panel: RunPanel, tmp_path: Path
) -> None:
    panel.measured.connect(
        lambda kept: panel.show_disk(kept, measured(kept.checkpoints))
    )
    panel.table.selectRow(0)
    assert not panel.go_on.isEnabled() and not panel.fork.isEnabled()
    assert panel.go_on.toolTip().startswith("Run 3 has no checkpoint: start a new run")
    first = panel.model.rows[2].kept
    assert first is not None
    first.checkpoints.mkdir()
    (first.checkpoints / "last.pt").touch()
    panel.table.selectRow(2)
    assert panel.go_on.isEnabled() and panel.go_on.toolTip().startswith(
        "Resume this run"
    )
    assert "Continue" not in panel._hint.text(), "it is done"
    store.changed(first, state="stopped")
    panel.set_stored(store.listed(tmp_path))
    assert (
        panel._hint.text()
        == "Run 1 was stopped. Continue resumes it from its newest checkpoint."
    )
    (first.checkpoints / "last.pt").rename(tmp_path / "last.pt")
    panel.table.selectRow(0)
    panel.table.selectRow(2)
    assert (
        panel._hint.text() == "Run 1 was stopped. It has no checkpoint to resume from."
    )
    (tmp_path / "last.pt").rename(first.checkpoints / "last.pt")
    store.changed(first, state="running")
    lock = file_lock.Lock(first.folder / store.LOCK)
    panel.set_stored(store.listed(tmp_path))
    assert (
        not panel.go_on.isEnabled()
        and "trained by another window" in panel.go_on.toolTip()
    )
    assert panel.fork.isEnabled(), "its weights so far can be taken"
    lock.release()
    panel.set_stored(store.listed(tmp_path))
    assert panel.go_on.isEnabled()


@pytest.mark.parametrize(("width", "rows"), [(972, 1), (716, 2)])
def test_no_button_of_the_toolbar_is_in_a_row_of_its_own(
    qtbot: QtBot, panel: RunPanel, width: int, rows: int
) -> None:
    panel.resize(width, 300)
    tools = (
        panel.go_on,
        panel.fork,
        panel.restore,
        panel.curves,
        panel.panels,
        panel.more,
        panel.search,
    )
    qtbot.waitUntil(lambda: panel.search.geometry().right() == width - 9)
    tops = [each.geometry().center().y() // 8 for each in tools]
    assert len(set(tops)) == rows and all(tops.count(top) > 1 for top in tops)


def test_name_notes_and_tags_are_typed_into_the_table(
    qtbot: QtBot, panel: RunPanel, tmp_path: Path
) -> None:
    told: list[tuple[str, str]] = []
    panel.annotated.connect(lambda kept, what, text: told.append((what, text)))
    for title, text in (
        ("Run", "baseline"),
        ("Notes", "a note"),
        ("Tags", "a, b"),
        ("Seed", ""),
    ):
        index = panel.model.index(0, titles().index(title))
        panel.table.scrollTo(index)
        spot = panel.table.visualRect(index).center()
        qtbot.mouseClick(panel.table.viewport(), Qt.MouseButton.LeftButton, pos=spot)
        qtbot.mouseDClick(panel.table.viewport(), Qt.MouseButton.LeftButton, pos=spot)
        editors = panel.table.viewport().findChildren(QLineEdit)
        assert len(editors) == (1 if text else 0), title
        for editor in editors:
            editor.selectAll()
            qtbot.keyClicks(editor, text)
            qtbot.keyClick(editor, Qt.Key.Key_Return)
            qtbot.waitUntil(lambda: not panel.table.viewport().findChildren(QLineEdit))
    assert told == [("name", "baseline"), ("note", "a note"), ("tags", "a, b")]


def test_columns_fit_a_larger_text_and_names_of_sweeps_are_whole(
    qtbot: QtBot, qapp: QApplication, panel: RunPanel, tmp_path: Path
) -> None:
    table, header = panel.table, panel.table.horizontalHeader()
    store.begin(tmp_path, EXAMPLE, name="batch_size 128, lr 0.0003, weight_decay 0.001")
    panel.set_stored(store.listed(tmp_path))

    def fits() -> bool:
        shown = (NAME, STATE, titles().index("Learning rate"))
        needed = {
            at: max(table.sizeHintForColumn(at), header.sectionSizeHint(at))
            for at in shown
        }
        return all(table.columnWidth(at) >= width for at, width in needed.items())

    theme.apply(qapp, "dark")
    qtbot.waitUntil(fits)
    theme.manager().set_scale(1.5)
    try:
        qtbot.waitUntil(fits)
    finally:
        theme.manager().set_scale(1.0)


def test_a_run_of_another_window_is_followed_and_the_selection_stays(
    qtbot: QtBot, panel: RunPanel, tmp_path: Path
) -> None:
    kept = store.begin(tmp_path, EXAMPLE)
    store.changed(kept, state="running")
    lock = file_lock.Lock(kept.folder / store.LOCK)
    panel._following.setInterval(0)
    with qtbot.waitSignal(panel.listRequested):
        panel.set_stored(store.listed(tmp_path))
    assert (
        column(panel, "State")[0] == "Running" and column(panel, "Best loss")[0] == "–"
    )
    spot = panel.table.visualRect(panel.model.index(0, STATE)).center()
    qtbot.mouseClick(panel.table.viewport(), Qt.MouseButton.LeftButton, pos=spot)
    store.changed(kept, summary=Summary(epochs=1, steps=23, best_loss=0.25))
    with qtbot.waitSignal(panel.listRequested):
        panel.set_stored(store.listed(tmp_path))
    assert (
        column(panel, "Best loss")[0] == "0.250"
        and panel.table.currentIndex().row() == 0
    )
    assert [row.title for row in panel.selected_rows] == ["Run 4"]
    lock.release()
    panel.set_stored(store.listed(tmp_path))
    assert (
        column(panel, "State")[0] == "Interrupted" and not panel._following.isActive()
    )
    assert "The program ended during this run." in panel._hint.text()
    panel.hide()
    with qtbot.waitSignal(panel.listRequested):  # another window may have begun one
        panel.show()


def test_columns_are_chosen_in_a_menu(qtbot: QtBot, panel: RunPanel) -> None:
    panel.set_hidden_columns(["seed"])
    at = titles().index("Seed")
    assert panel.table.isColumnHidden(at)
    menu = QMenu()
    qtbot.addWidget(menu)
    panel.fill_columns_menu(menu)
    actions = {action.text(): action for action in menu.actions()}
    assert "Run" not in actions and not actions["Seed"].isChecked()
    with qtbot.waitSignal(panel.columnsHidden) as told:
        actions["Device"].trigger()
    assert set(told.args[0]) == {"device", "seed"}


def titles() -> list[str]:
    return [column.title for column in list_columns.COLUMNS]
