"""A training run as an immutable value: everything that determines its numbers."""

from __future__ import annotations

import math
import re
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from app.data.config import DataConfig
from app.data.sources import DataError, check, spec_of
from app.data.spec import DataInfo
from app.source.generated import Source
from app.training import settings
from app.training.choices import LOSSES, OWN_LOSS
from app.training.config import INPUT, MOST_WEIGHT, TrainingConfig
from app.training.inputs import InputError, check_inputs, target_fields
from app.training.metrics import refusal
from app.training.setup import weighted_losses
from app.training.setup.losses_in_words import takes
from app.training.surgery.values import Surgery
from app.util.errors import CodedError
from app.util.frozen import Shared

# Which of them are here, torch says: it knows its own, and those of the backends that are installed.
DEVICE = re.compile(r"auto|[a-z][a-z_]*(:\d+)?")
NO_DEVICE = "device is “{}”; it must be auto, cpu or an accelerator as torch names it, such as cuda:0 or mps"


class JobError(CodedError, ValueError):
    """Raised for a run that cannot be started; the message says what to change."""


class Stage(Struct, frozen=True):
    """A stage of a run, which begins with a surgery after the step `step`; 0 is before the first one."""

    step: int
    surgery: Surgery


class Job(Shared, frozen=True):
    """`data_root` is the folder of downloaded data; None is the usual one. `stages` are those after the first, in their
    order; `source` and `training` are those of the first stage. `begin` is the file of the checkpoint that the run
    begins with, if settings were changed there; its script begins there too.
    """

    source: Source
    data: DataConfig = DataConfig()
    training: TrainingConfig = TrainingConfig()
    data_root: str | None = None
    stages: tuple[Stage, ...] = ()
    begin: str = ""

    def at_stage(self, number: int) -> Job:
        """Return the job as it is in a stage, from 1, as a run that begins there."""
        if number == 1:
            return replace(self, stages=()) if self.stages else self
        surgery = self.stages[number - 2].surgery
        training = replace(
            self.training,
            groups=surgery.groups,
            recompute=surgery.recompute,
            start=None,
        )
        return Job(surgery.source, self.data, training, self.data_root)

    def stage_at(self, step: int) -> int:
        """Return the stage, from 1, that a step is taken in."""
        return 1 + sum(stage.step < step for stage in self.stages)

    def ran_with(self, threads: int) -> Job:
        """Return the job with the number of CPU threads that a run chose, unless it sets one."""
        return replace(
            self,
            training=replace(self.training, threads=self.training.threads or threads),
        )

    @property
    def last(self) -> Job:
        """The job as it is in the last stage."""
        return self.at_stage(1 + len(self.stages))


def check_numbers(job: Job) -> None:
    """Validate counts, seeds and names, without importing torch. Raises JobError."""
    training = job.training
    for name in settings.PARAMS:
        if text := settings.problem(name, getattr(training, name)):
            raise JobError(text)
    check_data(job.data)
    _check_stages(job.stages)
    _check_loss(job)
    _check_losses(training)
    _check_metrics(job)
    if not DEVICE.fullmatch(training.device):
        raise JobError(NO_DEVICE.format(training.device))
    _check_optimizer(training)


def _check_stages(stages: tuple[Stage, ...]) -> None:
    """Validate that stages follow one another."""
    before = 0
    for stage in stages:
        _at_least("the step of a surgery", stage.step, before)
        before = stage.step


def check_data(data: DataConfig) -> None:
    """Validate the data settings. Raises JobError."""
    try:
        check(data)
    except DataError as error:
        raise JobError(str(error)) from error


def _check_optimizer(training: TrainingConfig) -> None:
    if training.optimizer.name == "LBFGS":
        for name, plain in (("accumulate", 1), ("amp", ""), ("not_finite", "stop")):
            if getattr(training, name) != plain:
                raise JobError(
                    f"LBFGS runs a batch several times in one step: set {name} to {plain or 'none'}."
                )
        if training.groups or training.no_decay:
            raise JobError(
                "LBFGS does not support parameter groups: remove the groups, and no_decay."
            )


