"""A command at a place is that command: its output, its errors, its exit status, and the files that it writes."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from app.features.places import values
from app.features.places.values import Place
from app.main import main
from tests.support.needs import needs
from tests.support.run_commands import DIGITS, TRAIN
from tests.support.ssh_host import SshHost

Printed = tuple[int, bytes, bytes]


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
