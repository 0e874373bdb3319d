"""What goes wrong in the midst of a run: the word that it gives, and that nothing kept is lost."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.data.config import DataConfig
from app.project.project import Project
from app.runs import checkpoint_files, resume, store
from app.runs.recorder import Recorder
from app.source.generated import Source
from app.training.checkpoints import checkpoint
from app.training.control import Control
from app.training.events import Event, Failed, Finished, Saved, StepDone
from app.training.job import Job
from app.training.loop import train
from tests.runs.test_store import kept_run, project
from tests.support.forked_python import run_forked
from tests.support.training_jobs import SMALL_NET, job, losses, net, run


def failing(error: str, at: int = 8) -> Source:
    """A net whose forward raises `error` the `at`-th time."""
    return net(
        ["self.calls = iter(range(1, 10**9))", "self.linear1 = nn.Linear(64, 10)"],
        [
            f"if self.training and next(self.calls) == {at}:",
            f"    raise {error}",
            "return self.linear1(x.flatten(1))",
        ],
    )


def failed(source: Source, folder: Path, **training: Any) -> tuple[store.Kept, Failed]:
    recorder, events = kept_run(folder, job(source, epochs=2, **training))
    last = events[-1]
    assert isinstance(last, Failed) and recorder.kept.state == "failed"
    ending = recorder.kept.record.ending
    assert ending is not None and (ending.message, ending.cure, ending.step) == (
        last.message,
        last.cure,
        last.step,
    )
    return recorder.kept, last


def test_an_exception_at_a_step_is_told_and_the_run_goes_on_from_its_checkpoint(
    tmp_path: Path,
) -> None:
    source = failing("ValueError('seven is enough')")
    kept, told = failed(source, tmp_path, save_every=5)
    assert (
        told.message == "Step 8 failed with ValueError: seven is enough"
        and "seven is enough" in told.traceback
    )
    assert told.cure == "The weights of the last completed step are kept."
    assert [each.step for each in checkpoint_files.checkpoints(kept)] == [5]
    # From there on the 8th forward is that of step 13.
    again, events = kept_run(tmp_path, job(source, epochs=2, save_every=5), go_on=kept)
    assert [event.step for event in events if isinstance(event, StepDone)] == list(
        range(6, 13)
    )
    told_losses = store.history_of(again.kept).steps["loss"].tolist()
    assert told_losses == losses(run(job(failing("ValueError", at=13), epochs=2)))[:12]


def test_out_of_memory_says_how_to_do_with_less(tmp_path: Path) -> None:
    error = "torch.OutOfMemoryError('CUDA out of memory. Tried to allocate 20.00 GiB')"
    kept, told = failed(failing(error), tmp_path, save_every=3)
    assert (
        told.kind == "memory"
        and told.message == "Step 8 ran out of memory: 20.00 GiB more did not fit."
    )
    assert told.cure.startswith("Reduce batch_size: it is 64, try 32; ")
    assert [each.step for each in checkpoint_files.checkpoints(kept)] == [6, 3]


def test_data_that_are_removed_do_not_disturb_a_run_and_are_asked_for_by_the_next(
    tmp_path: Path,
) -> None:
    file = tmp_path / "points.npz"
    rng = np.random.default_rng(0)
    np.savez(
        file,
        inputs=rng.normal(size=(200, 1, 8, 8)).astype(np.float32),
        labels=rng.integers(0, 10, 200),
    )
    a_job = job(
        SMALL_NET,
        data=DataConfig(source="file.tensors", path=str(file)),
        epochs=4,
        save_every=2,
    )
    events: list[Event] = []
    control = Control()
    for event in train(a_job, control, folder=tmp_path / "checkpoints"):
        events.append(event)
        if isinstance(event, StepDone) and event.step == 3:
            file.unlink()
    assert isinstance(events[-1], Finished) and events[-1].reason == "done", events[-1]
    longer = Job(a_job.source, a_job.data, job(epochs=5).training)
    told = list(train(longer, resume=tmp_path / "checkpoints" / checkpoint.LAST))[-1]
    assert (
        isinstance(told, Failed)
        and told.kind == "data"
        and "points.npz" in told.message
    )


def test_a_folder_that_becomes_unwritable_is_told_once_and_the_run_goes_on(
    tmp_path: Path,
) -> None:
    a_job = job(epochs=2, save_every=10)
    kept = store.begin(tmp_path, project(a_job))
    kept.checkpoints.write_text("a file where the folder of the checkpoints would be")
    recorder, events = kept_run_into(kept, a_job)
    problems = [event.problem for event in events if isinstance(event, Saved)]
    assert problems and all(
        "checkpoints" in text and "The run continues without it." in text
        for text in problems
    )
    assert recorder.kept.state == "done" and losses(events) == losses(run(a_job))
    with pytest.raises(
        ValueError, match="has no readable checkpoint, so it cannot be resumed"
    ):
        resume.newest(recorder.kept)


def kept_run_into(kept: store.Kept, a_job: Job) -> tuple[Recorder, list[Event]]:
    recorder = Recorder(kept, project(a_job), a_job.source.text)
    recorder.begin()
    events = []
    for event in train(a_job, folder=recorder.checkpoints):
        events.append(event)
        if (problem := recorder.take(event)) is not None:
            events.append(problem)
    recorder.close()
    return recorder, events


FULL = """
import resource, sys
from pathlib import Path
from app.runs import store
from tests.runs.test_faults import kept_run_into, project
from tests.support.training_jobs import job, losses
from app.training.events import Saved

