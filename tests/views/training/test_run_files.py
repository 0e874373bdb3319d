"""TensorBoard's files of a run are written by the engine, which is asked on the threads of the run."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from app.engine.client import shared
from app.project.project import Project
from app.runs import store, tensorboard
from app.runs.recorder import Recorder
from app.training.events import Event
from app.views.run.run_files import EventFiles
from tests.support.training_jobs import job, losses, run

pytest.importorskip("tensorboard")


@pytest.fixture(scope="module")
def events() -> list[Event]:
    return list(run(job(epochs=1, batch_size=128)))


def recorder(folder: Path) -> Recorder:
    a_job = job(epochs=1, batch_size=128)
    kept = store.begin(folder, Project("digits"))
    made = Recorder(
        kept,
        Project("digits"),
        a_job.source.text,
        watch=lambda run: EventFiles(run, a_job),
    )
    assert made.begin() == "" == made.problem
    return made


def test_the_engine_writes_what_a_run_tells(
    tmp_path: Path, events: list[Event]
) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    made = recorder(tmp_path)
    assert [made.take(event) for event in events] == [None] * len(events)
    made.close()
    found = EventAccumulator(
        str(made.kept.folder / tensorboard.FOLDER), size_guidance={"scalars": 0}
    )
    found.Reload()
    assert [scalar.value for scalar in found.Scalars("loss/train")] == pytest.approx(
        losses(events)
    )


def test_an_engine_that_ends_is_said_once_and_the_run_is_recorded(
    tmp_path: Path, events: list[Event]
) -> None:
    made = recorder(tmp_path)
    os.kill(shared().pid, signal.SIGKILL)
    for event in events:
        made.take(event)
    made.close()
    told = made.unsaid()
    assert told is not None and told.problem.startswith(
        "TensorBoard files are no longer written: "
    )
    assert made.unsaid() is None
    assert made.kept.state == "done" and len(store.history_of(made.kept).steps) == len(
        losses(events)
    )
    assert recorder(tmp_path).problem == "", "another engine writes"
