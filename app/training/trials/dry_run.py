"""Dry run: two steps and one validation batch on synthetic data, without downloading or reading real data.

It checks that net, loss, optimizer and settings work together on the device, and measures time and memory of a step.
"""

from __future__ import annotations

import math
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch
from msgspec.structs import replace

from app.data.fields import Fields
from app.data.sources import DataInfo, SourceSpec, spec_of
from app.data.spec import VALUES, FieldInfo, TargetInfo
from app.data.targets import synthetic_targets, with_targets
from app.telemetry import memory
from app.training.config import INPUT, TARGET
from app.training.error_messages import failure
from app.training.evaluation.validation import evaluate
from app.training.events import Failed
from app.training.inputs import fields_of, target_fields
from app.training.job import Job, JobError, check_input, check_numbers
from app.training.objectives import info_of, input_is_target
from app.training.setup.devices import resolve
from app.training.setup.torch_flags import cpu_threads, switched
from app.training.trials.isolated import aside, stepper_of
from app.training.trials.results import DryRun

if TYPE_CHECKING:
    from torch import Tensor

    from app.source.generated import InputSpec
    from app.training.stepper import Stepper

STEPS = 2


def dry_run(job: Job) -> DryRun | Failed:
    """Run a complete training step on synthetic data; errors are returned as the event that a run would end with. What
    goes wrong comes back as the event that a run would end with.
    """
    step = 0
    try:
        check_numbers(job)
        info = info_of(job, synthetic_info(job))
        check_input(job, info)
        resolved = resolve(job.training.device)
        config = replace(job.training, compile=False)
        job = replace(job, training=config, data=replace(job.data, class_weights=False))
        with switched(config), cpu_threads(config.threads), aside(config.seed):
            meter = _Meter(resolved.id)
            stepper = stepper_of(job, info, resolved.id)
            inputs, labels = synthetic_batch(job, info, resolved.id)
            stepper.model.train()
            losses, seconds = [], []
            for _ in range(STEPS):
                began = meter.now()
                batch = stepper.take(inputs, labels, True, meter)
                losses.append(float(batch.loss))
                meter.update_peak()
                seconds.append(meter.now() - began)
                step += 1
            began = meter.now()
            _validate(stepper, inputs, labels)
            validation = meter.now() - began
            grown, scope = meter.most()
    except Exception as error:  # any error is reported like that of a run
        return failure(error, job.source, job.training.batch_size, 0, step, kept=False)
    shape = info.input_shape
    return DryRun(
        resolved.id,
        resolved.note or "",
        config.batch_size,
        shape,
        tuple(losses),
        tuple(seconds),
        validation,
        grown,
        scope,
    )


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


def _validate(stepper: Stepper, inputs: Tensor, labels: Tensor) -> None:
    evaluate(stepper, [(inputs, labels)])


class _Meter:
    """Clock and peak memory of a device."""

    def __init__(self, device: str) -> None:
        self._device = device
        if device.startswith("cuda"):
            torch.cuda.synchronize(device)
            torch.cuda.reset_peak_memory_stats(device)
        self._first = self._read()
        self._most = self._first

    def now(self) -> float:
        """Return the time in seconds, after synchronising the device."""
        if self._device.startswith("cuda"):
            torch.cuda.synchronize(self._device)
        elif self._device == "mps":
            torch.mps.synchronize()
        return perf_counter()

    def _read(self) -> int | None:
        reading = memory.read(self._device)
        return (
            reading.resident
            if reading.scope == "process"
            else reading.peak or reading.allocated
        )

    def update_peak(self) -> None:
        """Remember how much it is now, if that is the most."""
        now = self._read()
        if now is not None and self._most is not None:
            self._most = max(self._most, now)

    def forward_done(self, _loss: Tensor) -> None:
        self.update_peak()

    def hash_gradients(self) -> None:
        """Hash nothing: no step of a dry run is recomputed."""

    def measure(self) -> None:
        self.update_peak()

    def most(self) -> tuple[int | None, str]:
        """Return the peak in bytes: total on a device, growth of the process on the CPU."""
        self.update_peak()
        scope = memory.read(self._device).scope
        if self._most is None or self._first is None:
            return None, scope
        return (self._most if scope == "device" else self._most - self._first), scope
