"""The script of a run that was resumed with other settings begins with its checkpoint, and is that run bit for bit."""

import json
import signal

import pytest
from msgspec.structs import replace
from torch.optim.optimizer import register_optimizer_step_post_hook

from app.data.config import DataConfig
from app.export.train_script import training_script, write_start
from app.training.config import Choice, ParameterGroup, Schedule
from app.training.events import EpochDone, Failed, StepDone, to_json
from app.training.loop import train
from app.util.frozen import FrozenMap
from tests.support import script_here
from tests.support.training_jobs import SMALL_NET, job

HALVED = Schedule(Choice("StepLR", FrozenMap(step_size=1, gamma=0.5)), "epoch")
WARMED = Schedule(Choice("CosineAnnealingLR", FrozenMap(T_max=20)), "step", 12)


def adam(**params):
    return {"optimizer": Choice("Adam", FrozenMap(lr=0.001, **params))}


def sgd(**params):
    return {"optimizer": Choice("SGD", FrozenMap(params))}


def group(path, **options):
    return {"groups": (ParameterGroup(path, FrozenMap(options)),)}


# Settings of the run, and those that are changed when it is resumed.
TAKEN = {
    "rate": ({}, {"optimizer": Choice("Adam", FrozenMap(lr=0.5))}),
    "rate of a schedule": (
        {"schedule": HALVED},
        {"optimizer": Choice("Adam", FrozenMap(lr=0.01))},
    ),
    "rate amid a warmup": ({"schedule": WARMED, **sgd(lr=0.1)}, sgd(lr=0.2)),
    "rate of a group": (group("linear1", lr=0.1), group("linear1", lr=0.2)),
    "weight decay": ({}, adam(weight_decay=0.1)),
    "betas": ({}, adam(betas=(0.5, 0.9))),
    "momentum": (sgd(lr=0.1), sgd(lr=0.1, momentum=0.9)),
    "smaller batches": ({}, {"batch_size": 17}),
    "larger batches, accumulated": (
        {"accumulate": 3, "save_every": 3},
        {"batch_size": 300},
    ),
    "batches that are cut": ({"data": DataConfig(drop_last=True)}, {"batch_size": 150}),
    "a batch that is left out": ({"leave_out": (9,)}, {"batch_size": 90}),
    "accumulation": ({}, {"accumulate": 3}),
    "clipping": ({}, {"clip_norm": 0.1, "clip_value": 0.01}),
    "precision": ({}, {"amp": "bfloat16"}),
    "a running mean": ({}, {"ema": 0.9}),
    "another running mean": ({"ema": 0.9}, {"ema": 0.5}),
    "no running mean": ({"ema": 0.9}, {"ema": None}),
    "mixup": ({}, {"mixup": 0.4}),
    "skipping": ({}, {"not_finite": "skip"}),
    "epochs": ({}, {"epochs": 3}),
}
REFUSED = {
    "seed": ({}, {"seed": 3}),
    "loss": ({}, {"loss": Choice("CrossEntropyLoss", FrozenMap(label_smoothing=0.1))}),
    "optimizer": ({}, {"optimizer": Choice("AdamW", FrozenMap(lr=0.001))}),
    "schedule": ({}, {"schedule": HALVED}),
    "groups": ({}, group("linear1", lr=0.2)),
    "accumulate": ({"accumulate": 4}, {"accumulate": 2}),
    "data.validation_fraction": ({}, {"data": DataConfig(validation_fraction=0.3)}),
    "data.shuffle": ({}, {"data": DataConfig(shuffle=False)}),
    "amsgrad": ({}, adam(amsgrad=True)),
    "one_batch": ({}, {"one_batch": True}),
    "metrics": ({}, {"metrics": ("f1",)}),
}


@pytest.fixture
def run_script(tmp_path, capsys):
    """Run the exported script of a job in this process: the lines that it prints, and SystemExit or None."""

    def run(a_job, *arguments):
        (tmp_path / "model.py").write_text(a_job.source.text)
        (tmp_path / "train.py").write_text(training_script(a_job))
        write_start(a_job, tmp_path / "train.py")
        ended = script_here.run_script(tmp_path, *arguments)
        return capsys.readouterr().out.splitlines(), ended

    return run


