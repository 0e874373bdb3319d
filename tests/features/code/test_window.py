"""The page "Code" in the whole window: it has the keys, and shows the layer that is selected."""

from __future__ import annotations

from pytestqt.qtbot import QtBot

from tests.support.whole_window import WholeWindow
from tests.views.window.test_keyboard import CTRL, KEY, focus, press
from tests.views.window.test_window import node, ready


def test_the_pages_in_the_centre_have_their_work_in_focus(
    qtbot: QtBot, window: WholeWindow
) -> None:
    window.activateWindow()
    qtbot.waitUntil(window.isActiveWindow)
    window.files.open_example("MLP on digits.tape")
    ready(qtbot, window)
    press(KEY.Key_1, CTRL)
    window.canvas.view.setFocus()
    press(KEY.Key_3, CTRL)
    qtbot.waitUntil(lambda: focus() is window.code.edit)
    press(KEY.Key_1, CTRL)
    qtbot.waitUntil(lambda: focus() is window.canvas.view)
    press(KEY.Key_3, CTRL)
    window.code.copy_button.setFocus()  # as a click on it does
    press(KEY.Key_1, CTRL)
    press(KEY.Key_3, CTRL)
    qtbot.waitUntil(lambda: focus() is window.code.edit)


def test_the_lines_of_the_selected_layer_are_marked(
    qtbot: QtBot, window: WholeWindow
) -> None:
    window.files.open_example("digits.tape")
    ready(qtbot, window)
    conv = node(window, "conv2")
    window.selection.set([conv])
    window.pages.show("code")
    lines = window.live.analysis.source.lines[conv]
    assert len(lines) == 2
    # The page shows an analysis one turn of the event loop after the canvas.
    qtbot.waitUntil(lambda: all(map(window.code.edit.is_selected_line, lines)))
