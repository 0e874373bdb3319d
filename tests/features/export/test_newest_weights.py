"""An export takes the newest weights of a run, or the best, and names them."""

from __future__ import annotations

from pathlib import Path

import torch
from pytestqt.qtbot import QtBot
from safetensors.torch import load_file

from app.features.export.export_dialog import ExportDialog
from tests.support.run_windows import closed, opened
from tests.support.whole_window import WholeWindow
from tests.views.window.test_newest_weights import (  # noqa: F401  fixtures
    WORDS,
    learnt,
    path,
    trained,
    window,
)


def test_export_and_save_weights_write_them_and_name_them(
    qtbot: QtBot, window: WholeWindow, path: Path, tmp_path: Path
) -> None:
    window.export_control.ask()
    (dialog,) = window.findChildren(ExportDialog)
    qtbot.waitUntil(
        lambda: dialog.weights.text() == f"{WORDS.capitalize().replace('run', 'Run')}."
    )
    dialog.folder.setText(str(tmp_path / "out"))
    dialog.which.set_value("best")
    qtbot.waitUntil(lambda: dialog.weights.text().endswith("its best validation loss."))
    with qtbot.waitSignal(window.export_control.exported) as told:
        dialog.export_button.click()
    assert told.args[0].weights.endswith("its best validation loss")
    best = load_file(tmp_path / "out" / "weights.safetensors")
    stored = torch.load(
        next(path.with_suffix(".runs").rglob("best.pt")), weights_only=True
    )["model"]
    assert all(torch.equal(value, best[key]) for key, value in stored.items())
    dialog.which.set_value("newest")
    with qtbot.waitSignal(window.export_control.exported) as told:
        window.export_control.export(dialog.choice())
    assert f"weights {told.args[0].weights}" == WORDS
    written = load_file(tmp_path / "out" / "weights.safetensors")
    assert all(torch.equal(value, written[key]) for key, value in learnt(path).items())


def test_weights_of_a_run_that_ends_while_the_dialog_is_open_are_named_anew(
    qtbot: QtBot, path: Path
) -> None:
    window = opened(qtbot, path)
    window.start_run()
    qtbot.waitUntil(lambda: window.session.state == "running")
    window.run_control.pause()
    qtbot.waitUntil(lambda: window.session.state == "paused")
    window.export_control.ask()
    (dialog,) = window.findChildren(ExportDialog)
    qtbot.waitUntil(lambda: dialog.weights.text() == "Weights of Run 2, under way.")
    window.run_control.run()
    qtbot.waitUntil(lambda: dialog.weights.text() == "Weights of Run 2 at step 46.")
    closed(window)
