"""A step of a run is recomputed: its hashes are the recorded ones, and its captured gradients those of the run."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from msgspec.structs import replace

from app.engine import run_process
from app.engine.placement import RunPlacement
from app.features.revisit.compute.bisect import first_step
from app.features.revisit.compute.revisit import revisited
from app.features.revisit.values import Condition, parse_condition
from app.runs import layer_tables, step_hashes, store, tables
from app.runs.checkpoint_files import DiskUse, delete_kept, measured
from app.training.checkpoints import checkpoint
from app.training.control import Control
from app.training.events import Finished, RateSet, Started, StepDone
from app.training.loop import train
from app.training.recomputing import recording
from app.training.recomputing.recorded import RateChange
from app.training.run_requests import SetRate
from tests.runs.test_store import kept_run
from tests.slow import revisited_steps
from tests.support.training_jobs import CONV_NET, SMALL_NET, job, losses, run

NAMES = (
    "dropout",
    "augmentation with workers",
    "AMP bf16",
    "accumulation",
    "LBFGS",
    "EMA",
)


@pytest.fixture
def every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have every step hashed, whatever that takes here."""
    monkeypatch.setattr(recording, "SHARE", 1e9)


@pytest.mark.parametrize("name", NAMES)
def test_random_steps_are_those_of_the_run_bit_for_bit(
    name: str, tmp_path: Path
) -> None:
    jobs = revisited_steps.configurations(
        revisited_steps.pictures(tmp_path / "pictures")
    )
    assert tuple(jobs) == NAMES
    training = replace(jobs[name].training, epochs=2, save_every=7, max_steps=20)
    found = revisited_steps.recomputed(
        replace(jobs[name], training=training),
        tmp_path / "runs",
        2,
        random.Random(name),
    )
    assert (found.equal, found.captured) == (2, 2) and found.compared > 0


def test_a_resumed_run_cuts_the_hashes_and_goes_on_with_them(
    every_step: None, tmp_path: Path
) -> None:
    a_job = job(SMALL_NET, epochs=2, save_every=10)
    whole, _ = kept_run(tmp_path / "whole", a_job)
    first, _ = kept_run(tmp_path / "parts", a_job, stop_at=27)
    (
        first.kept.checkpoints / checkpoint.LAST
    ).unlink()  # as if it had been killed: it goes on from step 20
    (first.kept.checkpoints / checkpoint.BEST).unlink()
    again, events = kept_run(tmp_path / "parts", a_job, go_on=first.kept)
    assert isinstance(events[0], Started) and events[0].resumed_at == 20
    names, rows = tables.read(again.kept.folder / layer_tables.HASHES)
    known, wanted = tables.read(whole.kept.folder / layer_tables.HASHES)
    assert names == known == [*layer_tables.PLACES, "hash/linear1", "hash/linear2"]
    assert rows.dtype == wanted.dtype == "int64" and rows.tolist() == wanted.tolist()
    assert rows[0].tolist() == list(range(1, 47))


