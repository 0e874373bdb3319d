"""The thread that writes checkpoints: a better one that comes while it rests is written too, with nobody asking."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from app.training.checkpoints import checkpoint, writer
from app.training.checkpoints.writer import Saver
from tests.conftest import PatientBot


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The values of the checkpoints that were written, in order; a disk that takes no time."""
    values: list[float] = []

    def keep(_folder: Path, _name: str, state: dict[str, Any]) -> str:
        values.append(float(state["value"]))
        return ""

    monkeypatch.setattr(checkpoint, "keep", keep)
    monkeypatch.setattr(writer, "REST", 0.2)
    return values


def test_a_better_checkpoint_while_the_writer_rests_is_written_without_another(
    qtbot: PatientBot, tmp_path: Path, written: list[float]
) -> None:
    saver = Saver(tmp_path)
    saver.put(checkpoint.BEST, 1, {"value": torch.tensor(1.0)})
    qtbot.waitUntil(lambda: bool(saver.news))
    for step in (2, 3):  # it rests now; the second takes the place of the first
        saver.put(checkpoint.BEST, step, {"value": torch.tensor(float(step))})
    qtbot.waitUntil(lambda: written[-1:] == [3.0])
    assert written[0] == 1.0
    assert [one.step for one in saver.close()][-1] == 3
