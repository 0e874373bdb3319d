"""Checkpoints that are empty, cut or flipped are passed over with a word, and the newest whole one is taken."""

from __future__ import annotations

import errno
import random
from pathlib import Path
from typing import Any

import pytest
import torch

from app.main import main
from app.runs import resume, store
from app.training.checkpoints import checkpoint, checksums
from app.training.events import Failed, Finished, Started
from app.training.loop import train
from app.util.resources import path as resource_path
from tests.slow.flipped_checkpoints import damaged
from tests.support.training_jobs import SMALL_NET, job

pytestmark = pytest.mark.usefixtures("no_pictures")

DIGITS = resource_path("examples", "digits.tape")
A_JOB = job(SMALL_NET, epochs=1, save_every=4)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoints of a short run."""
    folder = tmp_path_factory.mktemp("trained")
    assert isinstance(list(train(A_JOB, folder=folder))[-1], Finished)
    return folder


@pytest.fixture
def folder(trained: Path, tmp_path: Path) -> Path:
    """A copy of them, to be damaged."""
    for file in trained.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    return tmp_path


def test_flipped_bits_and_cuts_are_told_or_harmless(tmp_path: Path) -> None:
    found = damaged(tmp_path, flips=25, cuts=5, choose=random.Random(1))
    assert (
        found.silent == ()
        and found.told + found.harmless == 25
        and found.told > 15
        and found.cuts_told == 5
    )


def test_the_tensor_that_is_not_what_was_written_is_named(folder: Path) -> None:
    last = folder / checkpoint.LAST
    weight = checkpoint.load(last)["model"]["linear1.weight"]
    data = last.read_bytes()
    at = data.index(weight.numpy().tobytes()) + 5
    last.write_bytes(data[:at] + bytes([data[at] ^ 16]) + data[at + 1 :])
    with pytest.raises(
        checkpoint.DamagedCheckpointError,
        match="model.linear1.weight changed since it was written",
    ):
        checkpoint.load(last)
    failed = list(train(A_JOB, resume=last))[-1]
    assert (
        isinstance(failed, Failed)
        and "model.linear1.weight changed since it was written" in failed.message
    )


def test_every_kind_of_value_counts() -> None:
    values: list[Any] = [
        torch.ones(2),
        torch.ones(2, dtype=torch.bfloat16),
        torch.ones(2, 1),
        torch.empty(0),
        torch.tensor(True),
        torch.ones(2, dtype=torch.complex64).mul(1j).conj(),
        1,
        1.0,
        True,
        "1",
        None,
        [],
        (),
        {},
        [1],
        {"a": 1},
    ]
    found = [tuple(checksums.checksums({"it": value}).items()) for value in values]
    assert len(set(found)) == len(values)
    assert checksums.checksums({"a": [torch.ones(2), 0.1]}) == checksums.checksums(
        {"a": [torch.ones(2), 0.1]}
    )


def resaved(path: Path, **changes: Any) -> None:
    """Write a checkpoint of other content by hand, as an older program or a hostile one would."""
    state = {**checkpoint.load(path), **changes}
    torch.save({key: value for key, value in state.items() if value is not ...}, path)


def test_a_checkpoint_of_an_older_version_is_taken_and_said_to_be_unverified(
    folder: Path,
) -> None:
    last = folder / checkpoint.LAST
    resaved(last, tapedeck_checkpoint=checkpoint.WITHOUT_CHECKSUMS, sha256=...)
    assert checkpoint.newest(folder) == last
    longer = job(SMALL_NET, epochs=2)
    events = list(train(longer, resume=last))
    assert (
        isinstance(events[0], Started)
        and "last.pt is of an older version and has no checksums" in events[0].changed
    )
    assert isinstance(events[-1], Finished)
    resaved(folder / checkpoint.BEST, sha256=...)
    with pytest.raises(checkpoint.DamagedCheckpointError, match="checksums missing"):
        checkpoint.load(folder / checkpoint.BEST)


@pytest.mark.parametrize(
    "change",
    [
        {"position": ...},
        {"position": 7},
        {"position": {"step": 1}},
        {"position": {"step": "x", "done": 0, "epoch": 0, "batch": 0}},
        {"model": ...},
        {"generators": ...},
        {"shuffle": ...},
    ],
)
def test_a_checkpoint_that_lacks_a_part_is_passed_over(
    folder: Path, change: dict[str, Any]
) -> None:
    last = folder / checkpoint.LAST
    resaved(
        last, tapedeck_checkpoint=checkpoint.WITHOUT_CHECKSUMS, sha256=..., **change
    )
    told: list[str] = []
    taken = checkpoint.newest(folder, told.append)
    assert taken is not None and taken != last
    assert (
        len(told) == 1
        and told[0].startswith("A checkpoint is skipped: ")
        and str(last) in told[0]
    )


def test_what_does_not_fit_in_a_state_is_no_traceback(folder: Path) -> None:
    last = folder / checkpoint.LAST
    resaved(
        last,
        tapedeck_checkpoint=checkpoint.WITHOUT_CHECKSUMS,
        sha256=...,
        optimizer=[1],
        generators={"torch": 1},
    )
    failed = list(train(A_JOB, resume=last))[-1]
    assert (
        isinstance(failed, Failed)
        and failed.kind == "job"
        and "other settings" in failed.message
    )


def test_going_on_lets_go_of_damaged_ones_and_keeps_those_of_a_newer_program(
    folder: Path, tmp_path: Path
) -> None:
    from app.project.project import Project

    kept = store.begin(tmp_path / "runs", Project("a"))
    kept.checkpoints.mkdir()
    for file in folder.glob("*.pt"):
        file.rename(kept.checkpoints / file.name)
    (kept.checkpoints / "step-00000008.pt").write_bytes(b"")
    torch.save({"tapedeck_checkpoint": 99}, kept.checkpoints / checkpoint.BEST)
    at = resume.going_on(kept, kept.checkpoints / "step-00000020.pt")
    assert at.step == 20
    left = {file.name for file in kept.checkpoints.iterdir()}
    assert left == {checkpoint.BEST, "step-00000016.pt", "step-00000020.pt"}


# --- The command

TRAIN = ["train", str(DIGITS), "--epochs", "1", "--device", "cpu"]


def test_resume_passes_over_an_empty_checkpoint_and_names_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main([*TRAIN, "--out", str(out), "--save-every", "10"]) == 0
    whole = (out / "weights.safetensors").read_bytes()
    (kept,) = store.listed(out / "runs")
    last = kept.checkpoints / checkpoint.LAST
    last.write_bytes(b"")
    capsys.readouterr()
    assert main([*TRAIN, "--out", str(out), "--resume", str(last)]) == 2
    told = capsys.readouterr().err
    assert (
        f"tapedeck: {last} is empty." in told
        and "is intact: use that one." in told
        and told.count("\n") == 1
    )
    assert main([*TRAIN, "--out", str(out), "--resume", str(out)]) == 0
    assert (
        f"tapedeck: A checkpoint is skipped: {last} is empty."
        in capsys.readouterr().err
    )
    assert (out / "weights.safetensors").read_bytes() == whole and checkpoint.load(
        last
    )["position"]["done"] == 1
    for file in kept.checkpoints.glob("*.pt"):
        file.write_bytes(b"")
    assert main([*TRAIN, "--out", str(out), "--resume", str(out)]) == 2
    told = capsys.readouterr().err
    assert "There is no readable checkpoint in" in told and "Traceback" not in told


def test_checkpoints_that_cannot_be_written_are_said_at_the_first_one_and_at_the_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    save = checkpoint.save

    def full(path: Path, state: dict[str, Any]) -> None:
        if 4 <= state["position"]["step"] <= 12:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        save(path, state)

    monkeypatch.setattr(checkpoint, "save", full)
    assert main([*TRAIN, "--out", str(tmp_path), "--save-every", "2"]) == 0
    lines = [
        line
        for line in capsys.readouterr().err.splitlines()
        if line.startswith("tapedeck: ")
    ]
    first, again, end = lines
    assert "step-00000004.pt could not be written: No space left on device" in first
    assert (
        again
        == "tapedeck: Checkpoints are being saved again: the newest is from step 14."
    )
    assert end.startswith(
        "tapedeck: 5 checkpoints could not be saved; the newest saved one is from step "
    )
