"""A model that is opened is exported as the function that makes it."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

from app.features.export.export_dialog import ExportDialog
from app.preflight import opened as opened_nets
from app.project import file
from tests.support.whole_window import WholeWindow
from tests.training.test_opened import folder, opened  # noqa: F401  a fixture
from tests.views.window.test_window import ready


@pytest.mark.usefixtures("nothing_trusted")
def test_it_is_exported_as_the_function_that_makes_it(
    qtbot: QtBot,
    window: WholeWindow,
    folder: Path,
) -> None:
    file.write(opened_nets.project_of(opened(folder)), folder / "tiny.tape")
    window.files.open(folder / "tiny.tape")
    ready(qtbot, window)
    window.actions_by_key["export"].trigger()
    dialog = window.findChild(ExportDialog)
    assert dialog.boxes["code"].text() == "make_model.py"
    dialog.folder.setText(str(folder / "out"))
    qtbot.mouseClick(dialog.export_button, Qt.MouseButton.LeftButton)
    script = folder / "out" / "train.py"
    qtbot.waitUntil(script.is_file)
    model = (folder / "out" / "make_model.py").read_text()
    assert "from mine.net import Tiny" in model
    assert "from make_model import make_model" in script.read_text()
