"""Why a command's run ended, and which of its weights are in which file."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace
from safetensors.torch import load_file

from app.main import main
from app.project import file
from app.runs import store
from app.training.config import Choice
from app.util.frozen import FrozenMap
from app.util.resources import path as resource_path
from tests.support.needs import needs

pytestmark = pytest.mark.usefixtures("no_pictures")


def trained(folder: Path, **training: object) -> Path:
    project = file.read(resource_path("examples", "MLP on digits.tape"))
    file.write(
        replace(project, training=replace(project.training, **training)),
        folder / "net.tape",
    )
    assert (
        main(
            [
                "train",
                str(folder / "net.tape"),
                "--out",
                str(folder / "out"),
                "--device",
                "cpu",
            ]
        )
        == 0
    )
    return folder / "out"


def test_early_stopping_is_said_and_best_and_last_weights_are_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = trained(
        tmp_path,
        patience=1,
        epochs=30,
        optimizer=Choice("SGD", FrozenMap(lr=2.0)),
        seed=1,
    )
    text = capsys.readouterr().out
    assert (
        "ended early after" in text
        and "the validation loss has not improved for 1 epoch" in text
    )
    (kept,) = store.listed(out / "runs")
    history = store.history_of(kept)
    losses = history.epochs["val_loss"].tolist()
    assert losses[-2] == min(losses) < losses[-1]
    assert (
        f"weights.*: the last, of step {len(history.steps)}, validation loss {losses[-1]:.4f}\n"
        in text
    )
    assert (
        f"weights-best.*: the smallest validation loss, {losses[-2]:.4f}, of epoch {len(losses) - 1} "
        in text
    )
    last, best = (
        load_file(out / "weights.safetensors"),
        load_file(out / "weights-best.safetensors"),
    )
    assert set(last) == set(best) and any(
        (last[key] != best[key]).any() for key in last
    )
    assert (
        "weights-best.pt" in text
        and kept.record.ending is not None
        and "not improved" in kept.record.ending.note
    )


@needs("runs")
def test_skipped_steps_are_counted_and_a_limit_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rate = Choice("SGD", FrozenMap(lr=1e30))
    out = trained(tmp_path, not_finite="skip", max_steps=5, optimizer=rate)
    text = capsys.readouterr().out
    assert "ended early after 5 steps: the limit of 5 steps was reached; " in text
    (kept,) = store.listed(out / "runs")
    assert kept.record.skipped > 0
    assert (
        f"{kept.record.skipped} of 5 steps were skipped: their loss was not finite"
        in text
    )
    assert main(["runs", str(out)]) == 0 and "were skipped" in capsys.readouterr().out
