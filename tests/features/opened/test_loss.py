"""The loss that the window chooses for an opened model, and who is said to have chosen it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.data.config import DataConfig
from app.features.opened.open_dialog import OpenModelDialog
from app.sources.spec import AskedModel
from app.training.config import BY_DATA, INPUT, OutputLoss
from tests.support.whole_window import WholeWindow
from tests.views.window.test_window import ready

AUTO = """
from torch import nn

class Auto(nn.Module):
    def __init__(self):
        super().__init__()
        self.shrink, self.grow = nn.Linear(64, 8), nn.Linear(8, 64)

    def forward(self, pixels):
        return self.grow(self.shrink(pixels.flatten(1)).relu())
"""

pytestmark = pytest.mark.usefixtures("nothing_trusted")


@pytest.fixture
def auto(
    qtbot: QtBot, window: WholeWindow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[WholeWindow]:
    (tmp_path / "auto_opened.py").write_text(AUTO)
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    window.actions_by_key.trigger(
        "open-source", AskedModel("auto_opened.py:Auto", "{}", ("2x1x8x8",), trust=True)
    )
    qtbot.waitUntil(lambda: window.document.project.opened is not None)
    qtbot.waitUntil(lambda: not window.findChildren(OpenModelDialog))
    ready(qtbot, window)
    yield window
    sys.path[:] = before
    sys.modules.pop("auto_opened", None)


def test_an_autoencoder_is_compared_with_its_input_until_somebody_chooses_a_loss(
    auto: WholeWindow,
) -> None:
    training = auto.document.project.training
    assert [(row.loss.name, row.target) for row in training.losses] == [
        ("MSELoss", INPUT)
    ]
    assert training.loss_by == BY_DATA
    auto.pages.show("training")
    form = auto.training_form
    form.loss.rows_made.emit(
        (OutputLoss("output", training.losses[0].loss, 0.5, INPUT),), "Set weight", None
    )
    assert auto.document.project.training.loss_by == ""


def test_other_data_have_the_loss_that_fits_them(auto: WholeWindow) -> None:
    auto.pages.show("training")
    form = auto.training_form
    form.data.chosen.emit(DataConfig("made.dates"), "Choose data", None)
    training = auto.document.project.training
    assert (training.loss.name, training.losses, training.loss_by) == (
        "CrossEntropyLoss",
        (),
        BY_DATA,
    )
