"""Surgeries of many kinds on running runs: is the function preserved, do moments stay, and does everything repeat?

    python -m tests.slow.surgeries [NUMBER ...]

Each run is paused and operated on as the window does. Then: are the parameters that stay the same objects with the same
moments; does the exported `train.py` give the same losses in a separate process; is the run the same when resumed
from its checkpoints before and after the surgery; and are all hashes equal when it is recomputed from its start? All
of them together write docs/measured/surgeries.md.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from msgspec.structs import replace

from app.engine.tasks.runs import job_of
from app.export.layers import write_models
from app.export.train_script import training_script
from app.project.project import Project
from app.runs import stages, step_hashes, store
from app.runs.recorder import Recorder
from app.runs.store import Kept
from app.training.checkpoints import checkpoint
from app.training.config import Choice, ParameterGroup, Schedule
from app.training.control import Control
from app.training.events import Cut, Event, Failed, StepDone
from app.training.job import Job
from app.training.loop import train
from app.training.recomputing import recording
from app.training.recomputing.recompute_steps import recompute_steps
from app.training.run_requests import Operate
from app.util.frozen import FrozenMap
from tests.support.edited_nets import (
    changed,
    example,
    frozen,
    inserted,
    removed,
    renewed,
    surgery,
)

PRESERVED = 1e-6
ROOT = Path(__file__).parents[2]
COSINE = Schedule(Choice("CosineAnnealingLR", FrozenMap(T_max=50)), "step", 5)
CYCLE = Schedule(Choice("OneCycleLR", FrozenMap(max_lr=0.01, total_steps=12)), "step")
ADAMW, MOMENTUM = (
    Choice("AdamW", FrozenMap(lr=0.003)),
    Choice("SGD", FrozenMap(lr=0.05, momentum=0.9)),
)

Edit = Callable[[Project], Project]


def mlp(**training: Any) -> Project:
    return example("MLP on digits", epochs=2, batch_size=256, **training)


def cnn(**training: Any) -> Project:
    project = example("digits", epochs=2, batch_size=256, **training)
    return changed(changed(project, "conv1", out_channels=8), "conv2", out_channels=8)


def normed(**training: Any) -> Project:
    return inserted(
        inserted(cnn(**training), "nn.BatchNorm2d", "relu1"), "nn.BatchNorm2d", "relu2"
    )


def residual(**training: Any) -> Project:
    return example("Residual net on digits", epochs=2, batch_size=512, **training)


def transformer(**training: Any) -> Project:
    return example("Transformer on digits", epochs=2, batch_size=256, **training)


def siamese(**training: Any) -> Project:
    project = example(
        "Siamese net on digits", epochs=1, batch_size=64, max_steps=12, **training
    )
    return replace(project, data=replace(project.data, options=FrozenMap(count=800)))


def dates(**training: Any) -> Project:
    project = example(
        "Encoder-decoder on dates", epochs=1, batch_size=64, max_steps=12, **training
    )
    return replace(project, data=replace(project.data, options=FrozenMap(count=800)))


def conv(project: Project, before: str = "conv2", **params: Any) -> Project:
    return inserted(
        project,
        "nn.Conv2d",
        before,
        **{"out_channels": 8, "kernel_size": 3, "padding": 1, **params},
    )


def linear(project: Project, before: str = "drop1", **params: Any) -> Project:
    return inserted(project, "nn.Linear", before, **{"out_features": 128, **params})


@dataclass(frozen=True)
class Case:
    """A run and its surgeries, each after a step; `preserves` is whether the function can stay the same."""

    what: str
    project: Project
    edits: tuple[tuple[int, Edit], ...]
    preserves: bool = True


def cases() -> tuple[Case, ...]:
    """Return the runs, with nets and settings that differ."""
    groups = (ParameterGroup("fc3", FrozenMap(lr=0.01)),)
    return (
        Case("MLP, Adam: insert a Linear", mlp(), ((4, linear),)),
        Case("CNN, Adam: insert a Conv2d", cnn(), ((4, conv),)),
        Case(
            "CNN, SGD with momentum: insert a BatchNorm2d",
            cnn(optimizer=MOMENTUM),
            ((4, lambda one: inserted(one, "nn.BatchNorm2d", "relu1")),),
            False,
        ),
        Case(
            "MLP: insert a LayerNorm",
            mlp(),
            ((4, lambda one: inserted(one, "nn.LayerNorm", "fc2")),),
            False,
        ),
        Case(
            "MLP: insert a Dropout, at the end of an epoch",
            mlp(),
            ((6, lambda one: inserted(one, "nn.Dropout", "fc3", p=0.3)),),
        ),
        Case(
            "Residual net: insert a residual block",
            residual(),
            ((4, lambda one: inserted(one, "block.Residual", "avgpool", channels=64)),),
        ),
        Case(
            "MLP: remove the Dropout", mlp(), ((5, lambda one: removed(one, "drop1")),)
        ),
        Case(
            "CNN: remove a Conv2d",
            conv(cnn()),
            ((5, lambda one: removed(one, "conv3")),),
            False,
        ),
        Case(
            "MLP, Adam: widen a Linear",
            mlp(),
            ((4, lambda one: changed(one, "fc1", out_features=160)),),
        ),
        Case(
            "CNN, SGD with momentum: widen a Conv2d before a BatchNorm2d",
            normed(optimizer=MOMENTUM),
            ((4, lambda one: changed(one, "conv1", out_channels=12)),),
        ),
        Case(
            "CNN, AdamW, EMA, cosine after a warmup: widen two layers",
            normed(optimizer=ADAMW, ema=0.9, schedule=COSINE, no_decay=True),
            (
                (
                    7,
                    lambda one: changed(
                        changed(one, "conv1", out_channels=12), "fc1", out_features=80
                    ),
                ),
            ),
        ),
        Case(
            "MLP: narrow a Linear",
            mlp(),
            ((4, lambda one: changed(one, "fc1", out_features=96)),),
            False,
        ),
        Case(
            "CNN: freeze a Conv2d and let it learn again",
            cnn(),
            (
                (3, lambda one: frozen(one, "conv1")),
                (8, lambda one: frozen(one, "conv1", on=False)),
            ),
        ),
        Case(
            "MLP: another head, without a bias",
            mlp(),
            ((4, lambda one: renewed(one, "fc3", out_features=10, bias=False)),),
            False,
        ),
        Case(
            "MLP: a head of more classes",
            mlp(),
            ((4, lambda one: changed(one, "fc3", out_features=12)),),
            False,
        ),
        Case(
            "CNN: another p of the Dropout, at the end of an epoch",
            cnn(),
            ((6, lambda one: changed(one, "drop1", p=0.6)),),
        ),
        Case(
            "Transformer, AdamW, norm clipped: insert an attention layer",
            transformer(optimizer=ADAMW, clip_norm=1.0),
            (
                (
                    4,
                    lambda one: inserted(
                        one,
                        "nn.TransformerEncoderLayer",
                        "mean",
                        nhead=4,
                        dim_feedforward=64,
                        batch_first=True,
                        norm_first=True,
                    ),
                ),
            ),
        ),
        Case(
            "Transformer: insert a block of its own",
            transformer(),
            ((4, lambda one: inserted(one, "block.EncoderLayer", "mean")),),
            False,
        ),
        Case(
            "CNN: two surgeries, of which one widens what the other inserted",
            cnn(),
            ((3, conv), (8, lambda one: changed(one, "conv3", out_channels=12))),
        ),
        Case(
            "MLP, accumulation over 4: insert a Linear amid it",
            mlp(accumulate=4),
            ((2, linear),),
        ),
        Case(
            "CNN, bfloat16, mixup: insert a Conv2d",
            cnn(amp="bfloat16", mixup=0.2),
            ((4, conv),),
        ),
        Case(
            "MLP, parameter groups, OneCycle: widen into the head",
            mlp(groups=groups, schedule=CYCLE),
            ((5, lambda one: changed(one, "fc2", out_features=80)),),
        ),
        Case(
            "Siamese net, whose branches share layers: widen both",
            siamese(),
            ((5, lambda one: changed(one, "embed", out_features=80)),),
        ),
        Case(
            "Encoder-decoder with embeddings: freeze one, insert a Linear",
            dates(),
            (
                (
                    5,
                    lambda one: linear(
                        frozen(one, "embed_written"), "head", out_features=64
                    ),
                ),
            ),
        ),
        Case(
            "CNN, RMSprop, clipped, checkpoints in backward: insert a Conv2d and a Dropout",
            cnn(optimizer=Choice("RMSprop"), clip_norm=0.5, recompute=("conv2",)),
            ((4, lambda one: inserted(conv(one), "nn.Dropout", "fc2", p=0.1)),),
        ),
    )


@dataclass
class Found:
    """What was found of a case; every list has an entry for each surgery."""

    differences: list[float | None] = field(default_factory=list)
    fates: list[str] = field(default_factory=list)
    kept: int = 0  # parameters that stay, over all surgeries
    moments: bool = True
    script: bool = False
    resumed: int = 0  # checkpoints that the run was resumed from, bit for bit
    checkpoints: int = 0
    verified: int = 0  # steps whose hashes were equal when recomputed
    steps: int = 0


def moments(live: Any) -> dict[str, Any]:
    """Return the parameters, and copies of the optimizer's state of each."""
    state = live.optimizer.state
    return {
        name: (
            one,
            {
                key: torch.as_tensor(value).clone()
                for key, value in state.get(one, {}).items()
            },
        )
        for name, one in live.model.named_parameters()
    }