def resumed(before, now, folder):
    """Train the first steps with the settings `before`; the checkpoint amid an epoch, and the job of the rest."""
    first = {"epochs": 2, "batch_size": 200, "save_every": 5, "max_steps": 12, **before}
    list(train(job(SMALL_NET, **first), folder=folder))
    at = max(folder.glob("step-*.pt"))
    return at, replace(
        job(SMALL_NET, **{**first, "max_steps": None, **now}), begin=str(at)
    )


def numbers(lines):
    return [line for line in lines if json.loads(line)["event"] in ("step", "epoch")]


@pytest.mark.parametrize("name", TAKEN)
def test_changed_settings_hold_in_the_run_and_in_its_script(name, run_script, tmp_path):
    at, now = resumed(*TAKEN[name], tmp_path / "run")
    events = list(train(now, resume=at, folder=tmp_path / "more"))
    ours = numbers(line for event in events if (line := to_json(event)))
    lines, ended = run_script(now, "--json")
    assert ended is None and ours and numbers(lines) == ours
    later = max((tmp_path / "more").glob("step-*.pt"))
    rest = [line for event in train(now, resume=later) if (line := to_json(event))]
    again, ended = run_script(now, "--json", "--resume", str(later))
    assert (
        ended is None and numbers(again) == numbers(rest) == ours[-len(numbers(rest)) :]
    )


@pytest.mark.parametrize("name", REFUSED)
def test_settings_that_cannot_be_changed_are_refused_by_name(
    name, run_script, tmp_path
):
    at, now = resumed(*REFUSED[name], tmp_path / "run")
    failed = list(train(now, resume=at))[-1]
    assert isinstance(failed, Failed) and f" {name} " in failed.message
    assert "start a new run from the weights of this one" in failed.message
    if name not in ("amsgrad", "metrics"):
        _, ended = run_script(now)
        assert ended is not None and name in str(ended)


def test_the_mean_of_an_epoch_is_over_the_samples_of_both_batch_sizes(tmp_path):
    at, now = resumed({}, {"batch_size": 17}, tmp_path / "run")
    first = list(train(job(SMALL_NET, epochs=2, batch_size=200, max_steps=10)))
    events = [*first[:-2], *train(now, resume=at)]
    steps = [
        event for event in events if isinstance(event, StepDone) and event.epoch == 2
    ]
    (epoch,) = (
        event
        for event in events
        if isinstance(event, EpochDone) and event.epoch == 2 and event.step > 10
    )
    assert sum(event.samples for event in steps) == 1438
    assert epoch.train_loss == pytest.approx(
        sum(event.loss * event.samples for event in steps) / 1438
    )


def test_a_script_that_a_queue_ends_is_saved_and_goes_on_from_the_newest_checkpoint(
    run_script, tmp_path
):
    a_job = job(SMALL_NET, epochs=2, batch_size=200, save_every=50)
    whole, ended = run_script(a_job, "--json", "--checkpoints", str(tmp_path / "other"))
    assert ended is None
    folder = str(tmp_path / "checkpoints")
    arguments = ("--json", "--checkpoints", folder, "--resume", folder)
    (tmp_path / "checkpoints").mkdir()
    lines, left = [], [5, 7]

    def after_step(*_):
        left[0] -= 1
        if not left[0]:
            signal.raise_signal(signal.SIGUSR1 if len(left) == 2 else signal.SIGTERM)
            del left[0]

    hook = register_optimizer_step_post_hook(after_step)
    try:
        for status in (75, 75, None):  # of three starts by the same command
            printed, ended = run_script(a_job, *arguments)
            assert (ended and ended.code) == status
            lines += printed
            left = left or [0]
    finally:
        hook.remove()
    assert numbers(lines) == numbers(whole)
