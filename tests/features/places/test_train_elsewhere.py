"""A project is trained at a place: the script there computes what it computes here, and its files come back."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch

from app.features.places import values
from app.features.places.cli.train_elsewhere import _target
from app.features.places.values import Place, PlaceError
from app.main import main
from tests.support.forked_python import run_forked
from tests.support.run_commands import TRAIN, steps
from tests.support.ssh_host import SshHost


def test_a_project_trained_at_a_place_has_the_losses_and_weights_of_its_script_here(
    ssh_host: SshHost, tmp_path: Path, capfdbinary
):
    values.save({"gpubox": Place("gpubox", "box", sys.executable)})
    out = tmp_path / "out"
    given = ["--at", "gpubox", "--device", "cpu", "--epochs", "1", "--json"]
    assert main([*TRAIN, *given, "--out", str(out)]) == 0
    printed = capfdbinary.readouterr().out.decode()
    assert {file.name for file in out.iterdir()} == {
        "frames.jsonl",
        "model.py",
        "train.py",
        "weights.pt",
    }
    one_thread = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}  # as there
    options = ("--device", "cpu", "--json")
    here = run_forked(out / "train.py", *options, cwd=tmp_path, **one_thread)
    assert here.returncode == 0, here.stderr
    assert steps(here.stdout) == steps(printed) != []
    frames = (out / "frames.jsonl").read_text().splitlines()
    assert json.loads(frames[-1])["reason"] == "done"
    there, again = (
        torch.load(path, weights_only=True)
        for path in (out / "weights.pt", tmp_path / "trained" / "weights.pt")
    )
    assert all(torch.equal(there[name], again[name]) for name in again)


def test_what_is_kept_here_alone_is_refused_before_anything_runs(tmp_path, capsys):
    values.save({"gpubox": Place("gpubox", "box", sys.executable)})
    given = ["--at", "gpubox", "--out", str(tmp_path / "out"), "--revisit-seconds", "5"]
    assert main([*TRAIN, *given]) == 2
    assert "--at PLACE does not support --revisit-seconds" in capsys.readouterr().err


@pytest.mark.parametrize(
    "name", ["out/../../x", "/x.py", "../x.pt", "out//x/../../../y", "out"]
)
def test_a_name_from_there_leads_nowhere_else(name, tmp_path):
    with pytest.raises(PlaceError, match="no name for a file here"):
        _target(name, tmp_path)


def test_files_from_there_lie_below_the_folder_here(tmp_path):
    assert _target("out/a/weights.pt", tmp_path) == tmp_path / "a" / "weights.pt"
    assert _target("train.py", tmp_path) == tmp_path / "train.py"
    assert _target("output.txt", tmp_path) is None
