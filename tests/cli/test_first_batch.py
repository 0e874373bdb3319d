"""`--on DATA` without --input: models are called with the first batch of the data, and the command says so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from app.cli import run
from app.sources.examples import of_batch
from app.sources.spec import SourceError

NETS = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(64, 10)

    def forward(self, x):
        assert x.shape[1:] == (1, 8, 8), x.shape
        return self.l(x.flatten(1))

class WithLoss(Net):
    def forward(self, x, targets):
        return nn.functional.cross_entropy(self.l(x.flatten(1)), targets)
"""
SAID = "inputs: the first batch of digits, 64x1x8x8:float32"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "nets.py").write_text(NETS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("command", "more"),
    [
        ("autograd", ["--out", "o.json"]),
        ("export", ["--weights", "o.pt"]),
    ],
)
def test_a_model_is_called_with_the_first_batch_of_the_data(
    command: str, more: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([command, "nets.py:Net", "--on", "digits", "--trust", *more]) == 0
    assert SAID in capsys.readouterr().err


def test_the_target_goes_to_an_argument_of_its_usual_name(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        run(
            [
                "autograd",
                "nets.py:WithLoss",
                "--on",
                "digits",
                "--trust",
                "--out",
                "o.json",
            ]
        )
        == 0
    )
    assert "NllLossBackward0" in json.dumps(json.loads((folder / "o.json").read_text()))


def test_other_commands_take_it_by_example_on(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["check", "nets.py:Net", "--on", "digits", "--trust"]
    assert run([*asked, "--example", "on"]) == 0
    assert SAID in capsys.readouterr().err
    assert run(["check", "nets.py:Net", "--trust", "--example", "on"]) == 2
    assert "name the data with --on DATA" in capsys.readouterr().err


def test_inputs_that_are_given_come_first_and_a_project_keeps_its_data(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(
        [
            "autograd",
            "nets.py:Net",
            "--on",
            "digits",
            "--input",
            "2x64",
            "--trust",
            "--out",
            "o.json",
        ]
    )
    assert SAID not in capsys.readouterr().err
    assert run(["autograd", "p.tape", "--on", "digits", "--out", "o.json"]) == 2
    assert "--on is for a model" in capsys.readouterr().err


class _Fields(torch.nn.Module):
    def forward(
        self, mask: torch.Tensor, ids: torch.Tensor, depth: torch.Tensor
    ) -> None: ...


def test_fields_go_to_the_arguments_of_their_names_and_one_that_is_missing_is_named() -> (
    None
):
    ids, mask, depth = (
        torch.ones(2, dtype=torch.int64),
        torch.zeros(2),
        torch.full((2,), 2.0),
    )
    fields = {"ids": ids, "picture": depth, "mask": mask}
    args, kwargs = of_batch(fields, {}, _Fields())
    assert [*map(id, args)] == [id(mask), id(ids), id(depth)] and not kwargs
    with pytest.raises(
        SourceError, match="nothing for depth of forward, only ids, mask"
    ):
        of_batch({"ids": ids, "mask": mask}, {}, _Fields())