a_job = job(epochs=2, save_every=10, threads=1)
for room in (9000, 600):
    kept = store.begin(Path(sys.argv[1]), project(a_job))
    import torch, app.training.loop, sklearn.datasets
    most = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, most))
    recorder, events = kept_run_into(kept, a_job)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    print(type(events[-1]).__name__, losses(events))
    print({event.problem.split(": ", 1)[-1] for event in events if isinstance(event, Saved)})
"""


@pytest.mark.skipif(os.name == "nt", reason="limits of POSIX")
def test_a_disk_that_is_full_is_told_and_the_run_goes_on(tmp_path: Path) -> None:
    (tmp_path / "full.py").write_text(FULL)
    done = run_forked(tmp_path / "full.py", str(tmp_path / "runs"))
    assert done.returncode == 0, done.stderr
    first, no_checkpoint, second, nothing = done.stdout.splitlines()
    plain = losses(run(job(epochs=2, threads=1)))
    assert first == second == f"Finished {plain}"
    assert (
        "The run continues without it." in no_checkpoint
        and "The run continues without being saved." in nothing
    )
    assert len(runs := store.listed(tmp_path / "runs")) == 2
    for kept in runs:
        assert not kept.checkpoints.exists() or not list(kept.checkpoints.iterdir()), (
            "no half file is left"
        )


@pytest.mark.skipif(
    os.name == "nt" or os.geteuid() == 0, reason="nobody keeps root from writing"
)
def test_a_read_only_folder_is_said_before_the_run(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(OSError, match="Permission denied"):
        store.begin(tmp_path / "net.runs", Project())


@pytest.mark.skipif(
    not Path("/dev/full").exists(), reason="the device that is always full is Linux's"
)
def test_no_space_left_is_the_word_of_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system says it at a write of the table of steps, and when a checkpoint is to be safe on the disk."""
    a_job = job(epochs=1, save_every=10)
    kept = store.begin(tmp_path, project(a_job))
    (kept.folder / store.STEPS).symlink_to("/dev/full")
    recorder, events = kept_run_into(kept, a_job)
    assert (
        "No space left on device. The run continues without being saved."
        in recorder.problem
    )
    assert isinstance(events[-1], Finished) and losses(events) == losses(run(a_job))

    def full(_file: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("app.util.atomic.os.fsync", full)
    events = list(train(a_job, folder=tmp_path / "checkpoints"))
    told = [event.problem for event in events if isinstance(event, Saved)]
    assert told and all(
        "could not be written: No space left on device. The run continues without it."
        in t
        for t in told
    )
    assert losses(events) == losses(run(a_job)) and not list(
        (tmp_path / "checkpoints").iterdir()
    )


def test_a_read_only_file_system_is_said_by_its_name_even_to_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from app import cli

    def read_only(self: Path, *_: Any, **__: Any) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(self))

    monkeypatch.setattr(Path, "mkdir", read_only)
    with pytest.raises(OSError, match="Read-only file system"):
        store.begin(tmp_path / "net.runs", Project())
    events = list(train(job(epochs=1), folder=tmp_path / "checkpoints"))
    told = [event.problem for event in events if isinstance(event, Saved)]
    assert told and all(
        "could not be written: Read-only file system" in text for text in told
    )
    example = str(Path(__file__).parents[2] / "resources" / "examples" / "digits.tape")
    assert (
        cli.run(["train", example, "--out", str(tmp_path / "out"), "--epochs", "1"])
        == 2
    )
    assert "cannot be written: Read-only file system" in capsys.readouterr().err


def test_data_on_the_disk_that_go_while_a_run_goes_on_are_named_and_what_was_learnt_is_kept(
    tmp_path: Path,
) -> None:
    from PIL import Image

    from app.util.frozen import FrozenMap

    for name in ("a", "b"):
        (tmp_path / "pictures" / name).mkdir(parents=True)
        for number in range(12):
            Image.new("L", (8, 8), number).save(
                tmp_path / "pictures" / name / f"{number}.png"
            )
    options: Any = FrozenMap(size=(8, 8), colour=False, keep="disk", workers=1)
    data = DataConfig("file.pictures", path=str(tmp_path / "pictures"), options=options)
    source = net(["self.fc = nn.Linear(64, 2)"], ["return self.fc(x.flatten(1))"])
    events = []
    for event in train(
        job(source, data=data, epochs=50, batch_size=4, save_every=2),
        folder=tmp_path / "checkpoints",
    ):
        events.append(event)
        if isinstance(event, StepDone) and event.step == 4:
            shutil.rmtree(tmp_path / "pictures")
    last = events[-1]
    assert (
        isinstance(last, Failed)
        and last.kind == "data"
        and "can no longer be read" in last.message
    )
    found = checkpoint.newest(tmp_path / "checkpoints")
    assert found is not None and checkpoint.load(found)["position"]["step"] >= 4
