"""Pictures that stay on disk: the samples, the draws and the losses of those that are kept in memory."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from msgspec.structs import replace

from app.data import drawn_samples
from app.data.config import DataConfig, Transform
from app.data.loaders import load, read_spec
from app.data.own_files import picture_survey
from app.data.readers import make_noise
from app.data.streams import SampleLostError, Streamed, stream_noise
from app.export.train_script import training_script
from app.training.checkpoints import checkpoint
from app.training.events import Failed, StepDone
from app.training.job import Job
from app.training.loop import train
from app.util.frozen import FrozenMap
from tests.export.test_script import app_lines, run_script  # noqa: F401
from tests.support.training_jobs import job, losses, net, run

NET = net(
    ["self.drop1 = nn.Dropout(0.3)", "self.fc = nn.Linear(192, 2)"],
    ["return self.fc(self.drop1(x.flatten(1)))"],
    (3, 8, 8),
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    from PIL import Image

    for place, name in enumerate(("cats", "dogs")):
        (tmp_path / "pictures" / name).mkdir(parents=True)
        for number in range(20):
            values = np.random.default_rng(100 * place + number).integers(
                0, 255, (9, 11, 3), dtype=np.uint8
            )
            Image.fromarray(values).save(
                tmp_path / "pictures" / name / f"{number:02}.png"
            )
    return tmp_path / "pictures"


def config(folder: Path, **options: Any) -> DataConfig:
    flip = Transform("RandomHorizontalFlip", FrozenMap(p=0.5))
    return DataConfig(
        "file.pictures",
        path=str(folder),
        options=FrozenMap(size=(8, 8), **options),
        train_transforms=(flip,),
    )


def a_run(data: DataConfig, **training: Any) -> Job:
    return job(NET, data=data, **{"epochs": 2, "batch_size": 6, **training})


@pytest.mark.parametrize("workers", [0, 2])
def test_a_run_from_the_disk_is_the_run_from_memory_bit_for_bit(
    folder: Path, workers: int
) -> None:
    kept = app_lines(a_run(config(folder, keep="memory")))
    assert app_lines(a_run(config(folder, keep="disk", workers=workers))) == kept
    data = load(config(folder, keep="disk", workers=workers))
    assert isinstance(data.train.inputs, Streamed) and data.train.inputs.shape == (
        32,
        3,
        8,
        8,
    )


def test_the_script_reads_them_as_the_app_does(folder: Path, run_script: Any) -> None:
    a_job = a_run(config(folder, keep="disk", workers=2))
    lines, ended = run_script(a_job, "--json")
    assert ended is None and lines == app_lines(a_job)


def test_a_resumed_run_reads_on_where_it_stood(folder: Path, tmp_path: Path) -> None:
    a_job = a_run(config(folder, keep="disk", workers=2), save_every=4)
    whole = losses(list(train(a_job, folder=tmp_path / "checkpoints")))
    rest = list(train(a_job, resume=tmp_path / "checkpoints" / checkpoint.step_file(8)))
    assert losses(rest) == whole[8:]


def test_the_next_batch_is_read_while_one_is_learnt_from() -> None:
    asked: list[int] = []
    third = threading.Event()

    def read(number: int) -> torch.Tensor:
        asked.append(number)
        if number == 3:
            third.set()
        return torch.full((2,), number, dtype=torch.uint8)

    samples = Streamed(read, torch.arange(10), 1, 0.0, False).ahead(
        [torch.tensor([1, 2]), torch.tensor([3])]
    )
    assert samples[torch.tensor([1, 2])].tolist() == [[1, 1], [2, 2]]
    assert third.wait(300), "nobody has asked for it yet"
    assert samples[torch.tensor([3])].tolist() == [[3, 3]]
    assert asked == [0, 1, 2, 3], "none is read twice"
    assert samples[torch.tensor([9])].tolist() == [[9, 9]], (
        "what nobody told of before is read too"
    )


def test_what_takes_too_long_is_named() -> None:
    over = threading.Event()

    def read(number: int) -> torch.Tensor:
        if number:
            over.wait(300)
        return torch.zeros(1)

    samples = Streamed(read, torch.arange(2), 1, 0.01, False)
    try:
        with pytest.raises(SampleLostError, match="not read within 0.01 seconds"):
            samples[torch.tensor([1])]
    finally:
        over.set()


def test_pictures_removed_while_it_runs_are_named(folder: Path) -> None:
    a_job = a_run(config(folder, keep="disk"))
    events = []
    for event in train(a_job):
        events.append(event)
        if isinstance(event, StepDone) and event.step == 2:
            shutil.rmtree(folder)
    failed = events[-1]
    assert isinstance(failed, Failed) and failed.kind == "data" and failed.step == 2
    assert (
        "can no longer be read" in failed.message and failed.message.count(".png") == 1
    )
    assert "newest checkpoint" in failed.cure


def test_what_does_not_fit_in_memory_stays_on_the_disk(
    folder: Path, monkeypatch: Any
) -> None:
    assert "workers" not in read_spec(config(folder)).arguments
    monkeypatch.setattr(
        picture_survey, "fits", lambda size: size < 5_000
    )  # room for some of them
    shutil.copytree(folder, folder.parent / "again")
    spec = read_spec(config(folder.parent / "again"))
    assert spec.arguments["workers"] == 0 and "stay on disk" in spec.notes[0]
    from app.data.spec import DataError

    with pytest.raises(DataError, match="Leave them on disk"):
        read_spec(config(folder.parent / "again", keep="memory"))


def test_a_broken_picture_is_found_before_the_run(folder: Path) -> None:
    (folder / "cats" / "00.png").write_bytes(b"nothing")
    spec = read_spec(replace(config(folder, keep="disk"), bad="skip"))
    assert spec.bad[0].startswith("cats/00.png") and spec.count == 39
    assert losses(
        run(a_run(replace(config(folder, keep="disk"), bad="skip"), epochs=1))
    )


def test_batches_go_to_a_gpu_from_pinned_memory_without_waiting(
    monkeypatch: Any,
) -> None:
    told: list[Any] = []
    samples = Streamed(lambda number: torch.zeros(2), torch.arange(4), 0, 0.0, True)
    samples.device = torch.device("cuda:0")
    monkeypatch.setattr(
        torch.Tensor, "pin_memory", lambda self: told.append("pinned") or self
    )
    monkeypatch.setattr(
        torch.Tensor,
        "to",
        lambda _, device, non_blocking: told.append((str(device), non_blocking)),
    )
    samples[slice(0, 2)]
    assert told == ["pinned", ("cuda:0", True)]


@pytest.mark.parametrize("shape", [(3, 64, 64), (1, 129, 127), (17,)])
def test_noise_that_is_drawn_by_batch_is_that_which_is_held(
    shape: tuple[int, ...],
) -> None:
    held, drawn = make_noise(shape, 3, 37, 5), stream_noise(shape, 3, 37, 5)
    order = torch.randperm(37, generator=torch.Generator().manual_seed(1))
    assert torch.equal(drawn[0][order], held[0][order]) and torch.equal(
        drawn[1], held[1]
    )


def test_a_run_on_noise_that_is_drawn_by_batch_is_that_on_noise_that_is_held_in_the_script_too(
    monkeypatch: pytest.MonkeyPatch,
    run_script: Any,
) -> None:
    data = DataConfig(
        "made.fake", options=FrozenMap(shape=(3, 8, 8), classes=2, count=50)
    )
    a_job = job(NET, data=data, epochs=2, batch_size=8)
    held = run(a_job)
    for name in ("LEAST_SAMPLE", "LEAST_ALL"):
        monkeypatch.setattr(drawn_samples, name, 1)
    assert isinstance(load(data).train.inputs, Streamed)
    assert losses(run(a_job)) == losses(held)
    lines, ended = run_script(a_job, "--json")
    assert ended is None and lines == app_lines(a_job)
    assert "stream_noise" in training_script(
        a_job
    ) and "make_noise" not in training_script(a_job)
