"""The memory of a run by layer: measured on one step of it, and estimated before it begins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from app.data.spec import DataInfo
from app.rng import borrowed
from app.telemetry.layer_memory import StepBytes, step_bytes
from app.training.job import Job
from app.training.live import Live
from app.training.metrics import Task

if TYPE_CHECKING:
    from torch import Tensor


def of_run(live: Live) -> StepBytes:
    """Run the first batch through the net of a run, and count. To be run by `Control.call`."""
    stepper = live.stepper
    inputs, labels = live.data.batch(stepper.config.batch_size)

    def forward() -> Any:
        return stepper.measured(stepper.output(live.model, inputs), labels)

    live.model.train()
    return step_bytes(live.model, live.optimizer.state, len(inputs), forward)


def estimate(job: Job, data: DataInfo) -> StepBytes | None:
    """The same without running anything: on meta tensors, which have shapes and no memory.

    None where the net or the optimizer cannot run on them. Raises what a net of a person's own raises.
    """
    import torch

    from app.source import make_module
    from app.training.stepper import Stepper

    training = job.training
    task = Task(training.loss.name, len(data.classes), data.task, data.labels_per_sample)
    batch = min(training.batch_size, data.train_count)
    with borrowed(), torch.device("meta"):
        model = make_module(job.source)
        stepper = Stepper(model, training, task, "cpu")
        inputs, labels = _batch(data, batch)

        def forward() -> Any:
            return stepper.measured(stepper.output(model, inputs), labels)

        try:
            for parameter in model.parameters():
                parameter.grad = torch.empty_like(parameter) if parameter.requires_grad else None
            stepper.optimizer.step()
            return step_bytes(model, stepper.optimizer.state, batch, forward)
        except (NotImplementedError, RuntimeError, TypeError):
            return None


def _batch(data: DataInfo, batch: int) -> tuple[Tensor, Tensor]:
    """A batch of the shapes and dtypes that the data have."""
    import torch

    inputs = torch.empty(batch, *data.input_shape, dtype=getattr(torch, data.dtype))
    if data.task == "values":
        return inputs, torch.empty(batch, *data.label_shape)
    if data.task == "tokens":
        return inputs, torch.empty(batch, data.labels_per_sample, dtype=torch.int64)
    return inputs, torch.empty(batch, dtype=torch.int64)
