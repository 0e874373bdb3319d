"""What `tapedeck train` leaves of a run that failed, and how it exits."""

from pathlib import Path

import pytest

from app.main import main
from app.util.resources import path as resource_path

pytestmark = pytest.mark.usefixtures("no_pictures")

DIGITS = resource_path("examples", "digits.tape")
FAILS = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, steps=0):
        super().__init__()
        self.steps, self.l = steps, nn.Linear(64, 10)

    def forward(self, x):
        if self.training and len(x) == 64:
            self.steps -= 1
            if self.steps < -1:
                raise KeyError("a table of mine")
        return self.l(x.flatten(1))
"""


def train(tmp_path: Path, *options: str) -> int:
    (tmp_path / "net.py").write_text(FAILS)
    out = ["--out", str(tmp_path / "out"), "--device", "cpu", "--epochs", "1"]
    model = ["--trust", "--input", "2x1x8x8", "--on", "digits"]
    return main(["train", f"{tmp_path / 'net.py'}:Net", *model, *out, *options])


def test_a_command_that_failed_before_a_step_leaves_no_result(tmp_path, capsys):
    assert train(tmp_path, "--set", "optimizer.name=SparseAdam") == 1
    assert (
        "No step was taken, so no weights, code or curves were written"
        in capsys.readouterr().err
    )
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["runs"]


def test_a_command_that_failed_after_some_steps_says_so_beside_the_weights(
    tmp_path, capsys
):
    assert train(tmp_path, "--args", '{"steps": 3}') == 1
    told = capsys.readouterr()
    assert (
        "weights.*: of step 4, after which the run failed" in told.out
        and "a table of mine" in told.err
    )
    text = (tmp_path / "out" / "FAILED.txt").read_text()
    assert "failed after step 4, in epoch 1" in text and "a table of mine" in text
    assert train(tmp_path, "--args", '{"steps": 99}') == 0
    assert not (tmp_path / "out" / "FAILED.txt").exists()


def test_a_file_that_cannot_be_read_or_written_exits_with_2_and_a_wrong_net_with_1(
    tmp_path, capsys
):
    train = ["train", str(DIGITS), "--device", "cpu", "--epochs", "1"]
    assert (
        main(
            [
                *train,
                "--out",
                str(tmp_path / "a"),
                "--set",
                "data.path=/nowhere.csv",
                "--set",
                "data.source=file.csv",
            ]
        )
        == 2
    )
    assert "/nowhere.csv" in capsys.readouterr().err
    (tmp_path / "b" / "metrics.csv").mkdir(parents=True)
    assert main([*train, "--out", str(tmp_path / "b")]) == 2
    assert "metrics.csv could not be written" in capsys.readouterr().err
    assert main([*train, "--out", str(tmp_path / "c"), "--on", "made.moons"]) == 1


@pytest.mark.parametrize(
    "name",
    [
        "optimizer.params.lr",
        "optimizer.params.eps",
        "loss.params.label_smoothing",
        "clip_norm",
        "ema",
        "max_minutes",
        "mixup",
        "data.validation_fraction",
    ],
)
def test_a_number_of_400_digits_is_refused_by_name_before_anything_is_written(
    name, tmp_path, capsys
):
    assert (
        main(
            [
                "train",
                str(DIGITS),
                "--out",
                str(tmp_path / "a"),
                "--set",
                f"{name}={'9' * 400}",
            ]
        )
        == 2
    )
    told = capsys.readouterr().err
    assert (
        name.rpartition(".")[2] in told and "Traceback" not in told and len(told) < 500
    )
    assert not (tmp_path / "a").exists()


def test_a_project_with_such_a_number_is_refused_by_check_as_by_train(tmp_path, capsys):
    text = DIGITS.read_text().replace('"lr": 0.001', f'"lr": {"9" * 400}')
    assert "9" * 400 in text
    (tmp_path / "p.tape").write_text(text)
    for command in (["check"], ["train", "--out", str(tmp_path / "a")]):
        assert main([command[0], str(tmp_path / "p.tape"), *command[1:]]) == 2
        assert "$.training.optimizer.params.lr" in capsys.readouterr().err