def _check_losses(training: TrainingConfig) -> None:
    """Validate the losses of several outputs."""
    outputs = [row.output for row in training.losses]
    if (
        training.losses
        and training.losses[0].loss.name == OWN_LOSS
        and training.metrics
    ):
        raise JobError(
            f"metrics are measured on the first output, and {outputs[0]} is the loss of the model itself. Put another "
            "output first, or remove the metrics."
        )
    if training.mixup and any(row.loss.name == OWN_LOSS for row in training.losses):
        raise JobError(
            "mixup blends the targets of a loss, and the model computes its own. Set mixup to 0."
        )
    for row in training.losses:
        if outputs.count(row.output) > 1:
            raise JobError(
                f"losses names the output “{row.output}” twice; each has one loss."
            )
        if row.loss.name not in LOSSES and row.loss.name != OWN_LOSS:
            raise JobError(
                f"There is no loss “{row.loss.name}” here. Choose one of: {', '.join(LOSSES)}."
            )
        if not (_is_number(row.weight) and 0 <= row.weight <= MOST_WEIGHT):
            raise JobError(
                f"losses gives {row.output} the weight {row.weight!r}; it must be a number from 0 to "
                f"{MOST_WEIGHT:g}."
            )
    if training.losses and not any(row.weight for row in training.losses):
        raise JobError(
            "losses gives every output the weight 0, so nothing is trained. Give one a weight above 0."
        )


def _is_number(value: Any) -> bool:
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
    )


def _check_loss(job: Job) -> None:
    """Validate the loss against the data."""
    if job.data.class_weights and (
        problem := weighted_losses.refusal(job.training.loss, job.training.losses)
    ):
        raise JobError(
            f"class_weights: {problem} Choose another loss, or disable class_weights."
        )


def _check_metrics(job: Job) -> None:
    if job.training.losses:  # the target of the first loss is known with the data
        return
    spec = spec_of(job.data)
    for name in job.training.metrics:
        if problem := refusal(
            name, spec.task if spec.is_read else "", len(spec.classes)
        ):
            raise JobError(problem)


def check_input(job: Job, data: DataInfo) -> None:
    """Validate the network's input, loss and metrics against the data. Raises JobError."""
    if not job.training.losses:
        _check_one(job, data)
    for name in job.training.metrics:
        if problem := refusal(name, data.task, len(data.classes)):
            raise JobError(problem)
    if job.training.mixup and data.inputs:
        raise JobError(
            f"mixup blends samples of one input, and {data.label} has several. Set mixup to 0."
        )
    fed = {job.training.inputs.get(spec.name) for spec in job.source.inputs}
    if job.training.mixup and not fed.isdisjoint(target_fields(data)):
        raise JobError(
            "mixup blends samples, but not a target that is also an input of the net. Set mixup to 0."
        )
    if data.inputs and any(row.target == INPUT for row in job.training.losses):
        raise JobError(
            f"{data.label} has several inputs, and a loss compares an output with one. Choose a target."
        )
    if job.training.mixup and not data.dtype.startswith(("float", "bfloat")):
        raise JobError(
            f"mixup blends samples as numbers, and those of {data.label} are {data.dtype}, such as token ids, which "
            "cannot be blended. Set mixup to 0."
        )
    _check_inputs(job, data)


def _check_one(job: Job, data: DataInfo) -> None:
    """Validate the loss of a single output against the data."""
    if len(data.targets) > 1:
        names = ", ".join(target.name for target in data.targets)
        raise JobError(
            f"{data.label} has {len(data.targets)} targets ({names}), and the loss takes one: choose a target for "
            "each output (Training, Loss)."
        )
    if not takes(job.training.loss, data.known_targets[0]):
        raise JobError(
            f"{job.training.loss.name} expects class labels, and {data.label} has values to predict. Choose a "
            "regression loss, such as MSELoss."
        )


def _check_inputs(job: Job, data: DataInfo) -> None:
    """Validate the network's inputs against the data."""
    try:
        check_inputs(job.source, job.training.inputs, data, data.input_shape)
    except InputError as error:
        raise JobError(str(error)) from error


def _at_least(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise JobError(f"{name} is {value!r}; it must be an integer, at least {least}.")
