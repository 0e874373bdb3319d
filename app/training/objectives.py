"""Training objectives: which output is compared with which target, by which loss."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from msgspec import Struct
from msgspec.structs import replace

from app.data.dataset import Dataset
from app.data.spec import VALUES, DataInfo, TargetInfo
from app.data.targets import WithInput, WithTargets
from app.source.generated import Source
from app.training.choices import CLASS_IDS, LOSSES, OWN_LOSS
from app.training.config import INPUT, TARGET, OutputLoss, TrainingConfig
from app.training.inputs import target_fields
from app.training.job import Job, JobError
from app.training.multi_output import SeveralLosses, named
from app.training.registry import make_loss
from app.training.setup.losses_in_words import takes
from app.training.task import OutputError, OwnTask, Task, ignored_label

if TYPE_CHECKING:
    from torch import Tensor, nn

Forms = tuple[dict[Any, str], ...]
Targets = tuple[TargetInfo, ...]
Shape = tuple[int, ...]


class OutputTarget(Struct, frozen=True):
    """An output with its loss and target: `target` is the name of one of the data's, or INPUT."""

    given: OutputLoss
    target: str
    task: Task

    @property
    def hot(self) -> int:
        """The number of classes if the loss needs one-hot targets; 0 if it takes class ids or values."""
        return (
            self.task.classes
            if self.task.kind != VALUES and LOSSES[self.given.loss.name] != CLASS_IDS
            else 0
        )

    @property
    def turned(self) -> bool:
        """True if the class axis, which is last, must be moved to axis 1."""
        return self.task.kind == "tokens" and LOSSES[self.given.loss.name] == CLASS_IDS


class SeveralTasks(Task, frozen=True):
    """As a task it is that of the first row, whose accuracy and metrics are measured."""

    rows: tuple[OutputTarget, ...] = ()
    forms: Forms = ()

    @property
    def one(self) -> Task:
        return self.rows[0].task

    def loss_inputs(self, output: Any, labels: Any) -> tuple[Any, Any]:
        return output, labels

    def chief(self, output: Any, labels: Any) -> tuple[Any, Tensor]:
        """Return output and labels of the first row."""
        return self.answer(output), _labels_of(labels, self.rows[0].target)

    def answer(self, output: Any) -> Any:
        """Return the output of the first row. Raises OutputError."""
        outputs, name = self.named(output), self.rows[0].given.output
        if name not in outputs:
            raise OutputError(
                f"The network did not return {name}: the first loss must belong to an output that is always returned."
            )
        return outputs[name]

    def named(self, output: Any) -> dict[str, Any]:
        """Return the net's outputs by name. Raises OutputError."""
        try:
            return named(output, self.forms)
        except ValueError as error:
            raise OutputError(str(error)) from error

    def correct(self, output: Any, labels: Any) -> Tensor | None:
        return self.one.correct(*self.chief(output, labels))

    def check(self, output: Any, labels: Any) -> None:
        outputs = self.named(output)
        for row in self.rows:
            if row.given.output in outputs:
                try:
                    row.task.check(
                        outputs[row.given.output], _labels_of(labels, row.target)
                    )
                except OutputError as error:
                    raise OutputError(f"{row.given.output}: {error}") from error

    def loss_module(self) -> nn.Module:
        """Create the module that takes all outputs and all labels. Raises ChoiceError."""
        return SeveralLosses(
            self.forms,
            [
                (
                    r.given.output,
                    r.target,
                    make_loss(r.given.loss),
                    r.given.weight,
                    r.hot,
                    r.turned,
                )
                for r in self.rows
            ],
        )


def _labels_of(labels: Any, name: str) -> Any:
    return labels if isinstance(labels, torch.Tensor) else labels[name]


def task_of(job: Job, info: DataInfo) -> Task:
    """Return the task of a job. Raises JobError."""
    training = job.training
    if not training.losses:
        units = info.units.get("", ())
        ignore = ignored_label(training.loss, info.task)
        return Task(
            training.loss.name,
            len(info.classes),
            info.task,
            info.labels_per_sample,
            units,
            ignore,
        )
    rows = rows_of(job, info.known_targets, info.input_shape, info.label)
    task = rows[0].task
    units = info.units.get(rows[0].target, ())
    return SeveralTasks(
        task.loss,
        task.classes,
        task.kind,
        task.labels,
        units,
        task.ignore,
        rows,
        forms(job.source),
    )


