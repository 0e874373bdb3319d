"""Capture options in the main menu, before the page Autograd was shown."""

from __future__ import annotations

from PySide6.QtWidgets import QMenu
from pytestqt.qtbot import QtBot

from tests.support.run_windows import closed, opened


def test_an_option_that_is_chosen_first_of_all_holds_for_the_page(
    qtbot: QtBot,
) -> None:
    window = opened(qtbot, None, charts=False)
    menus = window.menuBar().findChildren(QMenu) + window.findChildren(QMenu)
    menu = next(menu for menu in menus if menu.title() == "Capture &options")
    menu.aboutToShow.emit()
    amp = next(action for action in menu.actions() if "AMP" in action.text())
    amp.trigger()
    assert window.options_control.menu.options.amp
    window.pages.show("autograd")
    assert window.options_control.button.menu() is menu
    closed(window)
