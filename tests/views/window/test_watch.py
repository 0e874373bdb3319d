"""Watch points in the window: set by hand, kept, told by a banner, and the batch can be looked at."""

from collections.abc import Iterator

import numpy as np
import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QDialog

from app.training.events import Noticed
from app.training.monitoring.looks import BatchPeek
from app.training.monitoring.watch_points import WatchPoints, from_text, to_text
from app.views.run.batch_dialog import BatchDialog, notes
from app.views.settings import Settings
from app.views.training.form.feature import LOOK, WatchSection
from app.views.ui.widgets.painting import Glyph
from tests.support.tables import texts_of
from tests.support.whole_window import WholeWindow
from tests.support.windows import messages, shown
from tests.views.window.test_window import DIGITS, ready


@pytest.fixture
def window(qtbot, window: WholeWindow) -> WholeWindow:
    window.files.open(DIGITS)
    ready(qtbot, window)
    return window


@pytest.fixture
def with_points(qtbot, qapp) -> Iterator[WholeWindow]:
    """A window that begins with what was to be watched when the last one was closed."""
    settings = Settings("TapedeckTest", "watch")
    settings.watch_points = to_text(WatchPoints(gradient_norm=1e-6))
    settings.sync()
    with shown(qapp, "watch") as made:
        made.files.open(DIGITS)
        made.start()
        ready(qtbot, made)
        yield made


def test_a_gradient_above_its_bound_pauses_says_where_shows_the_batch_and_debugs_the_step(
    qtbot, with_points
):
    window = with_points
    assert window.watch_control.section.points == WatchPoints(gradient_norm=1e-6)
    window.run_control.run()
    qtbot.waitUntil(lambda: window.session.state == "paused")
    banner = window.banner
    qtbot.waitUntil(
        lambda: banner.title().startswith("Paused at step 1: the gradient norm of ")
    )
    assert banner.isVisible() and banner._action.text() == LOOK
    qtbot.mouseClick(banner._action, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: window.watch_control.dialog is not None)
    dialog = window.watch_control.dialog
    assert dialog.isVisible() and len(dialog.table.rows) == 64 == dialog.grid.count
    assert set(dialog.grid.captions) <= set("0123456789")
    headers = [column.title for column in dialog.table.cells.columns]
    assert headers == ["", "Label", "Largest output", "Loss", "Input"]
    dialog.accept()
    # Of the paused run the step is computed again, with its graph in front and nothing over it.
    qtbot.mouseClick(banner.button("Debug step 1"), Qt.MouseButton.LeftButton)
    qtbot.waitUntil(
        lambda: window.shown_run.past is not None and window.room.tape is not None,
    )
    assert window.session.state == "paused" and window.shown_run.past.step == 1
    assert window.pages.front("centre") == "autograd"
    assert window.room.tape.loss == pytest.approx(
        float(window.session.history.steps["loss"][0]), rel=0, abs=0
    )
    assert not [one for one in window.findChildren(QDialog) if one.isVisible()]
    window.session.step()
    qtbot.waitUntil(
        lambda: not banner.isVisible()
    )  # it is of a step that is no longer the newest


def test_a_watch_point_is_set_by_keys_kept_and_given_to_the_run(qtbot, window):
    section = window.watch_control.section
    section.form.edited.emit("gradient_norm", 1e-6, None)
    section.form.edited.emit("gradient_norm", None, None)
    section.form.edited.emit("memory_mib", 4096, None)
    section.form.edited.emit("loss_not_finite", True, None)
    wanted = WatchPoints(not_finite=True, memory=4096 * 1024 * 1024)
    assert section.points == from_text(window.settings.watch_points) == wanted
    window.run_control.step()
    qtbot.waitUntil(lambda: window.session.state == "paused")
    assert window.session.training_thread.control.watch == wanted
    section.acted.emit()
    assert (
        window.session.training_thread.control.watch
        == WatchPoints()
        == from_text(window.settings.watch_points)
    )


def test_the_section_refuses_what_cannot_be_watched_and_says_what_is_set(qtbot):
    section, heard = WatchSection(), []
    qtbot.addWidget(section)
    section.changed.connect(heard.append)
    section.form.edited.emit("dead", 1.5, None)
    assert not heard and section.points == WatchPoints()
    section.form.edited.emit("dead", 0.9, None)
    assert (
        heard == [WatchPoints(dead=0.9)]
        and section.summary == "90 % dead"
        and section.differs
    )


def test_settings_that_nobody_can_read_watch_nothing():
    for text in (
        "",
        "[]",
        '{"not_finite": true}',
        '{"not_finite": 1, "gradient_norm": "x", "dead": 1, "memory": 1}',
    ):
        assert from_text(text) == WatchPoints()
    points = WatchPoints(True, 2.0, 0.5, 1024)
    assert from_text(to_text(points)) == points


def test_a_batch_with_numbers_that_are_not_finite_is_shown_and_counted(qtbot):
    inputs = np.zeros((3, 4), dtype=np.float32)
    inputs[1, 2] = np.nan
    peek = BatchPeek(
        3,
        inputs,
        np.array([0, 1, 2]),
        None,
        None,
        ("a", "b"),
        "classes",
        "ValueError: no",
    )
    assert notes(peek) == (
        "All 3 samples, 4 each. 1 of them contain non-finite values. The network failed on them: ValueError: no"
    )
    dialog = BatchDialog(peek, "Paused.")
    qtbot.addWidget(dialog)
    assert (
        dialog.grid is None
        and texts_of(dialog.table)[2][1] == "2"
        and "nan" in texts_of(dialog.table)[1][2]
    )


def test_what_slows_a_run_down_is_said_beside_it_and_mistakes_of_layers_in_the_console_alone(
    qtbot, window
):
    window.start_run()
    qtbot.waitUntil(lambda: window.session.active)
    heard = messages(window)
    slow = "Other programs slow this run down: 60 % of the last 5 seconds it waited for a processor."
    window.session.told.emit(
        [Noticed(3, "fc1", None, "fc1 is dead."), Noticed(3, "", None, slow)]
    )
    assert [text for text in heard if text in (slow, "fc1 is dead.")] == [slow]
    (toast,) = (each for each in window.toasts.toasts() if each.text() == slow)
    assert toast.findChild(Glyph)._name == "info", "nothing was done that is ticked"
    assert {slow, "fc1 is dead."} <= set(window.console.texts)
    window.session.stop()
    qtbot.waitUntil(lambda: not window.session.active)
