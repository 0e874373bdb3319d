"""A window that is started with a model shows it, and no project that nobody has opened."""

from __future__ import annotations

from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.features.opened.open_dialog import OpenModelDialog
from app.sources.spec import AskedModel
from tests.support.whole_window import WholeWindow

NET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(4, 8, batch_first=True)

    def forward(self, x):
        return self.gru(x)[0]

class Takes(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(5, 3)

    def forward(self, x):
        return self.layer(x)
"""
pytestmark = pytest.mark.usefixtures("nothing_trusted")


@pytest.mark.parametrize("name", ["Net", "Takes"])
def test_the_window_of_a_model_is_of_it_alone_and_nothing_is_red_that_nobody_chose(
    qtbot: QtBot,
    window: WholeWindow,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    (tmp_path / "nets.py").write_text(NET)
    monkeypatch.chdir(tmp_path)
    window.open_on(None, AskedModel(f"nets.py:{name}", inputs=("2x5",), trust=True))
    qtbot.waitUntil(lambda: window.pages.is_offered("centre", "observed"))
    qtbot.waitUntil(
        lambda: not window.findChildren(OpenModelDialog) and window.live.up_to_date
    )
    raised = name == "Net"
    assert (
        window.observed.observation.name
        and (window.document.project.opened is None) == raised
    )
    assert window.windowTitle().startswith("nets.py:Net" if raised else "Takes")
    assert not window.document.project.graph.nodes
    errors = ["nets.py:Net raised in gru"] if raised else []
    assert [problem.message for problem in window.live.analysis.errors] == errors
    wanted = "The model raised" if raised else "Choose data to train on"
    assert window.run_control.blocked == window.toolbar.deck.counter.message() == wanted
    assert window.live.errors  # which no run passes over
