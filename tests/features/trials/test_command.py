"""`tapedeck try`: the dry run, the range test, and a step measured by layer and by operation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.cli import run
from app.util.resources import path as resource_path
from tests.cli import test_failures

path = test_failures.path  # a project whose own layer raises
DIGITS = str(resource_path("examples") / "digits.tape")


def test_the_memory_of_a_step_is_told_by_layer_with_the_state_of_its_optimizer(
    capsys: pytest.CaptureFixture,
) -> None:
    assert run(["try", DIGITS, "--memory", "--device", "cpu", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    (layer,) = (one for one in told["step"]["layers"] if one["layer"] == "fc1")
    assert layer["parameters"] == layer["gradients"] == 4 * (1024 * 64 + 64)
    assert layer["optimizer"] >= 2 * layer["parameters"], "Adam has two moments"
    assert run(["try", DIGITS, "--memory", "--device", "cpu"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == [
        "layer",
        "parameters",
        "gradients",
        "optimizer",
        "activations",
    ]
    assert next(line for line in lines if line.startswith("fc1")).split()[1:3] == [
        "256",
        "KiB",
    ]


def test_a_step_is_profiled_and_its_trace_written(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    trace = tmp_path / "trace.json"
    assert run(["try", DIGITS, "--profile", str(trace), "--device", "cpu"]) == 0
    assert (
        "aten::addmm" in capsys.readouterr().out
        and json.loads(trace.read_text())["traceEvents"]
    )
    assert (
        run(
            [
                "try",
                DIGITS,
                "--profile",
                str(tmp_path / "gone" / "trace.json"),
                "--device",
                "cpu",
            ]
        )
        == 2
    )
    assert "No such file or directory" in capsys.readouterr().err


def test_the_command_tries_without_a_window(capsys: pytest.CaptureFixture) -> None:
    assert run(["try", DIGITS, "--json"]) == 0
    tried = json.loads(capsys.readouterr().out)
    assert tried["input_shape"] == [1, 8, 8] and len(tried["seconds"]) == 2
    assert (
        run(["try", DIGITS, "--find-rate", "--batches", "15", "--device", "cpu"]) == 0
    )
    assert "The loss" in capsys.readouterr().out
    assert run(["try", DIGITS, "--find-rate", "--batches", "3"]) == 1
    assert "too few" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "The first step failed with "),
        (["--find-rate"], "your own code failed with "),
    ],
)
@pytest.mark.usefixtures("forked_trials")
def test_a_layer_that_raises_is_told_with_its_line(
    options: list[str], words: str, path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["try", str(path), *options, "--trust"]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1].startswith(f"tapedeck: {words}{test_failures.PLACE[:-1]}")