def test_a_damaged_checkpoint_is_passed_over_for_an_older_one_or_the_start(
    every_step: None, tmp_path: Path
) -> None:
    recorder, _ = kept_run(tmp_path, a_job := job(CONV_NET, epochs=1, save_every=8))
    newer, older = (
        recorder.kept.checkpoints / checkpoint.step_file(step) for step in (16, 8)
    )
    newer.write_bytes(newer.read_bytes()[:-2000])
    data = bytearray(older.read_bytes())
    found, _ = revisited(recorder.kept, a_job, 18)
    assert (found.checkpoint, found.started_at, found.parted, found.captured) == (
        older.name,
        8,
        None,
        True,
    )
    assert "skipped" in found.notes[0] and newer.name in found.notes[0]
    data[len(data) // 2] ^= 1
    older.write_bytes(data)
    found, _ = revisited(recorder.kept, a_job, 18)
    assert (found.checkpoint, found.started_at, found.verified, found.parted) == (
        "",
        0,
        18,
        None,
    )


def test_a_rate_set_by_hand_is_set_again(every_step: None, tmp_path: Path) -> None:
    a_job = job(SMALL_NET, epochs=1)
    control = Control()
    recorder = revisited_steps.Recorder(
        store.begin(
            tmp_path,
            project := revisited_steps.Project("hand", training=a_job.training),
        ),
        project,
        a_job.source.text,
    )
    assert recorder.begin() == ""
    for event in train(a_job, control, folder=recorder.checkpoints):
        recorder.take(event)
        if isinstance(event, StepDone) and event.step == 5:
            control.call(SetRate(0.02))
        assert not isinstance(event, RateSet) or event.step == 5
    recorder.close()
    assert step_hashes.recorded_of(recorder.kept).rates == (RateChange(5, 0.02),)
    found, _ = revisited(recorder.kept, a_job, 12)
    assert (found.parted, found.verified, found.captured) == (None, 12, True)


def test_checkpoints_for_revisiting_are_kept_beside_those_that_are_pruned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from app.training.checkpoints import placing

    monkeypatch.setattr(
        placing.Placing, "due", lambda *_: True
    )  # whenever none is being written
    a_job = job(SMALL_NET, epochs=1, save_every=4, revisit_seconds=30.0)
    recorder, events = kept_run(tmp_path, a_job)
    assert losses(events) == losses(run(job(SMALL_NET, epochs=1))), (
        "they change no number"
    )
    kept = sorted(file.name for file in recorder.kept.checkpoints.glob("revisit-*.pt"))
    assert kept[0] == checkpoint.revisit_file(1)
    assert len([*recorder.kept.checkpoints.glob("step-*.pt")]) == checkpoint.KEPT
    found, _ = revisited(recorder.kept, a_job, 2)
    assert (found.checkpoint, found.started_at, found.parted, found.captured) == (
        kept[0],
        1,
        None,
        True,
    )
    size = sum((recorder.kept.checkpoints / name).stat().st_size for name in kept)
    assert measured(recorder.kept.checkpoints) == DiskUse(True, len(kept), size)
    delete_kept(recorder.kept)
    assert measured(recorder.kept.checkpoints) == DiskUse(True, 0, 0), "the others stay"
    found, _ = revisited(recorder.kept, a_job, 2)
    assert (found.checkpoint, found.parted, found.captured) == ("", None, True)


def test_a_checkpoint_is_due_so_early_that_reading_the_data_is_within_the_seconds_too() -> (
    None
):
    from app.training.checkpoints.placing import Placing

    placing = Placing(30.0, set_up=4.0, now=100.0, step=100)
    assert (
        placing.seconds == 11.0
        and not placing.due(110.0, 110)
        and placing.due(111.0, 111)
    )
    placing.placed(127.0, 127)
    assert not placing.due(137.5, 137) and placing.due(138.0, 138)
    placing.placed(138.0, 138)
    placing.recomputed_steps_take(0.1)  # hashed, and with a copy of the state
    assert not placing.due(147.0, 147) and placing.due(148.0, 148)
    placing = Placing(30.0, set_up=5.0, now=0.0, step=0)
    placing.due(4.0, 2)
    placing.placed(4.0, 2)
    assert not placing.due(4.5, 6) and placing.due(5.0, 7), (
        "as slow as the slowest steps were"
    )
    placing.took(copying=0.1, writing=1.0)
    assert (
        placing.seconds == 8.0 and not placing.due(20.0, 40) and placing.due(27.0, 40)
    ), "at most 5 % of the time"
    assert Placing(2.0, set_up=40.0, now=0.0, step=0).seconds == 0.2


def test_the_first_step_of_a_condition_is_that_of_the_figures_of_every_step(
    every_step: None, tmp_path: Path
) -> None:
    a_job = job(CONV_NET, epochs=1)
    recorder, events = kept_run(tmp_path, a_job)
    norms = [
        {one.layer: one.norm for one in revisited(recorder.kept, a_job, step)[0].layers}
        for step in (1, 2, 3)
    ]
    bound = norms[1]["linear1"]
    assert bound is not None
    relation = ">=" if norms[0]["linear1"] < bound else "<="
    found = first_step(
        recorder.kept, a_job, Condition("norm", "linear1", relation, bound)
    )
    assert (found.step, found.layer, found.parted) == (2, "linear1", None)
    assert found.value == pytest.approx(bound, rel=1e-6)
    told = losses(events)
    found = first_step(recorder.kept, a_job, parse_condition(f"loss < {told[4]!r}"))
    below = next(step for step, loss in enumerate(told, 1) if loss < told[4])
    assert (found.step, found.value, found.recorded) == (below, told[below - 1], True)
    never = first_step(recorder.kept, a_job, parse_condition("weight(conv1) > 1e6"))
    assert never.step is None and not never.recorded and never.parted is None
    dead = first_step(recorder.kept, a_job, parse_condition("dead >= 0"))
    assert dead.step == 1 and dead.layer


@pytest.mark.skipif(
    not Path("/proc/self/environ").exists(),
    reason="needs processes that meet over a file",
)
def test_a_step_on_two_processes_is_verified_by_the_hashes_of_the_first(
    tmp_path: Path,
) -> None:
    a_job = job(SMALL_NET, epochs=1, max_steps=8, batch_size=101, save_every=4)
    project = revisited_steps.Project("two", training=a_job.training)
    recorder = revisited_steps.Recorder(
        store.begin(tmp_path, project), project, a_job.source.text
    )
    recorder.processes = 2
    assert recorder.begin() == ""
    events = []
    for event in run_process.train(
        a_job, place=RunPlacement(2), folder=recorder.checkpoints, hash_share=1e9
    ):
        recorder.take(event)
        events.append(event)
    recorder.close()
    assert isinstance(events[-1], Finished), events[-1]
    found, held = revisited(recorder.kept, a_job, 7)
    assert (found.checkpoint, found.parted, found.verified, held) == (
        checkpoint.step_file(4),
        None,
        3,
        None,
    )
    assert (
        all(one.recorded == one.recomputed for one in found.layers)
        and found.generator is True
    )
    assert found.loss == found.recorded_loss == losses(events)[6]
    assert any("not captured" in note for note in found.notes)
    path = recorder.kept.folder / layer_tables.HASHES
    data = bytearray(path.read_bytes())
    data[-8] ^= 1  # the last layer of step 8
    path.write_bytes(data)
    parted = revisited(recorder.kept, a_job, 8)[0].parted
    assert parted is not None and (parted.step, parted.layer, parted.operation) == (
        8,
        "linear2",
        None,
    )
