"""A step isolated from a concurrent run: separate network and optimizer, generators restored, a synthetic batch."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from app.data.fields import Fields
from app.data.sources import DataInfo, SourceSpec, spec_of
from app.data.spec import VALUES, FieldInfo, TargetInfo
from app.data.targets import synthetic_targets, with_targets
from app.training.config import INPUT, TARGET
from app.training.inputs import fields_of, target_fields
from app.training.job import Job, JobError
from app.training.objectives import input_is_target, task_of
from app.training.setup.class_weights import weigh_classes
from app.training.setup.initial_weights import initial_module
from app.training.stepper import Stepper
from app.util.rng import borrowed

if TYPE_CHECKING:
    from torch import Tensor

    from app.source.generated import InputSpec


@contextmanager
def aside(seed: int) -> Iterator[None]:
    """Seed the generators of torch, Python and NumPy with `seed`, and restore them afterwards.

    A concurrent run is blocked meanwhile, so use it for one step at a time.
    """
    with borrowed(seed):
        plain, array = random.getstate(), np.random.get_state()
        try:
            random.seed(seed)
            np.random.seed(seed % 2**32)
            yield
        finally:
            random.setstate(plain)
            np.random.set_state(array)


def stepper_of(job: Job, info: DataInfo, device: str) -> Stepper:
    """Set up `job` for a trial, with its seed. Call it within `aside`."""
    training = job.training
    task = task_of(job, info)
    model = initial_module(job.source, training.start).to(device)
    if training.channels_last:
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    stepper = Stepper(
        model, training, task, device, fields_of(job.source, training.inputs, info)
    )
    weigh_classes(stepper, job, info, device)
    return stepper


def synthetic_info(job: Job) -> DataInfo:
    """Return the description of the data without reading them. Raises JobError, DataError."""
    spec: SourceSpec = spec_of(job.data)
    if not spec.is_read:
        raise JobError(
            "The labels are known once the file has been read: choose one under Data."
        )
    size = job.training.batch_size
    return DataInfo(
        spec.key,
        spec.label,
        spec.shape,
        spec.dtype,
        spec.classes,
        size,
        size,
        spec.task,
        max(math.prod(spec.label_shape), 1),
        label_shape=spec.label_shape,
        targets=spec.targets,
        inputs=spec.inputs,
    )


def synthetic_batch(job: Job, info: DataInfo, device: str) -> tuple[Any, Any]:
    """Return a batch of synthetic samples (N, ...) and labels, drawn from torch's global generator."""
    size = job.training.batch_size
    fields = fields_of(job.source, job.training.inputs, info)
    targets = [name for name in fields if name in target_fields(info)]
    if fields:
        infos = {
            field.name: field
            for field in info.inputs or (FieldInfo("", info.input_shape, info.dtype),)
        }
        pairs = [
            (input_spec, infos[name])
            for input_spec, name in zip(job.source.inputs, fields, strict=True)
            if name in infos
        ]
        inputs: Any = Fields(
            {
                field.name: _drawn(input_spec, size, field.shape, field.dtype, 2)
                for input_spec, field in pairs
            }
        )
    else:
        (spec,) = job.source.inputs
        inputs = _drawn(
            spec, size, info.input_shape, info.dtype, max(len(info.classes), 2)
        )

    def label(target: TargetInfo) -> Tensor:
        if target.task == VALUES:
            drawn = torch.rand(size, *target.label_shape)
            return (
                _boxes(drawn, info.input_shape)
                if target.name == "boxes" and drawn.shape[-1:] == (4,)
                else drawn
            )
        return torch.randint(
            0, max(len(target.classes), 1), (size, *target.label_shape)
        )

    labels = synthetic_targets(
        info, inputs, INPUT if input_is_target(job.training) else "", label
    )
    if targets:
        inputs = with_targets(inputs, labels, targets, TARGET)
    return inputs.to(device), labels.to(device)


def _boxes(drawn: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return boxes (..., left, top, right, bottom) in pixels, which torchvision requires to have a size."""
    width, height = (shape[-1], shape[-2]) if len(shape) > 1 else (1, 1)
    corner, size = drawn[..., :2] / 2, drawn[..., 2:] / 2 + 0.1
    return torch.cat([corner, (corner + size).clamp(max=1)], -1) * torch.tensor(
        [width, height] * 2
    )


def _drawn(
    spec: InputSpec, size: int, shape: tuple[int, ...], dtype: str, values: int
) -> Tensor:
    """Return random samples in the range of an input; whole numbers without one are below `values`."""
    kind = getattr(torch, dtype)
    if kind.is_floating_point:
        low, high = spec.low or 0.0, 1.0 if spec.high is None else spec.high
        return torch.rand((size, *shape), dtype=kind) * (high - low) + low
    high = int(spec.high) if spec.high is not None else values
    return torch.randint(int(spec.low or 0), high, (size, *shape)).to(kind)
