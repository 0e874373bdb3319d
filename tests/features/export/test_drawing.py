"""The drawing on the canvas goes to a file from the File menu, in the size and with the project that were chosen."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PySide6.QtWidgets import QFileDialog
from pytestqt.qtbot import QtBot

from app.project.file import dumps
from app.project.picture_file import as_element
from tests.support.whole_window import WholeWindow


@pytest.fixture
def window(qtbot: QtBot, window: WholeWindow) -> WholeWindow:
    window.files.open_example("Residual net on digits.tape")
    qtbot.waitUntil(lambda: window.live.up_to_date)
    return window


def test_the_menu_writes_the_drawing_as_it_stands(
    qtbot: QtBot, window: WholeWindow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pictures = window.pictures
    answers = [
        ("", ""),
        (str(tmp_path / "net"), "JSON (*.json)"),
        (str(tmp_path / "net.png"), "PNG (*.png)"),
    ]
    said: list[tuple[str, str]] = []
    monkeypatch.setattr(window.notifier, "say", lambda *words: said.append(words))
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *_: answers.pop(0))
    window.actions_by_key["export-drawing"].trigger()
    pictures.dialog.save_button.click()
    assert pictures.dialog.isVisible(), "no file was named, so the choice stays"
    pictures.dialog.save_button.click()
    qtbot.waitUntil(lambda: bool(said))
    assert said.pop()[0] == "Saved net.json" and pictures.dialog is None
    read = json.loads((tmp_path / "net.json").read_text("utf-8"))
    assert read["title"] == "Residual net on digits" and not read["groups"]
    assert any(arrow["label"] == "N×32×8×8" for arrow in read["arrows"])
    window.actions_by_key["export-drawing"].trigger()
    dialog = pictures.dialog
    qtbot.waitUntil(lambda: dialog.preview.image is not None)
    assert "17.0 × " in dialog.note.text()
    dialog.size_field.setCurrentIndex(dialog.size_field.findData("column"))
    qtbot.waitUntil(lambda: "8.5 × " in dialog.note.text())
    dialog.save_button.click()
    qtbot.waitUntil(lambda: bool(said))
    assert said[0][0] == "Saved net.png" and said[0][1].startswith("8.5 × ")
    project, svg = window.document.project, tmp_path / "net.svg"
    svg.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg">{as_element(dumps(project))}</svg>',
        "utf-8",
    )
    for picture in (tmp_path / "net.png", svg):
        window.document.new()
        before = picture.read_bytes()
        assert window.files.open(picture)
        assert (
            window.document.project.graph == project.graph
            and window.document.path is None
        )
        assert picture.read_bytes() == before


def test_an_empty_canvas_says_so(
    window: WholeWindow, monkeypatch: pytest.MonkeyPatch
) -> None:
    window.document.new()
    said: list[str] = []
    monkeypatch.setattr(
        window.notifier, "say", lambda title, detail="": said.append(title)
    )
    monkeypatch.setattr(
        window.notifier, "refuse", lambda title, reason: said.append(reason)
    )
    window.actions_by_key["export-drawing"].trigger()
    assert said == ["Nothing on the canvas yet."]
