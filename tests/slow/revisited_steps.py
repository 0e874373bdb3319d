"""Recompute random steps of runs in six configurations: are all hashes equal, and the captured gradients those of a
run that captured there?

    python -m tests.slow.revisited_steps [STEPS]

Each configuration is trained once with hashes of every step and checkpoints on the way, and once more with the
gradients of the chosen steps kept as backward left them. Then each chosen step is recomputed from the nearest
checkpoint.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace

from app.data.config import DataConfig, Transform
from app.features.revisit.compute.revisit import revisited
from app.project.project import Project
from app.runs import store
from app.runs.recorder import Recorder
from app.source.generated import InputSpec, Source
from app.training.config import Choice, Schedule, TrainingConfig
from app.training.events import Event, Failed, StepDone
from app.training.job import Job
from app.training.loop import train
from app.training.monitoring.watcher import Watcher
from app.training.recomputing import recording
from app.training.recomputing.snapshot import gradients_of, same_bits
from app.util.frozen import FrozenMap

NET = """\
import torch
from torch import nn
from torch.nn import functional as F


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d({channels}, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.drop = nn.Dropout({dropout})
        self.fc = nn.Linear(128, {classes})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(F.relu(self.norm(self.conv(x))), 2)
        return self.fc(self.drop(x.flatten(1)))
"""
COSINE = Schedule(Choice("CosineAnnealingLR", FrozenMap(T_max=50)), "step", 5)


def net(channels: int = 1, classes: int = 10, dropout: float = 0.0) -> Source:
    """Return a small net for pictures of 8 x 8."""
    text = NET.format(channels=channels, classes=classes, dropout=dropout)
    return Source(text, (InputSpec("x", (channels, 8, 8)),), ("y",))


def pictures(folder: Path) -> Path:
    """Write a folder of pictures of two classes."""
    from PIL import Image

    for place, name in enumerate(("cats", "dogs")):
        (folder / name).mkdir(parents=True, exist_ok=True)
        for number in range(30):
            values = np.random.default_rng(100 * place + number).integers(
                0, 255, (9, 11, 3), dtype=np.uint8
            )
            Image.fromarray(values).save(folder / name / f"{number:02}.png")
    return folder


def configurations(folder: Path) -> dict[str, Job]:
    """Return the six configurations of the issue; `folder` gets the pictures of one."""
    flip = Transform("RandomHorizontalFlip", FrozenMap(p=0.5))
    crop = Transform("RandomCrop", FrozenMap(size=(8, 8), padding=1))
    options: FrozenMap[str, Any] = FrozenMap(size=(8, 8), keep="disk", workers=2)
    data = DataConfig(
        "file.pictures",
        path=str(folder),
        options=options,
        train_transforms=(crop, flip),
    )
    plain = TrainingConfig(epochs=5, device="cpu", batch_size=64, threads=1)
    lbfgs = Choice("LBFGS", FrozenMap(lr=0.1, max_iter=4))
    digits = DataConfig()
    return {
        "dropout": Job(net(dropout=0.4), digits, replace(plain, schedule=COSINE)),
        "augmentation with workers": Job(
            net(3, 2, 0.2), data, replace(plain, batch_size=6, epochs=14)
        ),
        "AMP bf16": Job(net(), digits, replace(plain, amp="bfloat16")),
        "accumulation": Job(
            net(dropout=0.2), digits, replace(plain, accumulate=3, clip_norm=0.5)
        ),
        "LBFGS": Job(
            net(dropout=0.1),
            digits,
            replace(plain, optimizer=lbfgs, batch_size=128, epochs=10),
        ),
        "EMA": Job(net(dropout=0.2), digits, replace(plain, ema=0.9, mixup=0.4)),
    }


@dataclass(frozen=True)
class Outcome:
    """Of `steps` recomputed ones: those with all hashes equal, those whose captured gradients are those of the run that
    captured there, bit for bit; how many recorded hashes were compared, and the seconds of the slowest."""

    steps: int
    equal: int
    captured: int
    compared: int
    slowest: float


class _Grabbing(Watcher):
    """Keeps the gradients of some steps as backward left them."""

    every_step = True
    wanted: frozenset[int] = frozenset()
    kept: dict[int, list[Any]] = {}

    def __init__(self, live: Any, source: Source, control: Any) -> None:
        super().__init__(live, source, control)
        self.live = live
        live.stepper.after_backward = self._keep

    def _keep(self) -> None:
        if self.live.step + 1 in self.wanted:
            self.kept[self.live.step + 1] = gradients_of(self.live.model)

    def hash_gradients(self) -> None:
        if (
            self.live.stepper.config.optimizer.name != "LBFGS"
        ):  # of a closure those before clipping
            self._keep()
        super().hash_gradients()


def recorded(job: Job, folder: Path, stop_at: int | None = None) -> store.Kept:
    """Train a job and store the run, as the command line does; return it."""
    project = Project("revisited", data=job.data, training=job.training)
    recorder = Recorder(store.begin(folder, project), project, job.source.text)
    problem = recorder.begin()
    assert not problem, problem
    for event in train(job, folder=recorder.checkpoints):
        recorder.take(event)
        _check(event)
        if isinstance(event, StepDone) and event.step == stop_at:
            break
    recorder.close()
    return recorder.kept


def _check(event: Event) -> None:
    if isinstance(event, Failed):
        raise RuntimeError(event.message)


def recomputed(job: Job, folder: Path, count: int, choose: random.Random) -> Outcome:
    """Recompute `count` random steps of a run of a job."""
    share, recording.SHARE = recording.SHARE, 1e9  # a hash of every step
    try:
        kept = recorded(job, folder)
    finally:
        recording.SHARE = share
    last = kept.record.summary.steps
    steps = [choose.randint(1, last) for _ in range(count)]
    kind = type("Grabbing", (_Grabbing,), {"wanted": frozenset(steps), "kept": {}})
    for event in train(job, watch=kind):
        _check(event)
    equal = captured = compared = 0
    slowest = 0.0
    for step in steps:
        began = time.perf_counter()
        found, held = revisited(kept, job, step)
        slowest = max(slowest, time.perf_counter() - began)
        whole = found.parted is None and all(
            one.recorded == one.recomputed for one in found.layers
        )
        equal += whole and bool(found.generator) and found.loss == found.recorded_loss
        captured += (
            held is not None
            and bool(found.captured)
            and same_bits(held.gradients(), kind.kept[step])
        )
        compared += found.verified
    return Outcome(count, equal, captured, compared, slowest)


def main(count: int = 100, tell: Callable[[str], None] = print) -> int:
    """Recompute the steps of all configurations and print a table; return 1 if one of them differs."""
    choose, failed = random.Random(15), 0
    tell(
        f"{'configuration':<26} {'steps':>5} {'equal':>6} {'captured':>9} {'compared':>9} {'slowest':>8}"
    )
    with tempfile.TemporaryDirectory() as scratch:
        for number, (name, job) in enumerate(
            configurations(pictures(Path(scratch, "pictures"))).items()
        ):
            job = replace(job, training=replace(job.training, save_every=20))
            found = recomputed(job, Path(scratch, f"runs-{number}"), count, choose)
            failed += found.steps - min(found.equal, found.captured)
            tell(
                f"{name:<26} {found.steps:>5} {found.equal:>6} {found.captured:>9} {found.compared:>9} "
                f"{found.slowest:>6.2f} s"
            )
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 100))