def rows_of(
    job: Job, targets: Targets, input_shape: Shape, label: str
) -> tuple[OutputTarget, ...]:
    """Match the losses of a job with the targets of its data. Raises JobError."""
    rows = tuple(
        _row(row, _target_of(row, targets, input_shape, label))
        for row in job.training.losses
    )
    output_names = {name for form in forms(job.source) for name in form.values()}
    for row in rows:
        if output_names and row.given.output not in output_names:
            raise JobError(
                f"The network has no output “{row.given.output}”. It has: "
                f"{', '.join(sorted(output_names))}. Set the losses "
                "of its outputs again (Training, Loss)."
            )
    return rows


def _row(row: OutputLoss, target: TargetInfo) -> OutputTarget:
    if row.loss.name == OWN_LOSS:
        return OutputTarget(row, target.name, OwnTask(OWN_LOSS, 0, VALUES))
    if not takes(row.loss, target):
        name = "the input itself" if target.name == INPUT else target.name
        raise JobError(
            f"{row.output}: {row.loss.name} expects class labels, and {name} has values to predict. Choose a "
            "regression loss, such as MSELoss."
        )
    labels = target.labels_per_sample
    ignore = ignored_label(row.loss, target.task)
    return OutputTarget(
        row,
        target.name,
        Task(row.loss.name, len(target.classes), target.task, labels, (), ignore),
    )


def _target_of(
    row: OutputLoss, targets: Targets, input_shape: Shape, label: str
) -> TargetInfo:
    """Return the target of an output. Raises JobError."""
    if row.target == INPUT:
        return TargetInfo(INPUT, VALUES, (), input_shape)
    target = next(
        (candidate for candidate in targets if row.target in (candidate.name, "")), None
    )
    if target is None:
        raise JobError(
            f"{row.output}: {label} has no target “{row.target}”. It has: "
            f"{', '.join(candidate.name for candidate in targets if candidate.name) or 'one, without a name'}."
        )
    return target


def forms(source: Source) -> Forms:
    """Return the output format of each mode: names by position, or by key if all have one."""
    output_forms = []
    for ends in source.forms:
        keys = [end.key for end in ends]
        by_key = bool(ends) and None not in keys and len(set(keys)) == len(keys)
        output_forms.append(
            {(end.key if by_key else index): end.name for index, end in enumerate(ends)}
        )
    return tuple(output_forms)


def input_is_target(training: TrainingConfig) -> bool:
    """Return whether the input is also a target (autoencoder)."""
    return any(row.target == INPUT for row in training.losses)


def prepared(job: Job, data: Dataset) -> Dataset:
    """Return the data with the targets that the losses need, described by the first loss's target, and with those that
    go into the net."""
    fed = {job.training.inputs.get(spec.name) for spec in job.source.inputs}
    if names := tuple(name for name in target_fields(data.info) if name in fed):
        train, val, test = (
            WithTargets(samples, names, TARGET)
            for samples in (data.train, data.val, data.test)
        )
        data = replace(data, train=train, val=val, test=test)
    if not job.training.losses:
        return data
    info = info_of(job, data.info)
    if not input_is_target(job.training):
        return replace(data, info=info)
    extended = [
        WithInput(samples, INPUT) for samples in (data.train, data.val, data.test)
    ]
    return replace(
        data, train=extended[0], val=extended[1], test=extended[2], info=info
    )


def info_of(job: Job, info: DataInfo) -> DataInfo:
    """Return the data description of the first loss's target. Raises JobError."""
    if not job.training.losses:
        return info
    target = _target_of(
        job.training.losses[0], info.known_targets, info.input_shape, info.label
    )
    uses_model_loss = (
        job.training.losses[0].loss.name == OWN_LOSS
    )  # nothing is compared with the target here
    return replace(
        info,
        task=VALUES if uses_model_loss else target.task,
        classes=() if uses_model_loss else target.classes,
        label_shape=target.label_shape,
        labels_per_sample=target.labels_per_sample,
        class_counts=info.target_counts.get(target.name, ()),
        targets=info.known_targets,
    )


def first_classes(info: DataInfo) -> tuple[str, ...]:
    """Return the classes of the data's first target, regardless of the first loss."""
    return info.known_targets[0].classes
