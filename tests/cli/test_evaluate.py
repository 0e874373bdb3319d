"""`tapedeck evaluate` and `data` with other settings than those of the project's file."""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path

import pytest

from app.cli import run
from app.util.resources import path as resource_path

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