def losses(events: list[Event]) -> list[float]:
    return [event.loss for event in events if isinstance(event, StepDone)]


def operated(case: Case, folder: Path, found: Found) -> tuple[Kept, Job, list[float]]:
    """Run a case, pausing it for its surgeries; return the stored run, its job, and its losses."""
    project, job = case.project, job_of(case.project, None)
    recorder, control = (
        Recorder(store.begin(folder, project), project, job.source.text),
        Control(),
    )
    assert not recorder.begin(), recorder.problem
    left, now = list(case.edits), project
    events: list[Event] = []
    before: dict[str, Any] = {}
    for event in train(job, control, folder=recorder.checkpoints):
        recorder.take(event)
        events.append(event)
        if isinstance(event, StepDone) and left and event.step == left[0][0]:
            edited = left.pop(0)[1](now)
            wanted = surgery(now, edited)
            recorder.plan(wanted, edited)
            before, now = control.call(moments).result(0), edited
            answer = control.call(Operate(wanted))
        elif isinstance(event, Cut):
            outcome, after = event.outcome, control.call(moments).result(0)
            found.differences.append(outcome.difference)
            told: dict[str, list[str]] = {}
            for fate in outcome.fates:
                told.setdefault(fate.what, []).append(fate.after or fate.before)
            found.fates.append(
                "; ".join(
                    f"{what}: {', '.join(names)}"
                    for what, names in told.items()
                    if what not in ("kept", "new")
                )
            )
            there = {id(one): state for one, state in after.values()}
            stays = [
                fate
                for fate in outcome.fates
                if fate.what in ("kept", "changed", "frozen", "unfrozen")
            ]
            for fate in stays:
                for name, (one, state) in before.items():
                    if not name.startswith(f"{fate.before}."):
                        continue
                    found.kept += 1
                    same = there.get(id(one))
                    found.moments &= (
                        same is not None
                        and same.keys() == state.keys()
                        and all(
                            torch.equal(value, same[key])
                            for key, value in state.items()
                        )
                    )
        elif isinstance(event, Failed):
            raise RuntimeError(f"{case.what}: {event.message}\n{event.traceback}")
    recorder.close()
    assert not left and answer.exception(0) is None, (case.what, answer.exception(0))
    assert not recorder.problem, recorder.problem
    kept = recorder.kept
    return (
        kept,
        stages.whole_job(
            kept, stages.projects_of(kept), lambda each: job_of(each, None)
        ),
        losses(events),
    )


