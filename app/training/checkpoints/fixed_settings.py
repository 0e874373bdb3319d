"""Settings that cannot be changed amid a run, and why. All others can: a resumed run takes those that it is given."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from app.data.config import DataConfig
from app.data.spec import DataInfo
from app.training.config import Choice, TrainingConfig
from app.training.job import Job

FROM_WEIGHTS = (
    "start a new run from the weights of this one: Fork under Runs, or `tapedeck import RUN/weights.pt --into "
    "PROJECT --strict`, then `tapedeck train`"
)
WAITING = (
    "accumulate",
    "amp",
)  # settings that gradients waiting for the optimizer's step depend on
SETS_RATES = (
    "OneCycleLR",
    "CyclicLR",
)  # schedules that do not begin with the optimizer's rate

_OTHER_SAMPLES = "samples that were trained on would be validated, and others would follow in this epoch"
_OTHER_ORDER = "the order of the samples of an epoch depends on it"
_OTHER_LOSS = "the losses before and after could not be compared"
_REASONS = {
    "optimizer": "the optimizer's state is of another one",
    "schedule": "its position is that of another schedule",
    "groups": "the optimizer's state is kept by parameter group",
    "no_decay": "the optimizer's state is kept by parameter group",
    "seed": "the initial weights and the order of the samples were drawn with it",
    "loss": _OTHER_LOSS,
    "losses": _OTHER_LOSS,
    "inputs": _OTHER_LOSS,
    "data.class_weights": _OTHER_LOSS,
    "metrics": "the table of the epochs has these columns",
    "one_batch": _OTHER_ORDER,
    "data.shuffle": _OTHER_ORDER,
    "data.drop_last": _OTHER_ORDER,
    "data.source": _OTHER_SAMPLES,
    "data.options": _OTHER_SAMPLES,
    "data.bad": _OTHER_SAMPLES,
    "data.validation_fraction": _OTHER_SAMPLES,
    "data.test_fraction": _OTHER_SAMPLES,
    "data.split_seed": _OTHER_SAMPLES,
    "data.samples": _OTHER_SAMPLES,
    "accumulate": "gradients are waiting for the optimizer's step",
    "amp": "gradients are waiting for the optimizer's step",
}


def fixed_settings(training: TrainingConfig, data: DataConfig) -> dict[str, str]:
    """Return the settings that cannot be changed amid a run, as texts by name; without the seed.

    >>> fixed_settings(TrainingConfig(), DataConfig())["optimizer"]
    'Adam'
    """
    schedule = training.schedule
    losses = [
        f"{row.output}: {_call(row.loss)} * {_text(row.weight)} of {row.target}"
        for row in training.losses
    ]
    return {
        "optimizer": training.optimizer.name,
        "schedule": f"{_call(schedule.choice)} per {schedule.per}, warmup {schedule.warmup}"
        if schedule
        else "none",
        "groups": _listed(group.path for group in training.groups),
        "no_decay": _text(training.no_decay),
        "loss": "of each output" if training.losses else _call(training.loss),
        "losses": _listed(losses),
        "inputs": _text(training.inputs),
        "metrics": _listed(training.metrics),
        "one_batch": _text(training.one_batch),
        "accumulate": _text(training.accumulate),
        "amp": training.amp or "none",
        "data.source": data.source,
        "data.options": _text(data.options),
        "data.bad": data.bad,
        "data.validation_fraction": _text(data.validation_fraction),
        "data.test_fraction": _text(data.test_fraction),
        "data.split_seed": _text(data.split_seed),
        "data.shuffle": _text(data.shuffle),
        "data.drop_last": _text(data.drop_last),
        "data.class_weights": _text(data.class_weights),
    }


def settings_of(job: Job, data: DataInfo) -> dict[str, str]:
    """Return the settings of a run that its checkpoints keep: the fixed ones, its seed and its numbers of samples."""
    samples = sample_counts(data.train_count, data.validation_count)
    fixed = fixed_settings(job.training, job.data)
    return {**fixed, "seed": str(job.training.seed), "data.samples": samples}


def sample_counts(training: int, validation: int) -> str:
    """Describe how many samples a run has."""
    return f"{training} for training, {validation} for validation"


def refusals(
    before: Mapping[str, str], now: Mapping[str, str], waiting: bool = True
) -> list[str]:
    """Name each setting that cannot be changed and is another one now, with both values and the reason.

    `waiting` says whether gradients are waiting for the optimizer's step.

    >>> refusals({"seed": "0"}, {"seed": "1"})
    ['seed is 0 in the run and not 1: the initial weights and the order of the samples were drawn with it']
    """
    return [
        f"{name} is {before[name]} in the run and not {now[name]}: {reason}"
        for name, reason in _REASONS.items()
        if name in before
        and name in now
        and before[name] != now[name]
        and (waiting or name not in WAITING)
    ]


def refusal(reasons: Sequence[str]) -> str:
    """Join refusals to a sentence with the cure; "" if there are none."""
    if not reasons:
        return ""
    return f"other settings, which cannot be changed amid a run: {'; '.join(reasons)}. Leave them, or {FROM_WEIGHTS}."


def _call(choice: Choice) -> str:
    params = ", ".join(
        f"{name}={_text(value)}" for name, value in sorted(choice.params.items())
    )
    return f"{choice.name}({params})" if params else choice.name


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


def _text(value: Any) -> str:
    """Return a value as text, the same whether it was read from a file or not."""
    if isinstance(value, Mapping):
        return (
            "{"
            + ", ".join(
                f"{name}: {_text(entry)}" for name, entry in sorted(value.items())
            )
            + "}"
        )
    if isinstance(value, list | tuple):
        return "(" + ", ".join(map(_text, value)) + ")"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)
