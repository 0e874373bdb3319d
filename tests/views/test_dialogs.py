"""The dialogs: what they say, what they return, and that each is for the keyboard."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from PySide6.QtCore import QEvent, Qt
from PySide6.QtGui import QAction, QGuiApplication, QKeySequence
from PySide6.QtWidgets import (
    QApplication,
    QFileDialog,
    QLabel,
    QMainWindow,
    QPushButton,
    QWidget,
)
from pytestqt.qtbot import QtBot

from app import __version__
from app.data.download import DownloadCancelledError, DownloadError
from app.data.sources import MNIST
from app.views.actions import NAME
from app.views.training.form.data.download_dialog import DownloadDialog
from app.views.ui import theme
from app.views.ui.dialogs.about import AboutDialog, versions
from app.views.ui.dialogs.base import Dialog
from app.views.ui.dialogs.message import (
    DialogAnswer,
    ErrorDialog,
    QuestionDialog,
    running_dialog,
    unsaved_dialog,
)
from app.views.ui.dialogs.search import SearchDialog, command_entry
from app.views.ui.dialogs.shortcuts import (
    ShortcutSheet,
    command_text,
    key_text,
)
from app.views.ui.widgets.painting import label


def label_text(widget: QWidget) -> str:
    return "\n".join(label.text() for label in widget.findChildren(QLabel))


def show(qtbot: QtBot, dialog: QWidget) -> None:
    qtbot.addWidget(dialog)
    with qtbot.waitExposed(dialog):
        dialog.show()


# --- Errors and questions


def test_an_error_says_what_where_and_what_next(qtbot: QtBot) -> None:
    trace = "Traceback (most recent call last):\nValueError: x"
    dialog = ErrorDialog(
        "The file could not be opened", "net.tape, line 3", "Choose another.", trace
    )
    show(qtbot, dialog)
    assert "net.tape, line 3" in label_text(dialog) and "Choose another." in label_text(
        dialog
    )
    assert not dialog.details.isVisible()
    qtbot.mouseClick(dialog.show_button, Qt.MouseButton.LeftButton)
    assert dialog.details.isVisible() and dialog.details.toPlainText() == trace
    qtbot.mouseClick(dialog.copy_button, Qt.MouseButton.LeftButton)
    copied = QGuiApplication.clipboard().text()
    assert copied.startswith(
        "The file could not be opened\nnet.tape"
    ) and copied.endswith(trace)
    qtbot.keyClick(dialog, Qt.Key.Key_Escape)
    assert not dialog.isVisible()


def test_without_a_traceback_there_is_no_button_for_it(qtbot: QtBot) -> None:
    host = QWidget()
    qtbot.addWidget(host)
    dialog = ErrorDialog("No", cure="Try again.", parent=host)
    show(qtbot, dialog)
    assert not dialog.show_button.isVisible()


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("Save", DialogAnswer.SAVE),
        ("Don't save", DialogAnswer.DISCARD),
        ("Cancel", DialogAnswer.CANCEL),
    ],
)
def test_unsaved_changes(qtbot: QtBot, text: str, answer: DialogAnswer) -> None:
    dialog = unsaved_dialog("digits")
    show(qtbot, dialog)
    press(qtbot, dialog, text)
    assert dialog.answer is answer and not dialog.isVisible()


def press(qtbot: QtBot, dialog: QuestionDialog, text: str) -> None:
    from app.views.ui.widgets import Button

    button = next(each for each in dialog.findChildren(Button) if each.text() == text)
    qtbot.mouseClick(button, Qt.MouseButton.LeftButton)


@pytest.mark.parametrize(
    ("key", "answer"),
    [(Qt.Key.Key_Escape, DialogAnswer.CANCEL), (Qt.Key.Key_Return, DialogAnswer.SAVE)],
)
def test_unsaved_changes_by_key(
    qtbot: QtBot, key: Qt.Key, answer: DialogAnswer
) -> None:
    dialog = unsaved_dialog("digits")
    show(qtbot, dialog)
    qtbot.keyClick(dialog, key)
    assert dialog.answer is answer


def test_leaving_a_run_is_not_the_default(qtbot: QtBot) -> None:
    dialog = running_dialog("epoch 3 of 20")
    show(qtbot, dialog)
    assert "epoch 3 of 20" in label_text(dialog)
    qtbot.keyClick(dialog, Qt.Key.Key_Return)
    assert dialog.answer is DialogAnswer.CANCEL


def test_enter_presses_the_button_that_has_the_focus(qtbot: QtBot) -> None:
    dialog = unsaved_dialog("digits")
    show(qtbot, dialog)
    button = next(
        one for one in dialog.findChildren(QPushButton) if one.text() == "Don't save"
    )
    button.setFocus()
    qtbot.keyClick(button, Qt.Key.Key_Return)
    assert dialog.answer == DialogAnswer.DISCARD


def test_about_tells_the_versions(qtbot: QtBot) -> None:
    dialog = AboutDialog()
    show(qtbot, dialog)
    qtbot.mouseClick(dialog.copy_button, Qt.MouseButton.LeftButton)
    assert f"Tapedeck {__version__}" in QGuiApplication.clipboard().text()
    assert dict(versions())["torch"] != "not installed"


# --- Commands and shortcuts


@pytest.fixture
def window(qtbot: QtBot) -> QMainWindow:
    result = QMainWindow()
    qtbot.addWidget(result)
    return result


@pytest.fixture
def actions(window: QMainWindow) -> list[QAction]:
    made = []
    for title, text, keys in (
        ("&File", "&New", "Ctrl+N"),
        ("&File", "Save &as…", "Ctrl+Shift+S"),
        ("&View", "Zoom &in", "Ctrl++"),
        ("&View", "Frame && centre", ""),
    ):
        menu = next(
            (a.menu() for a in window.menuBar().actions() if a.text() == title), None
        )
        menu = menu or window.menuBar().addMenu(title)
        action = QAction(text, window)
        action.setShortcut(QKeySequence(keys))
        menu.addAction(action)
        made.append(action)
    return made


def test_names_and_keys_are_read_plainly(actions: list[QAction]) -> None:
    assert [command_text(each) for each in actions] == [
        "New",
        "Save as",
        "Zoom in",
        "Frame & centre",
    ]
    assert [key_text(each) for each in actions] == [
        "Ctrl + N",
        "Ctrl + Shift + S",
        "Ctrl + +",
        "",
    ]
    actions[0].setShortcuts([QKeySequence("F1"), QKeySequence("?")])
    assert key_text(actions[0]) == "F1, ?"


def test_the_sheet_has_shortcuts_by_menu_and_the_gestures(
    qtbot: QtBot, actions: list[QAction]
) -> None:
    sheet = ShortcutSheet(actions)
    show(qtbot, sheet)
    text = label_text(sheet)
    assert (
        text.index("File")
        < text.index("Ctrl + N")
        < text.index("View")
        < text.index("Zoom in")
    )
    assert "Frame & centre" not in text and "Alt + click on a wire" in text
    qtbot.keyClicks(sheet.field, "wire cut")
    QApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
    text = label_text(sheet)
    assert (
        "Alt + click on a wire" in text
        and "Ctrl + N" not in text
        and "Wheel" not in text
    )
    sheet.field.setText("ctrl+shift+s")
    QApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
    assert "Save as" in label_text(sheet) and "Zoom in" not in label_text(sheet)
    sheet.field.setText("nothing of the kind")
    assert sheet.none.isVisible()


def test_the_sheet_names_a_command_and_not_its_next_effect(
    qtbot: QtBot, actions: list[QAction]
) -> None:
    actions[0].setText("&Undo Add Linear")
    actions[0].setProperty(NAME, "Undo")
    sheet = ShortcutSheet(actions)
    show(qtbot, sheet)
    assert "Undo" in label_text(sheet) and "Undo Add Linear" not in label_text(sheet)
    assert command_text(actions[0]) == "Undo Add Linear", (
        "the list of commands says what it would do"
    )


def test_a_closed_dialog_gives_the_keyboard_to_the_window_below(qtbot: QtBot) -> None:
    below, other = QWidget(), QWidget()
    for each in (below, other):
        show(qtbot, each)
    dialog = Dialog("Settings", below)
    dialog.open()
    dialog.activateWindow()
    qtbot.waitUntil(dialog.isActiveWindow)
    dialog.accept()
    qtbot.waitUntil(below.isActiveWindow)


def test_alt_and_a_letter_press_the_buttons_of_a_dialog(qtbot: QtBot) -> None:
    dialog = Dialog("Unsaved changes")
    buttons = [
        dialog.add_button(text)
        for text in ("Don't save", "Cancel", "Save", "Copy", "…")
    ]
    show(qtbot, dialog)
    keys = [each.shortcut().toString() for each in buttons]
    assert keys == ["Alt+D", "Alt+C", "Alt+S", "Alt+O", ""]
    dialog.activateWindow()
    qtbot.waitUntil(dialog.isActiveWindow)
    with qtbot.waitSignal(buttons[1].clicked):
        qtbot.keyClick(dialog, Qt.Key.Key_C, Qt.KeyboardModifier.AltModifier)
    buttons[3].setText("Copied")
    assert buttons[3].shortcut().toString() == "Alt+O", (
        "a button that says something else keeps its letter"
    )


def palette_of(actions: list[QAction]) -> SearchDialog:
    return SearchDialog([command_entry(each.text(), each) for each in actions])


def test_typing_finds_a_command_and_enter_runs_it(
    qtbot: QtBot, actions: list[QAction]
) -> None:
    palette = palette_of(actions)
    show(qtbot, palette)
    qtbot.keyClicks(palette.field, "save")
    with qtbot.waitSignal(actions[1].triggered):
        qtbot.keyClick(palette.field, Qt.Key.Key_Return)
    assert not palette.isVisible()


def test_arrows_go_through_all_commands(qtbot: QtBot, actions: list[QAction]) -> None:
    palette = palette_of(actions)
    show(qtbot, palette)
    assert palette.model.rowCount() == len(actions)
    qtbot.keyClick(palette.field, Qt.Key.Key_Down)
    qtbot.keyClick(palette.field, Qt.Key.Key_Down)
    with qtbot.waitSignal(actions[2].triggered):
        qtbot.keyClick(palette.field, Qt.Key.Key_Return)


def test_a_command_that_is_not_available_is_left_alone(
    qtbot: QtBot, actions: list[QAction]
) -> None:
    actions[0].setEnabled(False)
    palette = palette_of(actions)
    show(qtbot, palette)
    qtbot.keyClicks(palette.field, "new")
    index = palette.model.index(0)
    assert (
        palette.model.data(index, Qt.ItemDataRole.AccessibleTextRole)
        == "New, Ctrl + N, not available now"
    )
    with qtbot.assertNotEmitted(actions[0].triggered):
        qtbot.keyClick(palette.field, Qt.Key.Key_Return)
    assert palette.isVisible()
    qtbot.keyClick(palette.field, Qt.Key.Key_Escape)
    assert not palette.isVisible()


def test_no_command_of_that_name(qtbot: QtBot, actions: list[QAction]) -> None:
    palette = palette_of(actions)
    show(qtbot, palette)
    palette.field.setText("zzz")
    assert palette.none.isVisible()
    qtbot.keyClick(palette.field, Qt.Key.Key_Return)
    assert palette.isVisible()


# --- Download


Progress = Callable[[int, int, str], None]


def test_a_download_is_confirmed_shows_bytes_and_ends(
    qtbot: QtBot, tmp_path: Path
) -> None:
    go_on = threading.Event()
    asked = []

    def fetch(
        source: str, root: Path, progress: Progress, cancelled: Callable[[], bool]
    ) -> None:
        asked.append((source, root))
        progress(4_000_000, 8_000_000, "train-images.gz")
        go_on.wait(300)

    dialog = DownloadDialog(MNIST, tmp_path, fetch=fetch)
    show(qtbot, dialog)
    assert "11.6 MB" in dialog.words.text() and not asked, (
        "nothing is fetched before it is confirmed"
    )
    qtbot.keyClick(dialog, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: dialog.bar.value() == 500)
    assert dialog.state.text() == "4.0 MB of 8.0 MB · train-images.gz"
    with qtbot.waitSignal(dialog.downloaded) as done:
        go_on.set()
    assert (
        done.args == [MNIST] and asked == [(MNIST, tmp_path)] and not dialog.isVisible()
    )


def test_a_download_can_be_stopped(qtbot: QtBot, tmp_path: Path) -> None:
    def fetch(
        source: str, root: Path, progress: Progress, cancelled: Callable[[], bool]
    ) -> None:
        while not cancelled():
            pass
        raise DownloadCancelledError

    dialog = DownloadDialog(MNIST, tmp_path, fetch=fetch)
    show(qtbot, dialog)
    dialog.start()
    with qtbot.waitSignal(dialog.rejected), qtbot.assertNotEmitted(dialog.downloaded):
        qtbot.keyClick(dialog, Qt.Key.Key_Escape)
    assert not dialog.isVisible()


def test_a_failed_download_says_why_and_can_be_tried_again(
    qtbot: QtBot, tmp_path: Path
) -> None:
    answers = [DownloadError("No mirror gave the file."), None]

    def fetch(
        source: str, root: Path, progress: Progress, cancelled: Callable[[], bool]
    ) -> None:
        if error := answers.pop(0):
            raise error

    dialog = DownloadDialog(MNIST, tmp_path, fetch=fetch)
    show(qtbot, dialog)
    dialog.start()
    qtbot.waitUntil(lambda: dialog.start_button.text() == "Try again")
    assert dialog.state.text() == "No mirror gave the file."
    assert dialog.from_folder.isVisible() and dialog.stand_in.isVisible()
    with qtbot.waitSignal(dialog.downloaded):
        qtbot.mouseClick(dialog.start_button, Qt.MouseButton.LeftButton)


def test_after_a_failed_download_the_stand_in_or_a_folder_is_taken(
    qtbot: QtBot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[object] = []

    def fetch(
        source: str,
        root: Path,
        progress: Progress,
        cancelled: Callable[[], bool],
        folder: Path | None = None,
    ) -> None:
        taken.append(folder)
        if folder is None:
            raise DownloadError("No mirror gave the file.")

    monkeypatch.setattr(
        QFileDialog, "getExistingDirectory", lambda *_: str(tmp_path / "mine")
    )
    left = Qt.MouseButton.LeftButton
    for choose, signal in (
        ("stand_in", "stand_in_chosen"),
        ("from_folder", "downloaded"),
    ):
        dialog = DownloadDialog(MNIST, tmp_path, fetch=fetch)
        show(qtbot, dialog)
        assert not dialog.stand_in.isVisible()
        dialog.start()
        button = getattr(dialog, choose)
        qtbot.waitUntil(button.isVisible)
        with qtbot.waitSignal(getattr(dialog, signal)) as done:
            qtbot.mouseClick(button, left)
        assert done.args == [MNIST] and not dialog.isVisible()
    assert taken == [None, None, tmp_path / "mine"]


def test_at_larger_text_a_dialog_is_wider_and_scrolls_where_the_screen_is_too_low(
    qapp, qtbot
) -> None:
    theme.apply(qapp, "dark", 1.5)
    try:
        dialog = Dialog("Many lines")
        for number in range(60):
            dialog.body.addWidget(label(f"Line {number}"))
        close = dialog.add_button("Close")
        dialog.resize(400, 300)
        qtbot.addWidget(dialog)
        with qtbot.waitExposed(dialog):
            dialog.show()
        assert (
            dialog.width() == 600
            and dialog.height() < dialog.screen().availableSize().height()
        )
        assert dialog.rect().contains(close.geometry())
    finally:
        theme.apply(qapp, "dark", 1.0)
