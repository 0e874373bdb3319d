"""From an empty window and data of one's own to a trained net, by mouse and by keys."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtCore import QMimeData, QPoint, QPointF, Qt, QUrl
from PySide6.QtGui import QDragEnterEvent, QDropEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QFileDialog
from pytestqt.qtbot import QtBot

from app.views.canvas.canvas import START_NET
from tests.preflight.test_starting_net import houses, pictures, text
from tests.support.hands import LEFT, Keyboard, Mouse, Until
from tests.support.whole_window import WholeWindow
from tests.views.window.test_data import settled


def patiently(qtbot: QtBot) -> Until:
    return lambda condition: qtbot.waitUntil(condition)


def drop(window: WholeWindow, path: str) -> None:
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(path)])
    copy, none = Qt.DropAction.CopyAction, Qt.KeyboardModifier.NoModifier
    entering = QDragEnterEvent(QPoint(400, 300), copy, data, LEFT, none)
    window.dragEnterEvent(entering)
    assert entering.isAccepted()
    window.dropEvent(QDropEvent(QPointF(400, 300), copy, data, LEFT, none))


def trained(qtbot: QtBot, window: WholeWindow) -> None:
    window.training_form.numbers.edited.emit("epochs", 1, None)
    settled(qtbot, window)
    assert not window.live.errors, window.live.errors
    assert window.run_control.blocked == ""
    QTest.keyClick(window, Qt.Key.Key_F5)
    qtbot.waitUntil(lambda: window.session.state in ("done", "failed"))
    assert window.session.state == "done", window.session.current.failed


@pytest.mark.parametrize("make", [houses, pictures, text])
def test_data_that_are_dropped_are_two_clicks_from_a_trained_net(
    qtbot: QtBot, window: WholeWindow, tmp_path: Path, make
) -> None:
    settled(qtbot, window)
    before = window.document.project
    drop(window, make(tmp_path).path)
    settled(qtbot, window)
    first = window.canvas.empty.first
    qtbot.waitUntil(lambda: first.isVisible() and first.text() == START_NET)
    chosen = window.document.project
    QTest.mouseClick(first, LEFT)
    settled(qtbot, window)
    started = window.document.project
    assert set(started.positions) == set(started.graph.nodes)
    trained(qtbot, window)
    for _ in range(2):  # the epochs of this test, and the net with its loss
        window.document.undo_stack.undo()
    assert window.document.project == chosen
    window.document.undo_stack.undo()
    assert window.document.project == before


def test_a_shape_that_is_typed_with_a_new_input_is_not_fitted_to_the_data(
    qtbot: QtBot, window: WholeWindow
) -> None:
    settled(qtbot, window)
    node = window.canvas.add_op("input", {"shape": (1, 28, 28)})
    assert window.document.project.graph.nodes[node].params["shape"] == (1, 28, 28)


def test_the_only_input_takes_the_data_in_the_step_that_chooses_them(
    qtbot: QtBot, window: WholeWindow, tmp_path: Path
) -> None:
    settled(qtbot, window)
    node = window.canvas.add_op("input")
    shape = lambda: window.document.project.graph.nodes[node].params["shape"]  # noqa: E731
    assert shape() == (1, 8, 8), "a new Input takes the data that are chosen"
    window.training_form.data.source.edited.emit("file.csv")
    window.training_form.data.set_path(houses(tmp_path).path)
    settled(qtbot, window)
    assert shape() == (3,)
    window.document.undo_stack.undo()
    assert shape() == (1, 8, 8) and window.document.project.data.path == ""
    window.document.undo_stack.redo()
    settled(qtbot, window)
    assert shape() == (3,)
    start = window.canvas.start_net
    qtbot.waitUntil(start.isVisible)
    QTest.mouseClick(start, LEFT)
    settled(qtbot, window)
    assert not window.live.errors and not start.isVisible()


def test_the_keys_start_a_net_and_what_is_built_is_never_replaced(
    qtbot: QtBot, window: WholeWindow
) -> None:
    window.training_form.data.choose("made.moons")
    settled(qtbot, window)
    button = window.training_form.data.start_net
    window.right.pane.show_page("training")
    qtbot.waitUntil(button.isVisible)
    button.setFocus()
    QTest.keyClick(button, Qt.Key.Key_Space)
    settled(qtbot, window)
    built = window.document.project
    assert "nn.Linear" in built.graph.ops and not window.live.errors
    assert not button.isVisible()
    window.actions_by_key["start-net"].trigger()
    assert window.document.project is built


FROM_THE_LIST = {
    "a table": (houses, "CSV file…", "getOpenFileName"),
    "pictures": (pictures, "Image folder…", "getExistingDirectory"),
    "a text": (text, "Text file as characters…", "getOpenFileName"),
    "two inputs": (None, "Two moons", ""),
}


@pytest.mark.parametrize("name", FROM_THE_LIST)
def test_ten_clicks_lead_from_an_empty_window_to_a_prediction_of_a_trained_net(
    qtbot: QtBot,
    window: WholeWindow,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    make, label, dialog = FROM_THE_LIST[name]
    settled(qtbot, window)
    mouse, data = Mouse(window, patiently(qtbot)), window.training_form.data
    mouse.tab(window.right.pane, "training")
    mouse.data(label)
    if make is not None:
        path = make(tmp_path).path
        chosen = path if dialog == "getExistingDirectory" else (path, "")
        monkeypatch.setattr(QFileDialog, dialog, lambda *_: chosen)
        mouse.click(data.pick)
        mouse.clicks += 1  # in the dialog: a double click on the file
        settled(qtbot, window)
    scrolled = window.training_form.area.verticalScrollBar()
    before = scrolled.value()
    mouse.start_net()
    settled(qtbot, window)
    assert scrolled.value() == before, "the page stays where it was read"
    mouse.run()
    qtbot.waitUntil(lambda: window.session.state in ("done", "failed"))
    assert window.session.state == "done"
    mouse.predict()
    qtbot.waitUntil(lambda: window.evaluation.trying.survey is not None)
    bars = window.evaluation.trying.bars
    if name == "pictures":
        picture = str(next((tmp_path / "pictures" / "light").iterdir()))
        monkeypatch.setattr(QFileDialog, "getOpenFileName", lambda *_: (picture, ""))
        mouse.click(window.evaluation.trying.choose)
        mouse.clicks += 1
        qtbot.waitUntil(lambda: bars.called == "light")
    assert mouse.clicks <= 10
    if name == "a table":
        qtbot.waitUntil(lambda: bars.called == "price")
        assert 100_000 < float(bars._values[0]) < 500_000


WORDS = {
    "a table": "csv",
    "pictures": "image folder",
    "a text": "text file",
    "two inputs": "two moons",
}


@pytest.mark.parametrize("name", FROM_THE_LIST)
def test_ten_steps_of_the_keys_alone_lead_from_an_empty_window_to_a_prediction(
    qtbot: QtBot,
    window: WholeWindow,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    make, _, dialog = FROM_THE_LIST[name]
    settled(qtbot, window)
    keys, trying = Keyboard(window, patiently(qtbot)), window.evaluation.trying
    if make is not None:
        path = make(tmp_path).path
        chosen = path if dialog == "getExistingDirectory" else (path, "")
        monkeypatch.setattr(QFileDialog, dialog, lambda *_: chosen)
        keys.steps += 1  # in the dialog: the name and Enter
    keys.find(WORDS[name])
    settled(qtbot, window)
    keys.find("start with a net")
    settled(qtbot, window)
    assert not window.live.errors
    qtbot.waitUntil(lambda: not window.run_control.blocked)
    keys.press(Qt.Key.Key_F5)
    qtbot.waitUntil(lambda: window.session.state in ("done", "failed"))
    assert window.session.state == "done"
    keys.find("predict")
    qtbot.waitUntil(lambda: trying.survey is not None)
    assert trying.isAncestorOf(keys.focus)
    if name == "pictures":
        picture = str(next((tmp_path / "pictures" / "light").iterdir()))
        monkeypatch.setattr(QFileDialog, "getOpenFileName", lambda *_: (picture, ""))
        keys.press(Qt.Key.Key_Space)
        keys.steps += 1
        qtbot.waitUntil(lambda: trying.bars.called == "light")
    elif name == "a text":
        keys.type("the quick brown fo")
        qtbot.waitUntil(lambda: trying.bars.called == "x")
    elif name == "a table":
        keys.type("200")
        qtbot.waitUntil(lambda: trying.bars.called == "price")
        assert 100_000 < float(trying.bars._values[0]) < 1_000_000
    assert keys.steps <= 10
