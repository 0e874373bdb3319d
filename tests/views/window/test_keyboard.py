"""A network from nothing to its gradients, with the keyboard alone."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QWidget
from pytestqt.qtbot import QtBot

from tests.support.whole_window import WholeWindow
from tests.views.window.test_window import ready, wait_for

NONE, CTRL, KEY = (
    Qt.KeyboardModifier.NoModifier,
    Qt.KeyboardModifier.ControlModifier,
    Qt.Key,
)
LAYERS = (
    "conv2d",
    "relu",
    "conv2d",
    "relu",
    "maxpool2d",
    "dropout",
    "flatten",
    "linear",
    "relu",
    "linear",
    "output",
)


def focus() -> QWidget:
    found = QApplication.focusWidget()
    assert found is not None
    return found


def press(key: Qt.Key, keys: Qt.KeyboardModifier = NONE) -> None:
    QTest.keyClick(focus(), key, keys)


def find(qtbot: QtBot, window: WholeWindow, words: str) -> None:
    """Run what Ctrl+K finds first."""
    press(KEY.Key_K, CTRL)
    palette = QApplication.activeModalWidget()
    palette.activateWindow()
    qtbot.waitUntil(palette.isActiveWindow)
    QTest.keyClicks(focus(), words)
    press(KEY.Key_Return)
    window.activateWindow()  # there is no window manager here
    qtbot.waitUntil(window.isActiveWindow)


def retype(text: str) -> None:
    press(KEY.Key_A, CTRL)
    QTest.keyClicks(focus(), text)
    press(KEY.Key_Return)


def test_a_net_is_built_trained_and_inspected_by_keyboard(
    qtbot: QtBot, window: WholeWindow
) -> None:
    window.activateWindow()
    qtbot.waitUntil(window.isActiveWindow)
    press(KEY.Key_N, CTRL)
    press(KEY.Key_1, CTRL)
    window.canvas.view.setFocus()
    for layer in ("input", *LAYERS):
        press(KEY.Key_Tab)
        QTest.keyClicks(focus(), layer)
        press(KEY.Key_Return)
        assert focus() is window.canvas.view, layer
        if layer == "input":
            press(KEY.Key_Return)
            retype("1, 8, 8")
    assert len(window.document.project.graph.edges) == len(LAYERS)
    press(KEY.Key_Left)
    press(KEY.Key_Return)  # into the form of the last Linear
    while focus().accessibleName() != "out_features":
        press(KEY.Key_Tab)
    retype("10")
    ready(qtbot, window)
    assert not window.live.errors
    assert all(wire.chip.visible for wire in window.canvas.scene.wires.values()), (
        "every shape has room"
    )
    find(qtbot, window, "set epochs")
    retype("1")
    press(KEY.Key_F5)
    wait_for(qtbot, window, "done")
    find(qtbot, window, "go to conv1")
    assert window.sheet.project.graph.nodes[window.selection.single].name == "conv1"
    find(qtbot, window, "layer")
    qtbot.waitUntil(lambda: window.bottom.pane.page == "layer")
    find(qtbot, window, "capture one batch")
    qtbot.waitUntil(lambda: window.room.tape is not None)
    assert window.centre.page == "autograd"
