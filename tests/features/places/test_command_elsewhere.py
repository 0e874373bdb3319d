"""A command at a place is that command: its output, its errors, its exit status, and the files that it writes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from app.features.places import values
from app.features.places.values import Place
from app.main import main
from app.runs import store
from tests.support.needs import needs
from tests.support.run_commands import DIGITS, TRAIN
from tests.support.ssh_host import SshHost

Printed = tuple[int, bytes, bytes]
NET = """
from torch import nn


class Net(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
"""


@pytest.fixture
def box(ssh_host: SshHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SshHost:
    values.save({"gpubox": Place("gpubox", "box", sys.executable)})
    monkeypatch.chdir(tmp_path)
    shutil.copy(DIGITS, "digits.tape")
    return ssh_host


@pytest.fixture
def printed(capfdbinary):
    def of(*arguments: str) -> Printed:
        status = main(list(arguments))
        return status, *capfdbinary.readouterr()

    return of


def losses_of(printed: bytes) -> list[tuple[str, float]]:
    """The runs of a sweep, by their names, with their losses."""
    lines = [json.loads(line) for line in printed.splitlines()]
    return [(line["name"], line["summary"]["best_loss"]) for line in lines]


def test_a_project_here_is_described_there_as_it_is_here(box: SshHost, printed) -> None:
    graph = ("autograd", "digits.tape", "--out", "graph.json")
    here = printed(*graph)
    written = Path("graph.json").read_bytes()
    Path("graph.json").unlink()
    assert printed(*graph, "--at", "gpubox") == here
    assert Path("graph.json").read_bytes() == written


@needs("runs", "evaluation")
def test_runs_there_are_listed_and_evaluated(box: SshHost, printed) -> None:
    out = box.home / "work" / "out"
    out.parent.mkdir()
    assert printed(*TRAIN, "--out", str(out))[0] == 0
    listed = printed("runs", str(out))
    assert listed[0] == 0 and b"done" in listed[1]
    assert printed("runs", "gpubox:work/out", "--at", "gpubox") == listed
    asked = ("evaluate", "digits.tape", "--json", "--device", "cpu", "--checkpoint")
    here = printed(*asked, str(out))
    assert printed(*asked, "gpubox:work/out", "--at=gpubox") == here
    assert here[0] == 0 and json.loads(here[1])["samples"] == 359


@needs("sweep", "runs")
def test_a_sweep_there_is_that_of_here_and_its_runs_come_beside_the_project(
    box: SshHost, printed
) -> None:
    Path("here").mkdir()
    shutil.copy("digits.tape", "here/digits.tape")
    settings = ("--set", "lr=0.1,0.01", "--set", "max_steps=3")
    sweep = (*settings, "--device", "cpu", "--json")
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    here = subprocess.run(
        [sys.executable, "-m", "tapedeck", "sweep", "here/digits.tape", *sweep],
        env=one_thread,  # as there
        capture_output=True,
        check=True,
    )
    there = printed("sweep", "digits.tape", *sweep, "--at", "gpubox")
    assert there[0] == 0
    assert losses_of(here.stdout) == losses_of(there[1]) != []
    names = {kept.record.name for kept in store.listed(Path("digits.runs"))}
    assert names == {"lr 0.1", "lr 0.01"}
    status, _, errors = printed("sweep", "digits.tape", *sweep, "--at", "gpubox")
    assert status == 2 and b"is there already" in errors


@needs("opened")
def test_a_model_is_drawn_there_as_it_is_here(box: SshHost, printed) -> None:
    Path("net.py").write_text(NET)
    draw = ("draw", "net.py:Net", "--input", "2x3", "--trust", "--out", "net.json")
    here = printed(*draw)
    written = Path("net.json").read_bytes()
    Path("net.json").unlink()
    assert printed(*draw, "--at", "gpubox") == here and here[0] == 0
    assert Path("net.json").read_bytes() == written


@needs("compare")
def test_two_projects_are_compared_there_as_they_are_here(
    box: SshHost, printed
) -> None:
    shutil.copy("digits.tape", "other.tape")
    diff = ("diff", "digits.tape", "other.tape", "--json")
    here, there = printed(*diff), printed(*diff, "--at", "gpubox")
    assert here[0] == there[0] == 0
    one, other = (json.loads(each[1]) for each in (here, there))
    assert one["first"] is other["first"] is None
    names = [layer["a"] for layer in one["layers"]]
    assert [layer["a"] for layer in other["layers"]] == names != []


@needs("revisit")
def test_a_step_of_a_run_there_is_recomputed_there(box: SshHost, printed) -> None:
    out = box.home / "out"
    hashes = ("--revisit-seconds", "30")
    assert printed(*TRAIN, *hashes, "--out", str(out))[0] == 0
    revisit = ("--step", "3", "--json")
    here = printed("revisit", str(out), *revisit)
    assert printed("revisit", "gpubox:out", *revisit, "--at", "gpubox") == here
    assert here[0] == 0


@needs("trials")
def test_a_step_is_measured_there(box: SshHost, printed) -> None:
    status, out, errors = printed(
        "try", "digits.tape", "--json", "--device", "cpu", "--at", "gpubox"
    )
    assert status == 0, errors
    times = json.loads(out)["times"]
    assert times["device"] == "cpu" and times["step_seconds"] > 0


@needs("compare")
def test_what_is_refused_there_is_refused_with_its_status_and_its_words(
    box: SshHost, printed
) -> None:
    status, out, errors = printed("diff", "digits.tape", "no.tape", "--at", "gpubox")
    assert status == 2 and not out and b"no.tape" in errors
    status, _, errors = printed("runs", "digits.tape", "--at", "nobox")
    assert status == 1 and b"nobox is no place" in errors


def test_two_files_of_one_name_are_refused_before_anything_runs(
    box: SshHost, printed
) -> None:
    Path("other").mkdir()
    shutil.copy("digits.tape", "other/digits.tape")
    arguments = ("diff", "digits.tape", "other/digits.tape", "--at", "gpubox")
    status, _, errors = printed(*arguments)
    assert status == 2 and b"have the same name" in errors
    assert not [*box.home.glob("**/watched/*")]