def script_losses(job: Job, folder: Path) -> list[float]:
    """Run the exported script in a separate process; return its losses."""
    folder.mkdir()
    write_models(job, folder / "model.py", [folder / "train.py"])
    (folder / "train.py").write_text(training_script(job), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "train.py", "--json"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
    )
    if done.returncode:
        print(done.stderr[-2000:], file=sys.stderr)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    return [event["loss"] for event in events if event["event"] == "step"]


def measured(case: Case) -> Found:
    """Return what is found of a case."""
    found = Found()
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home)
        kept, job, whole = operated(case, folder / "runs", found)
        found.steps = len(whole)
        found.script = script_losses(job, folder / "script") == whole
        for path in sorted(kept.checkpoints.glob("stage-*.pt")):
            step = checkpoint.step_of(path)[0]
            if path.stem.endswith("best"):
                continue
            found.checkpoints += 1
            found.resumed += losses(list(train(job, resume=path))) == whole[step:]
        recorded = step_hashes.recorded_of(kept)
        again = recompute_steps(job, recorded, len(whole), lambda *_: None)
        found.verified = again.verified if again.parting is None else 0
    return found


def is_as_promised(case: Case, found: Found) -> bool:
    """Return whether function, moments, script, resumed and recomputed runs are as they have to be."""
    preserved = all(
        difference is not None and difference <= PRESERVED
        for difference in found.differences
    )
    same = found.resumed == found.checkpoints and found.verified == found.steps
    return (preserved or not case.preserves) and found.moments and found.script and same


