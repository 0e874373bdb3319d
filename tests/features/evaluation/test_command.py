"""`tapedeck evaluate`: parts, settings, weights of any file, and what is written."""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path

import pytest

from app.cli import run
from app.main import main
from app.training.events import EpochDone
from app.training.loop import train
from app.util.resources import path as resource_path
from tests.cli.test_failures import PLACE, told_of_the_layer
from tests.cli.test_failures import path as own_layer  # noqa: F401

pytestmark = pytest.mark.usefixtures("no_pictures")

DIGITS = str(resource_path("examples") / "digits.tape")
HELD_OUT = ("--set", "data.test_fraction=0.1")


def test_a_run_with_held_out_samples_is_evaluated_on_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "out")
    assert (
        run(
            [
                "train",
                DIGITS,
                "--out",
                out,
                "--epochs",
                "1",
                "--device",
                "cpu",
                *HELD_OUT,
            ]
        )
        == 0
    )
    capsys.readouterr()
    assert (
        run(
            [
                "evaluate",
                DIGITS,
                "--checkpoint",
                out,
                "--part",
                "test",
                "--json",
                *HELD_OUT,
            ]
        )
        == 0
    )
    assert json.loads(capsys.readouterr().out)["samples"] == 179
    assert run(["data", DIGITS, "--json", *HELD_OUT]) == 0
    assert json.loads(capsys.readouterr().out)["test_count"] == 179


def test_weights_are_read_as_they_come_and_one_of_several_by_its_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import torch

    from app.cli.nets import read, sound
    from app.source.compiled import make_module

    net = make_module(
        sound(
            read(argparse.Namespace(project=Path(DIGITS), trust=False)), alone=True
        ).source
    )
    state = {f"module.{key}": value for key, value in net.state_dict().items()}
    path = tmp_path / "c.ckpt"
    torch.save(
        {"model": state, "model_ema": {key: value * 0 for key, value in state.items()}},
        path,
    )
    losses = []
    for name in (str(path), f"{path}:model_ema"):
        assert run(["evaluate", DIGITS, "--weights", name, "--json"]) == 0
        losses.append(json.loads(capsys.readouterr().out)["loss"])
    assert losses[1] == pytest.approx(math.log(10), abs=1e-3) != losses[0]


def test_the_command_says_the_same_of_a_file_of_weights_and_refuses_what_is_none(
    tmp_path, capsys
):
    from app.export.weights import save_safetensors

    project, weights = DIGITS, tmp_path / "w.safetensors"
    assert main(["evaluate", project, "--json", "--device", "cpu"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert (
        first["weights"] == "start weights"
        and first["accuracy"] < 0.4
        and len(first["confusion"]) == 10
    )
    save_safetensors({"fc.weight": __import__("torch").ones(2)}, weights)
    assert main(["evaluate", project, "--weights", str(weights)]) == 1
    assert "another net" in capsys.readouterr().err
    table = tmp_path / "rows.csv"
    assert main(["evaluate", project, "--part", "training", "--csv", str(table)]) == 0
    assert (
        "precision" in capsys.readouterr().out
        and len(table.read_text().splitlines()) == 1439
    )


def test_the_command_takes_a_folder_with_checkpoints(tmp_path, capsys):
    from tests.concepts.test_training import digits_project, job_of

    a_job, _ = job_of(digits_project(max_steps=3))
    (last,) = [
        event for event in train(a_job, folder=tmp_path) if isinstance(event, EpochDone)
    ]
    project = DIGITS
    assert (
        main(
            [
                "evaluate",
                project,
                "--checkpoint",
                str(tmp_path),
                "--json",
                "--device",
                "cpu",
            ]
        )
        == 0
    )
    told = json.loads(capsys.readouterr().out)
    assert (told["loss"], told["accuracy"], told["weights"]) == (
        last.val_loss,
        last.val_accuracy,
        "last.pt",
    )
    assert main(["evaluate", project, "--checkpoint", str(tmp_path / "nowhere")]) == 2
    assert "nowhere" in capsys.readouterr().err


def test_a_layer_that_raises_is_told_with_its_line_and_no_other_code(
    own_layer: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(own_layer.parent)
    words = f"your own code failed with {PLACE}"
    told_of_the_layer(["evaluate", str(own_layer)], words, capsys)
