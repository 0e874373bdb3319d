"""The dialog of a sweep: settings and values by keys, how many runs they make, and what is wrong with them."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.builder.analysis import analyse
from app.builder.catalog.catalog import catalog
from app.data.loaders import read_spec
from app.features.sweep.dialog import SweepDialog
from app.features.sweep.values import Search
from app.project import file
from app.util.resources import path as resource
from app.views.engine_service import EngineService

ENTER, TAB, SPACE = Qt.Key.Key_Return, Qt.Key.Key_Tab, Qt.Key.Key_Space


@pytest.fixture
def dialog(qtbot: QtBot, service: EngineService) -> SweepDialog:
    project = file.read(resource("examples", "MLP on digits.tape"))
    read_spec(project.data)
    made = SweepDialog(project, analyse(project.graph, catalog()), None, service)
    qtbot.addWidget(made)
    with qtbot.waitExposed(made):
        made.show()
    qtbot.waitUntil(lambda: bool(made.rows))
    return made


def typed(text: str) -> None:
    """Type where the focus is."""
    focus = QApplication.focusWidget()
    assert focus is not None
    QTest.keyClicks(focus, text)


def pressed(key: Qt.Key) -> None:
    focus = QApplication.focusWidget()
    assert focus is not None
    QTest.keyClick(focus, key)


def test_a_grid_is_typed_counted_and_started_by_keys_alone(
    qtbot: QtBot, dialog: SweepDialog
) -> None:
    started: list[Search] = []
    dialog.started.connect(started.append)
    assert dialog.rows[0].name.value() == "lr" and dialog.rows[0].values.hasFocus()
    typed("0.1, 0.01")
    qtbot.waitUntil(lambda: dialog.count.text().startswith("2 runs of "))
    dialog.add.setFocus()
    pressed(SPACE)
    assert dialog.rows[1].name.value() == "batch_size"
    typed("32,64,0")
    pressed(ENTER)  # at once: the runs are checked first
    qtbot.waitUntil(lambda: "batch_size is 0" in dialog.rows[1].problem.text())
    assert not started and dialog.rows[1].values.hasFocus() and not dialog.count.text()
    pressed(Qt.Key.Key_End)
    pressed(Qt.Key.Key_Backspace)
    typed("16")
    pressed(ENTER)
    qtbot.waitUntil(lambda: bool(started))
    assert [(of.name, of.values) for of in started[0].settings] == [
        ("lr", (0.1, 0.01)),
        ("batch_size", (32, 64, 16)),
    ]
    assert started[0].sampler == "grid" and not dialog.isVisible()


def test_random_draws_follow_their_seed_and_bounds_are_for_them_alone(
    qtbot: QtBot, dialog: SweepDialog
) -> None:
    typed("0.1,0.1")
    qtbot.waitUntil(lambda: "twice" in dialog.rows[0].problem.text())
    assert (
        dialog.area.height() >= dialog.area.widget().minimumSizeHint().height()
    )  # the error is not scrolled to
    dialog.rows[0].values.selectAll()
    typed("1e-4:1e-1")
    qtbot.waitUntil(
        lambda: "which a grid does not take" in dialog.rows[0].problem.text()
    )
    dialog.mode.setFocus()
    QTest.keyClick(dialog.mode, Qt.Key.Key_Right)
    qtbot.waitUntil(lambda: dialog.count.text().startswith("10 runs"))
    assert not dialog.rows[0].problem.text() and dialog.draws.isVisible()


def test_a_search_has_a_sampler_a_pruner_and_seeds_and_varies_the_drawing(
    qtbot: QtBot, dialog: SweepDialog
) -> None:
    started: list[Search] = []
    dialog.started.connect(started.append)
    typed("1e-4..1e-1:log")
    dialog.mode.setFocus()
    QTest.keyClick(dialog.mode, Qt.Key.Key_Right)
    QTest.keyClick(dialog.mode, Qt.Key.Key_Right)
    assert dialog.sampler.isVisible() and "fc1.out_features" in [
        param.name for param in dialog._params
    ]
    dialog.add_row("fc1.out_features").values.setText("16..64:16")
    dialog.seeds.setFocus()
    dialog.seeds.selectAll()
    typed("2")
    qtbot.waitUntil(lambda: "each with 2 seeds" in dialog.count.text())
    pressed(ENTER)
    qtbot.waitUntil(lambda: bool(started))
    search = started[0]
    assert (search.sampler, search.trials, search.seeds) == ("tpe", 10, 2)
    assert search.settings[1].bounds == (16, 64) and search.settings[0].log


def test_optimizers_are_checked_in_a_menu_and_decide_which_settings_there_are(
    qtbot: QtBot, dialog: SweepDialog
) -> None:
    row = dialog.rows[0]
    row.name.setCurrentIndex(row.name.choices().index("optimizer"))
    row.name.activated.emit(row.name.currentIndex())
    assert row.values.hasFocus() and row.choose.isVisible()
    row.menu.popup(dialog.mapToGlobal(QPoint(0, 0)))
    for name in ("Adam", "SGD"):
        row.menu.setActiveAction(
            next(one for one in row.menu.actions() if one.text() == name)
        )
        QTest.keyClick(row.menu, SPACE)
    assert row.menu.isVisible() and row.values.text() == "Adam, SGD"
    row.menu.close()
    qtbot.waitUntil(lambda: dialog.count.text().startswith("2 runs"))
    other = dialog.add_row("momentum")
    assert (
        "momentum" not in other.name.choices()[:-1]
        and "weight_decay" in other.name.choices()
    )
    other.values.setText("0.9, 0.5")
    qtbot.waitUntil(lambda: "momentum is no setting" in other.problem.text())
