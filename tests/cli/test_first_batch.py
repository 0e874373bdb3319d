"""`--on DATA` without --input: models are called with the first batch of the data, and the command says so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from app.cli import run
from app.data.config import DataConfig
from app.data.sample_counts import training_count
from app.sources.examples import of_batch
from app.sources.spec import SourceError
from tests.support.needs import needs

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

class Normed(nn.Module):
    def __init__(self, places=1):
        super().__init__()
        self.first, self.norm, self.head = nn.Linear(64, 8 * places), nn.BatchNorm1d(8), nn.Linear(8 * places, 10)

    def forward(self, x):
        hidden = self.first(x.flatten(1)).unflatten(1, (8, -1))
        return self.head(self.norm(hidden).flatten(1))

class NormedByTwo(Normed):
    def __init__(self):
        super().__init__(2)
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
        pytest.param("export", ["--weights", "o.pt"], marks=needs("export")),
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


@pytest.mark.parametrize(
    ("size", "said"),
    [
        ("1", "norm cannot train with a batch size of 1"),
        ("odd", "The last batch of an epoch has 1 sample, which norm cannot normalise"),
        ("64", ""),
    ],
)
def test_a_batch_of_one_sample_is_said_before_the_run_where_a_norm_cannot_take_it(
    size: str, said: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if size == "odd":
        count = training_count(DataConfig())
        assert count is not None
        size = str(count - 1)
    asked = ["--on", "digits", "--example", "on", "--trust", f"--set=batch_size={size}"]
    assert run(["check", "nets.py:Normed", *asked]) == bool(said)
    assert said in capsys.readouterr().out
    assert run(["check", "nets.py:NormedByTwo", *asked]) == 0


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
