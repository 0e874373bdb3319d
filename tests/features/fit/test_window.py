"""In the window: whether a step fits, and a plan that is applied."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

from app.features.fit.feature import FitDialog
from app.project import file as project_file
from tests.support.run_windows import small
from tests.support.whole_window import WholeWindow
from tests.views.window.test_window import ready

LEFT = Qt.MouseButton.LeftButton


@pytest.fixture
def window(qtbot: QtBot, window: WholeWindow, tmp_path: Path) -> WholeWindow:
    file = tmp_path / "net.tape"
    project_file.write(small(epochs=2), file)
    window.files.open(file)
    ready(qtbot, window)
    return window


def asked(qtbot: QtBot, window: WholeWindow, limit: str) -> FitDialog:
    """The dialog, with a limit typed and measured."""
    window.actions_by_key["fit"].trigger()
    dialog = window.findChild(FitDialog)
    qtbot.mouseDClick(dialog.limit, LEFT)
    dialog.limit.selectAll()
    qtbot.keyClicks(dialog.limit, limit)
    qtbot.mouseClick(dialog.start_button, LEFT)
    qtbot.waitUntil(lambda: dialog.result_shown is not None)
    return dialog


def test_a_plan_is_measured_and_applied_as_one_step(
    qtbot: QtBot, window: WholeWindow
) -> None:
    before = window.document.project.training
    dialog = asked(qtbot, window, "100 KiB")
    result = dialog.result_shown
    assert result.memory == 100 * 1024 and not result.fits
    assert "does not fit into 100 KiB" in dialog.conclusion.text()
    assert dialog.plot.isVisible() and "saved " in dialog.kinds.text()
    rows = dialog.table.cells.rows
    assert [plan.name for plan in rows] == ["fastest", "exact", "smallest"]
    smallest = rows[2]
    dialog.table.selectRow(2)
    qtbot.mouseClick(dialog.use_button, LEFT)
    training = window.document.project.training
    assert training.batch_size == smallest.training.batch_size < before.batch_size
    assert training.accumulate == smallest.training.accumulate
    assert training.compile == before.compile and training.epochs == before.epochs
    assert window.document.undo_stack.count() == 1
    window.document.undo_stack.undo()
    assert window.document.project.training == before


def test_what_fits_says_so_and_changes_nothing(
    qtbot: QtBot, window: WholeWindow
) -> None:
    dialog = asked(qtbot, window, "4 GiB")
    assert "It fits into 4.00 GiB." in dialog.conclusion.text()
    assert all(plan.fits for plan in dialog.table.cells.rows)
    qtbot.keyClick(dialog, Qt.Key.Key_Escape)
    assert not dialog.isVisible() and not window.document.undo_stack.count()


def test_a_limit_that_is_none_is_refused_beside_the_field(
    qtbot: QtBot, window: WholeWindow
) -> None:
    window.actions_by_key["fit"].trigger()
    dialog = window.findChild(FitDialog)
    dialog.limit.selectAll()
    qtbot.keyClicks(dialog.limit, "eight apples")
    qtbot.keyClick(dialog.limit, Qt.Key.Key_Return)
    assert "is no amount of memory" in dialog.limit.toolTip()
    assert dialog.result_shown is None
    dialog.reject()
