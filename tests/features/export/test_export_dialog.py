"""The dialog of an export by itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtWidgets import QWidget
from pytestqt.qtbot import QtBot

from app.features.export.export_dialog import ExportDialog, folder_problem
from app.features.export.values import ExportChoice
from app.views.ui.dialogs import base
from app.views.ui.scrolled import Scrolled
from tests.views.test_dialogs import show


def test_export_returns_what_was_chosen(qtbot: QtBot, tmp_path: Path) -> None:
    dialog = ExportDialog(tmp_path / "net", "untrained, initialised with seed 0")
    show(qtbot, dialog)
    assert dialog.weights.text() == "Weights untrained, initialised with seed 0."
    assert dialog.note.text() == "The folder will be created."
    dialog.boxes["pt"].setFocus()
    qtbot.keyClick(dialog.boxes["pt"], Qt.Key.Key_Space)
    with qtbot.waitSignal(dialog.chosen) as chosen:
        qtbot.mouseClick(dialog.export_button, Qt.MouseButton.LeftButton)
    assert chosen.args == [ExportChoice(tmp_path / "net", True, True, True, True)]
    assert chosen.args[0].names == (
        "model.py",
        "weights.safetensors",
        "weights.pt",
        "train.py",
    )


def test_export_says_what_stands_in_the_way(qtbot: QtBot, tmp_path: Path) -> None:
    (tmp_path / "model.py").touch()
    (tmp_path / "file").touch()
    dialog = ExportDialog(tmp_path, "of run 1, after 5 steps")
    show(qtbot, dialog)
    assert (
        dialog.note.text() == "Will be replaced: model.py."
        and dialog.export_button.isEnabled()
    )
    dialog.folder.setText("")
    assert (
        "absolute path" in dialog.note.text() and not dialog.export_button.isEnabled()
    )
    dialog.folder.setText(str(tmp_path / "file"))
    assert "is a file" in dialog.note.text() and not dialog.export_button.isEnabled()
    dialog.folder.setText(str(tmp_path))
    for box in dialog.boxes.values():
        box.setChecked(False)
    assert (
        dialog.note.text() == "Choose at least one file."
        and not dialog.weights.isVisible()
    )
    assert "folder cannot be created" in folder_problem(tmp_path / "file" / "below")
    dialog.boxes["code"].setChecked(True)
    for name in ("n" * 300, "~nobody_of_that_name/out"):
        dialog.folder.setText(str(tmp_path / name) if name[0] == "n" else name)
        assert not dialog.export_button.isEnabled()
        assert (
            "File name too long" in dialog.note.text()
            or "absolute path" in dialog.note.text()
        )


def test_a_dialog_scrolls_where_the_screen_is_too_low_and_its_buttons_stay(
    qtbot: QtBot, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(base, "FRAME", 250)  # of 800 px
    dialog = ExportDialog(tmp_path, "of Run 1 at step 276")
    show(qtbot, dialog)
    dialog.hide()
    show(qtbot, dialog)  # again: it scrolls once
    assert dialog.height() == 550 and len(dialog.findChildren(Scrolled)) == 1
    assert (
        dialog.rect().contains(dialog.export_button.geometry())
        and dialog.folder.visibleRegion().isEmpty()
    )
    dialog.boxes["certify"].setFocus()
    while dialog.focusWidget() is not dialog.folder:
        qtbot.keyClick(dialog.focusWidget(), Qt.Key.Key_Tab)
    qtbot.waitUntil(
        lambda: dialog.folder.visibleRegion().boundingRect() == dialog.folder.rect()
    )


def test_the_choice_of_weights_is_a_part_of_its_own_below_the_files(
    qtbot: QtBot, tmp_path: Path
) -> None:
    dialog = ExportDialog(tmp_path, "of Run 1 at step 276")
    qtbot.addWidget(dialog)
    dialog.show()
    qtbot.waitExposed(dialog)

    def top(widget: QWidget) -> int:
        return widget.mapTo(dialog, QPoint(0, 0)).y()

    assert (
        top(dialog.boxes["certify"])
        < top(dialog.of_weights)
        < top(dialog.which)
        < top(dialog.folder)
    )
    assert (
        abs(
            dialog.which.mapTo(dialog, dialog.which.rect().center()).y()
            - dialog.weights.mapTo(dialog, dialog.weights.rect().center()).y()
        )
        < 4
    )
    for key in ("safetensors", "pt"):
        dialog.boxes[key].setChecked(False)
    assert not dialog.of_weights.isVisible(), "no file has weights"
