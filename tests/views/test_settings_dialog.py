"""The Settings dialog: every declared setting, in effect at once, wherever it is changed."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QLabel, QScrollArea
from pytestqt.qtbot import QtBot

from app.util import language
from app.views.app import choose_language
from app.views.settings import Settings
from app.views.shell.preferences import LANGUAGES, PREFERENCES
from app.views.shell.settings_dialog import SettingsDialog
from app.views.ui import theme
from app.views.ui.dialogs.search import SearchDialog
from tests.support.whole_window import WholeWindow


def test_every_setting_has_an_editor_that_stores_it_and_follows_it(
    qtbot: QtBot,
) -> None:
    settings = Settings("TapedeckTest", "dialog")
    dialog = SettingsDialog(settings)
    qtbot.addWidget(dialog)
    assert list(dialog.editors) == [
        each.name for members in PREFERENCES.values() for each in members
    ]
    seconds = dialog.editors["autosave_seconds"]
    seconds.setFocus()
    seconds.selectAll()
    QTest.keyClicks(seconds, "45\r")
    assert (
        Settings("TapedeckTest", "dialog").autosave_seconds
        == settings.autosave_seconds
        == 45
    )
    dialog.editors["event_files"].click()
    assert settings.event_files
    settings.data_folder = Path("/data/elsewhere")
    assert dialog.editors["data_folder"].text() == "/data/elsewhere"
    for button in dialog.findChildren(type(dialog.add_button(""))):
        if button.text() == "Restore defaults":
            button.click()
    assert settings.autosave_seconds == 3 and not settings.event_files
    assert seconds.value() == 3 and dialog.editors["data_folder"].text() == str(
        settings.data_folder
    )


def test_a_number_that_is_not_taken_is_said_and_closes_no_dialog(qtbot: QtBot) -> None:
    settings = Settings("TapedeckTest", "dialog")
    dialog = SettingsDialog(settings)
    qtbot.addWidget(dialog)
    with qtbot.waitExposed(dialog):
        dialog.show()
    seconds = dialog.editors["autosave_seconds"]

    def says(words: str) -> bool:
        return any(words in each.text() for each in dialog.findChildren(QLabel))

    seconds.setFocus()
    seconds.selectAll()
    QTest.keyClicks(seconds, "-5\r")
    assert dialog.isVisible() and says("At least") and settings.autosave_seconds == 3
    QTest.keyClick(seconds, Qt.Key.Key_Escape)
    assert not says("At least") and says("recovery file")
    seconds.selectAll()
    QTest.keyClicks(seconds, "abc\t")
    assert seconds.text() == "3" and says("It was left as it is.")


def test_larger_text_that_is_chosen_in_it_cuts_nothing(
    qtbot: QtBot, window: WholeWindow
) -> None:
    QTest.keyClick(window, Qt.Key.Key_Comma, Qt.KeyboardModifier.ControlModifier)
    dialog = window.findChild(SettingsDialog)
    assert dialog is not None
    dialog.editors["font_scale"].setFocus()
    QTest.keyClick(dialog.editors["font_scale"], Qt.Key.Key_End)
    qtbot.waitUntil(lambda: theme.manager().scale == 2.0)
    area = dialog.findChild(QScrollArea)
    qtbot.waitUntil(
        lambda: area.widget().width() <= area.viewport().width() and area.width() > 800
    )


def test_settings_that_are_not_kept_say_so(qtbot: QtBot) -> None:
    def warned(settings: Settings) -> bool:
        dialog = SettingsDialog(settings)
        qtbot.addWidget(dialog)
        return any(
            "cannot be written" in each.text() for each in dialog.findChildren(QLabel)
        )

    assert not warned(Settings("TapedeckTest", "dialog"))
    folder = Settings("TapedeckBlocked", "dialog").file.parent
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.write_text("a file where the folder of the settings would be")
    assert warned(Settings("TapedeckBlocked", "dialog"))


def test_a_long_path_is_elided_in_the_middle(qtbot: QtBot) -> None:
    settings = Settings("TapedeckTest", "dialog")
    dialog = SettingsDialog(settings)
    qtbot.addWidget(dialog)
    dialog.show()
    line = dialog.editors["data_folder"]
    settings.data_folder = (
        Path("/data") / "a folder in a folder" / ("deep" * 20) / "sets"
    )
    shown = line.shown()
    assert shown.startswith("/data") and shown.endswith("sets") and "…" in shown
    assert line.fontMetrics().horizontalAdvance(shown) < line.width() - 8
    assert line.text() == line.toolTip() == str(settings.data_folder), (
        "it is copied whole"
    )
    settings.data_folder = Path("/data")
    assert line.shown() == "/data"


def test_a_setting_is_found_and_takes_effect_in_the_window(
    qtbot: QtBot, window: WholeWindow
) -> None:
    QTest.keyClick(window, Qt.Key.Key_Comma, Qt.KeyboardModifier.ControlModifier)
    dialog = window.findChild(SettingsDialog)
    assert dialog is not None
    dialog.activateWindow()
    qtbot.waitUntil(dialog.isActiveWindow)
    choice = dialog.editors["theme"]
    choice.setFocus()
    QTest.keyClick(choice, Qt.Key.Key_Down)  # from dark to light
    QTest.keyClick(choice, Qt.Key.Key_Return)
    assert (
        theme.current().name == "light"
        and window.actions_by_key["theme.light"].isChecked()
    )
    window.actions_by_key["theme.dark"].trigger()
    assert choice.value() == "dark" and theme.current().name == "dark"
    dialog.editors["launch_blocking"].click()
    assert window.actions_by_key["launch-blocking"].isChecked()
    dialog.close()
    for query in ("settings", "preferences"):
        window.actions_by_key["commands"].trigger()
        palette = window.findChildren(SearchDialog)[-1]
        QTest.keyClicks(palette.field, query)
        assert palette.model.data(palette.model.index(0)) == "Settings", query
        palette.reject()
    window.actions_by_key["commands"].trigger()
    palette = window.findChildren(SearchDialog)[-1]
    QTest.keyClicks(palette.field, "tensorboard files")
    QTest.keyClick(palette.field, Qt.Key.Key_Return)
    (shown,) = [
        each for each in window.findChildren(SettingsDialog) if each.isVisible()
    ]
    shown.activateWindow()
    qtbot.waitUntil(shown.isActiveWindow)
    assert QApplication.focusWidget() is shown.editors["event_files"]


def test_the_window_speaks_the_language_of_the_settings_else_that_of_the_system(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = Settings("TapedeckTest", "language")
    monkeypatch.setenv(language.VARIABLE, "en")
    choose_language(settings)
    assert language.language() == "en"
    settings.language = "de"
    choose_language(settings)
    assert language.language() == "de" and ("de", "Deutsch") in LANGUAGES
    settings.put("look/language", "xx")
    assert settings.language == ""
