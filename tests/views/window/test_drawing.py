"""The drawing on the canvas goes to a file from the File menu, with or without Graphviz."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PySide6.QtSvg import QSvgRenderer
from PySide6.QtWidgets import QFileDialog
from pytestqt.qtbot import QtBot

from tests.support.whole_window import WholeWindow


@pytest.fixture
def window(qtbot: QtBot, window: WholeWindow) -> WholeWindow:
    window.files.open_example("Residual net on digits.tape")
    qtbot.waitUntil(lambda: window.live.up_to_date, timeout=60_000)
    return window


def test_the_menu_writes_the_drawing_as_it_stands(
    qtbot: QtBot, window: WholeWindow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pictures = window.pictures
    answers = [(str(tmp_path / "net"), "JSON (*.json)"), (str(tmp_path / "net.svg"), "SVG (*.svg)"), ("", "")]
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *_: answers.pop(0))
    with qtbot.waitSignal(pictures.said) as said:
        window.actions_by_key["export-drawing"].trigger()
    assert said.args[0] == "Saved net.json"
    read = json.loads((tmp_path / "net.json").read_text("utf-8"))
    assert read["title"] == "Residual net on digits" and not read["groups"]
    assert any(arrow["label"] == "N×32×8×8" for arrow in read["arrows"])
    monkeypatch.setenv("PATH", str(tmp_path))
    with qtbot.waitSignal(pictures.said) as said:
        window.actions_by_key["export-drawing"].trigger()
    assert "Drawn by Tapedeck" in said.args[1]
    assert QSvgRenderer(str(tmp_path / "net.svg")).isValid() and b"Conv2d" in (tmp_path / "net.svg").read_bytes()
    window.actions_by_key["export-drawing"].trigger()
    assert not answers


def test_an_empty_canvas_says_so(window: WholeWindow, monkeypatch: pytest.MonkeyPatch) -> None:
    window.document.new()
    said: list[str] = []
    monkeypatch.setattr(window.notifier, "say", lambda title, detail="": said.append(title))
    monkeypatch.setattr(window.notifier, "refuse", lambda title, reason: said.append(reason))
    window.actions_by_key["export-drawing"].trigger()
    assert said == ["Nothing on the canvas yet."]
