"""Runs are kept: what they told is there again, to the last bit, however they ended."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

from app.project import file_lock
from app.project.project import Project
from app.runs import store, tables
from app.runs.record import RunError
from app.runs.recorder import Recorder
from app.runs.resume import as_before, further, going_on
from app.training.checkpoints import checkpoint
from app.training.config import TrainingConfig
from app.training.control import Control
from app.training.events import EpochDone, Event, Paused, Started, StepDone
from app.training.history import History
from app.training.job import Job
from app.training.loop import train
from tests.support.training_jobs import SMALL_NET, adam, job, losses


def project(a_job: Job) -> Project:
    return Project("digits", data=a_job.data, training=a_job.training)


def kept_run(
    folder: Path,
    a_job: Job,
    stop_at: int | None = None,
    go_on: store.Kept | None = None,
) -> tuple[Recorder, list[Event]]:
    """Take a run to its end, or to a step, and keep it as the window does."""
    resume = checkpoint.newest(go_on.checkpoints) if go_on else None
    kept = go_on or store.begin(folder, project(a_job))
    there = (lambda: going_on(kept, resume)) if resume else None
    recorder, control, events = (
        Recorder(kept, project(a_job), a_job.source.text, there),
        Control(),
        [],
    )
    assert recorder.begin() == ""
    for event in train(a_job, control, folder=recorder.checkpoints, resume=resume):
        recorder.take(event)
        events.append(event)
        if isinstance(event, StepDone) and event.step == stop_at:
            control.stop()
    recorder.close()
    return recorder, events


def same(a: History, b: History) -> bool:
    wanted = [(a.steps["step"], b.steps["step"]), (a.steps["loss"], b.steps["loss"])]
    names = (
        "epoch",
        "step",
        "train_loss",
        "train_accuracy",
        "val_loss",
        "val_accuracy",
    )
    wanted += [(a.epochs[name], b.epochs[name]) for name in names]
    return all(np.array_equal(one, other) for one, other in wanted)


def test_a_run_is_there_again_with_all_that_it_told(tmp_path: Path) -> None:
    a_job = job(epochs=2)
    _, events = kept_run(tmp_path, a_job)
    history = History()
    history.extend(events)
    (kept,) = store.listed(tmp_path)
    there = store.history_of(kept)
    assert (
        same(there, history)
        and there.layers == history.layers
        and there.started == history.started
    )
    assert np.array_equal(
        there.gradients.matrix(), history.gradients.matrix(), equal_nan=True
    )
    assert np.array_equal(
        there.memory["resident"], history.memory["resident"], equal_nan=True
    )
    assert np.array_equal(there.steps["rate"], history.steps["rate"])
    for name, table in history.seen.tables.items():
        assert len(table) and there.seen.tables[name].layers == table.layers
        assert np.array_equal(
            there.seen.tables[name].columns.matrix(),
            table.columns.matrix(),
            equal_nan=True,
        )
    kinds = {kind: series.samples for kind, series in history.seen.histograms.items()}
    assert (
        kinds
        and {kind: series.samples for kind, series in there.seen.histograms.items()}
        == kinds
    )
    found = store.project_of(kept)
    assert (found.data, found.training) == (a_job.data, a_job.training)
    assert (kept.folder / store.SOURCE).read_text() == SMALL_NET.text
    record = kept.record
    assert (kept.state, record.summary.epochs, record.summary.steps) == (
        "done",
        2,
        len(losses(events)),
    )
    assert record.summary.best_loss == min(history.epochs["val_loss"])
    assert (
        record.environment is not None
        and record.environment.device == "cpu"
        and record.environment.threads >= 1
    )
    assert record.saved["last.pt"] == record.summary.steps


@pytest.mark.parametrize(
    ("settings", "now", "words"),
    [
        ({"epochs": 2}, {"epochs": 2}, "more epochs under Training than its 2"),
        ({"epochs": 2}, {"epochs": 3}, ""),
        (
            {"epochs": 2, "max_steps": 30},
            {"epochs": 9, "max_steps": 30},
            "more steps under Training than its 30, or",
        ),
        ({"epochs": 2, "max_steps": 30}, {"epochs": 2, "max_steps": 31}, ""),
        (
            {"epochs": 2, "max_steps": 30},
            {"epochs": 1},
            "more epochs under Training than its 2",
        ),
        ({"epochs": 2, "max_steps": 30}, {"epochs": 2}, ""),
        (
            {"epochs": 9, "max_minutes": 1e-9},
            {"epochs": 9, "max_minutes": 1e-9},
            "more minutes under Training",
        ),
        ({"epochs": 9, "max_minutes": 1e-9}, {"epochs": 9, "max_minutes": 60.0}, ""),
        (
            {"epochs": 9, "patience": 1, "optimizer": adam(lr=0.0)},
            {"epochs": 9, "patience": 1},
            "patience under",
        ),
        ({"epochs": 9, "patience": 1, "optimizer": adam(lr=0.0)}, {"epochs": 9}, ""),
    ],
)
def test_a_run_that_is_done_says_which_limit_stands_in_its_way(
    settings, now, words, tmp_path: Path
) -> None:
    recorder, events = kept_run(tmp_path, job(**settings))
    (kept,) = store.listed(tmp_path)
    assert kept.state == "done" and recorder.problem == "" and losses(events)
    if words:
        with pytest.raises(RunError, match=words):
            further(kept, TrainingConfig(**now))
    else:
        limits = further(kept, TrainingConfig(seed=5, **now))
        assert limits.epochs == now["epochs"] and limits.seed == job().training.seed, (
            "the rest is the run's own"
        )


def test_a_run_goes_on_with_the_threads_that_it_had_unless_somebody_chose_them(
    tmp_path: Path,
) -> None:
    """How many a run takes that nobody chose a number for is another question with each version."""
    kept_run(tmp_path, job(epochs=1, threads=2))
    (kept,) = store.listed(tmp_path)
    last, small = kept.checkpoints / "last.pt", job(epochs=2, threads=1)
    assert as_before(small, project(job(epochs=2)), last).training.threads == 2
    assert as_before(small, project(small), last).training.threads == 1


def test_the_record_names_the_threads_of_the_run_and_not_those_of_who_writes_it(
    tmp_path: Path,
) -> None:
    import torch

    a_job, wanted = job(max_steps=2), torch.get_num_threads() + 3
    recorder = Recorder(
        store.begin(tmp_path, project(a_job)), project(a_job), a_job.source.text
    )
    recorder.threads = wanted
    recorder.begin()
    for event in train(a_job):
        recorder.take(event)
    recorder.close()
    assert recorder.kept.record.environment.threads == wanted


def test_a_run_that_goes_on_tells_the_rest_as_if_it_had_never_stopped(
    tmp_path: Path,
) -> None:
    a_job = job(epochs=3, save_every=23)
    whole, _ = kept_run(tmp_path / "whole", a_job)
    first, _ = kept_run(tmp_path, a_job, stop_at=30)
    kept = first.kept
    assert kept.state == "stopped"
    # As after a kill: the newest checkpoint is of the end of an epoch, before that was told, and the tables are ahead.
    (kept.checkpoints / checkpoint.LAST).unlink()
    (kept.checkpoints / checkpoint.BEST).unlink()
    with (kept.folder / store.STEPS).open("ab") as file:
        file.write(b"half a row")
    second, _ = kept_run(tmp_path, a_job, go_on=kept)
    assert second.kept.record.continued == (23,) and second.kept.state == "done"
    assert same(store.history_of(second.kept), store.history_of(whole.kept))
    assert second.kept.record.summary.best_loss == whole.kept.record.summary.best_loss


def test_a_run_whose_process_is_started_again_amid_it_keeps_each_step_once(
    tmp_path: Path,
) -> None:
    """As by a queue: from its newest checkpoint, so that some steps and an epoch are told twice."""
    a_job, ended_at, resumed_at = job(epochs=2), 30, 20
    whole, events = kept_run(tmp_path / "whole", a_job)
    recorder = Recorder(
        store.begin(tmp_path, project(a_job)), project(a_job), a_job.source.text
    )
    recorder.begin()
    started = next(event for event in events if isinstance(event, Started))
    again = msgspec.structs.replace(started, resumed_at=resumed_at)
    told = [event for event in events if isinstance(event, StepDone | EpochDone)]
    for event in (
        started,
        *(event for event in told if event.step <= ended_at),
        again,
        *(event for event in told if event.step > resumed_at),
    ):
        recorder.take(event)
    recorder.close()
    assert same(store.history_of(recorder.kept), store.history_of(whole.kept))


def test_a_run_that_pauses_is_stored_up_to_its_pause(tmp_path: Path) -> None:
    a_job, control = job(), Control()
    kept = store.begin(tmp_path, project(a_job))
    recorder = Recorder(kept, project(a_job), a_job.source.text)
    assert recorder.begin() == ""
    control.step()  # takes one step, and pauses
    stored: list[store.Kept] = []
    for event in train(a_job, control, folder=recorder.checkpoints):
        recorder.take(event)
        if isinstance(event, Paused):
            stored = store.listed(tmp_path)
            assert store.history_of(stored[0]).steps["step"].tolist() == [1]
            control.stop()
    assert stored[0].record.beginning is not None, "what its steps are recomputed with"
    recorder.close()


def test_history_goes_on_after_the_checkpoint() -> None:
    history = History()
    for event in train(job(epochs=1)):
        history.add(event)
    started = history.started
    assert started is not None
    history.add(msgspec.structs.replace(started, resumed_at=5))
    assert history.steps["step"].tolist() == [1, 2, 3, 4, 5] and not len(history.epochs)


def test_names_numbers_and_deletion(tmp_path: Path) -> None:
    first, second = store.begin(tmp_path, Project()), store.begin(tmp_path, Project())
    assert [kept.record.number for kept in store.listed(tmp_path)] == [2, 1]
    store.rename(first, "  wide   net ")
    assert store.find(tmp_path, "wide net").record.title == "wide net"
    with pytest.raises(RunError, match="there are: 2, wide net"):
        store.find(tmp_path, "narrow")
    held = file_lock.Lock(second.folder / store.LOCK)
    assert second.state == "running"
    with pytest.raises(RunError, match="Stop it first"):
        store.delete(second)
    held.release()
    assert second.state == "interrupted"
    store.delete(second)
    assert store.begin(tmp_path, Project()).record.number == 2
    moved = store.move(store.find(tmp_path, "wide net"), tmp_path / "other")
    assert moved.folder == tmp_path / "other" / "0001" and [
        k.record.number for k in store.listed(tmp_path)
    ] == [2]


def test_what_cannot_be_read_is_left_out_of_the_list(tmp_path: Path) -> None:
    store.begin(tmp_path, Project())
    (tmp_path / "0002").mkdir()
    (tmp_path / "0003").mkdir()
    (tmp_path / "0003" / "run.json").write_text('{"tapedeck_run": 1')
    assert [kept.record.number for kept in store.listed(tmp_path)] == [1]
    assert store.listed(tmp_path / "nowhere") == []


def test_a_table_keeps_every_bit_and_forgets_half_rows(tmp_path: Path) -> None:
    path = tmp_path / "table.bin"
    rows = [[1.0, 0.1 + 0.2], [2.0, None], [3.0, float("inf")]]
    tables.append(path, ("step", "loss"), rows[:2])
    with path.open("ab") as file:
        file.write(b"12345")
    tables.append(path, ("step", "loss"), rows[2:])
    names, columns = tables.read(path)
    assert names == ["step", "loss"] and columns[0].tolist() == [1, 2, 3]
    assert (
        columns[1][0] == 0.1 + 0.2
        and np.isnan(columns[1][1])
        and columns[1][2] == np.inf
    )
    tables.keep(path, lambda table: table["step"] <= 1)
    assert tables.read(path)[1].tolist() == [[1.0], [0.1 + 0.2]]
    with pytest.raises(tables.TableError, match="other columns"):
        tables.append(path, ("step", "accuracy"), [[1.0, 2.0]])
    path.write_bytes(b"\x00\x01")
    with pytest.raises(tables.TableError, match="not a run table"):
        tables.read(path)
