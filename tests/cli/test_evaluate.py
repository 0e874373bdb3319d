"""`tapedeck evaluate` and `data` with other settings than those of the project's file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.cli import run
from app.util.resources import path as resource_path

pytestmark = pytest.mark.usefixtures("no_pictures")

DIGITS = str(resource_path("examples") / "digits.tape")
HELD_OUT = ("--set", "data.test_fraction=0.1")


def test_a_run_with_held_out_samples_is_evaluated_on_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "out")
    assert run(["train", DIGITS, "--out", out, "--epochs", "1", "--device", "cpu", *HELD_OUT]) == 0
    capsys.readouterr()
    assert run(["evaluate", DIGITS, "--checkpoint", out, "--part", "test", "--json", *HELD_OUT]) == 0
    assert json.loads(capsys.readouterr().out)["samples"] == 179
    assert run(["data", DIGITS, "--json", *HELD_OUT]) == 0
    assert json.loads(capsys.readouterr().out)["test_count"] == 179
