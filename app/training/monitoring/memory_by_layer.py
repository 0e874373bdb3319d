"""Memory by layer: measured during a step of a run, and estimated before it starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from app.data.fields import Fields
from app.data.spec import VALUES, DataInfo, TargetInfo
from app.data.targets import synthetic_targets, with_targets
from app.source.compiled import make_module
from app.telemetry.layer_bytes import StepBytes
from app.telemetry.layer_memory import step_bytes
from app.training.config import INPUT, TARGET
from app.training.inputs import fields_of, target_fields
from app.training.job import Job
from app.training.monitoring.live_model import LiveRun
from app.training.objectives import info_of, input_is_target, task_of
from app.training.stepper import Stepper
from app.util.rng import borrowed

if TYPE_CHECKING:
    from torch import Tensor


def of_run(live: LiveRun) -> StepBytes:
    """Run the first batch through the network and count its memory. To be run by `Control.call`."""
    stepper = live.stepper
    inputs, labels = live.data.batch(stepper.config.batch_size)

    def forward() -> Any:
        return stepper.measured(stepper.output(live.model, inputs), labels)

    live.model.train()
    return step_bytes(live.model, live.optimizer.state, len(inputs), forward)


def estimate(job: Job, data: DataInfo) -> StepBytes | None:
    """Estimate memory on meta tensors, without running anything.

    None if the net or the optimizer does not run on them. Raises what a custom layer raises.
    """
    training = job.training
    data = info_of(job, data)
    task = task_of(job, data)
    batch = min(training.batch_size, data.train_count)
    with borrowed(), torch.device("meta"):
        model = make_module(job.source)
        stepper = Stepper(
            model, training, task, "cpu", fields_of(job.source, training.inputs, data)
        )
        inputs, labels = _batch(job, data, batch)

        def forward() -> Any:
            return stepper.measured(stepper.output(model, inputs), labels)

        try:
            for parameter in model.parameters():
                parameter.grad = (
                    torch.empty_like(parameter) if parameter.requires_grad else None
                )
            stepper.optimizer.step()
            return step_bytes(model, stepper.optimizer.state, batch, forward)
        except (NotImplementedError, RuntimeError, TypeError):
            return None
        except Exception:
            if not job.source.opened:
                raise
            return (
                None  # a model of code may do anything with values that are not there
            )


def _batch(job: Job, data: DataInfo, batch: int) -> tuple[Any, Any]:
    """Return a batch with the shapes and dtypes of the data."""
    inputs: Any = torch.empty(
        batch, *data.input_shape, dtype=getattr(torch, data.dtype)
    )
    if data.inputs:
        sizes = {
            field.name: (field.shape, getattr(torch, field.dtype))
            for field in data.inputs
        }
        inputs = Fields(
            {
                name: torch.empty(batch, *shape, dtype=dtype)
                for name, (shape, dtype) in sizes.items()
            }
        )

    def label(target: TargetInfo) -> Tensor:
        return torch.empty(
            batch,
            *target.label_shape,
            dtype=torch.float32 if target.task == VALUES else torch.int64,
        )

    labels = synthetic_targets(
        data, inputs, INPUT if input_is_target(job.training) else "", label
    )
    targets = [
        name
        for name in fields_of(job.source, job.training.inputs, data)
        if name in target_fields(data)
    ]
    return with_targets(inputs, labels, targets, TARGET) if targets else inputs, labels