def _difference(value: float | None) -> str:
    return "other shape" if value is None else f"{value:.1e}"


def _row(number: int, case: Case, found: Found) -> str:
    numbers = ", ".join(map(_difference, found.differences))
    function = f"{numbers}" if case.preserves else f"{numbers} (cannot be)"
    cells = (
        str(number),
        case.what,
        ", ".join(str(step) for step, _ in case.edits),
        " / ".join(found.fates),
        function,
        f"{found.kept} equal" if found.moments else "differ",
        "equal" if found.script else "DIFFERS",
        f"{found.resumed} of {found.checkpoints}",
        f"{found.verified} of {found.steps}",
    )
    return f"| {' | '.join(cells)} |"


def main() -> int:
    recording.SHARE = 1e9  # a hash of every step
    wanted = {int(one) for one in sys.argv[1:]}
    every, rows, wrong = cases(), [], 0
    for number, case in enumerate(every, 1):
        if wanted and number not in wanted:
            continue
        found = measured(case)
        rows.append(_row(number, case, found))
        print(rows[-1], flush=True)
        fine = is_as_promised(case, found)
        wrong += not fine
        if not fine:
            print(f"  ^ {number} is wrong", flush=True)
    print(f"{len(rows) - wrong} of {len(rows)} as promised")
    if not wanted:
        text = (
            TEXT.format(right=len(rows) - wrong, of=len(rows), limit=PRESERVED)
            + "\n".join(rows)
            + "\n"
        )
        (ROOT / "docs" / "measured" / "surgeries.md").write_text(text, encoding="utf-8")
    return int(wrong > 0)


TEXT = """\
# Surgeries on running runs

Made by `python -m tests.slow.surgeries`: {right} of {of} as promised. Each run was paused after a step and continued
with an edited net. *Difference* is the largest difference of the output on a batch of the run before and after,
relative to the largest element, in eval mode: at most {limit:g} wherever the edit can preserve the function.
*Parameters* that stay are the same objects, with equal moments of the optimizer. *train.py* ran in a separate process,
and all its losses are compared float for float. *Resumed* counts the checkpoints before and after the surgeries from
which the run resumed bit for bit, *recomputed* the steps whose recorded hashes of gradients and generators were equal
when the run was recomputed from its start.

| # | run and surgery | after step | layers | difference | parameters | train.py | resumed | recomputed |
|-|-|-|-|-|-|-|-|-|
"""

if __name__ == "__main__":
    sys.exit(main())
