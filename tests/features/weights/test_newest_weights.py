"""Weights that are saved after a project is reopened are those of its newest kept run."""

from __future__ import annotations

from pathlib import Path

import torch
from pytestqt.qtbot import QtBot

from tests.support.whole_window import WholeWindow
from tests.views.window.test_newest_weights import (  # noqa: F401
    learnt,
    path,
    trained,
    window,
)


def test_the_newest_weights_are_saved(
    qtbot: QtBot,
    window: WholeWindow,
    path: Path,
    tmp_path: Path,
) -> None:
    window.weights_control.save(tmp_path / "saved.pt")
    qtbot.waitUntil((tmp_path / "saved.pt").is_file)
    saved = torch.load(tmp_path / "saved.pt", weights_only=True)
    assert all(torch.equal(value, saved[key]) for key, value in learnt(path).items())
