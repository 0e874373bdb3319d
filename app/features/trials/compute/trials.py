"""What is tried before a run, on a separate net: it affects neither a concurrent run nor the project.

Dry run: two steps and one validation batch on synthetic data, without downloading or reading real data. It checks that
net, loss, optimizer and settings work together on the device, and measures time and memory of a step.

Learning rate range test (Smith 2015): a few batches of the project's real data with an increasing rate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator
from time import perf_counter
from typing import TYPE_CHECKING, TypeVar

import torch
from msgspec.structs import replace

from app.data.loaders import load
from app.features.trials.compute.layer_times import layer_times
from app.features.trials.values import (
    BATCHES,
    HIGHEST,
    LOWEST,
    DryRun,
    LayerTimes,
    RateTest,
)
from app.telemetry import memory
from app.training.error_messages import failure
from app.training.evaluation.validation import evaluate
from app.training.events import Failed
from app.training.job import Job, JobError, check_input, check_numbers
from app.training.objectives import info_of, prepared
from app.training.setup.devices import resolve
from app.training.setup.isolated_step import (
    aside,
    stepper_of,
    synthetic_batch,
    synthetic_info,
)
from app.training.setup.torch_flags import cpu_threads, switched
from tapedeck import devices

if TYPE_CHECKING:
    from torch import Tensor

    from app.data.spec import DataInfo

T = TypeVar("T")
STEPS = 2
PAST = 0.85  # of the smoothed loss
TOO_HIGH = 4.0  # times the best smoothed loss: divergence
BEGINNING = 5  # batches until the smoothed loss has settled


def dry_run(job: Job, layers: bool = False) -> DryRun | Failed:
    """Run a complete training step on synthetic data; errors are returned as the event that a run would end with.

    With `layers` further steps tell how long each layer takes.
    """

    def tried(trial: _Trial) -> DryRun:
        meter = trial.meter
        losses, seconds = [], []
        for _ in range(STEPS):
            began = meter.now()
            losses.append(trial.step())
            seconds.append(meter.now() - began)
        began = meter.now()
        evaluate(trial.stepper, [(trial.inputs, trial.labels)])
        validation = meter.now() - began
        grown, scope = meter.most()
        return DryRun(
            trial.device.id,
            trial.device.note or "",
            job.training.batch_size,
            trial.shape,
            tuple(losses),
            tuple(seconds),
            validation,
            grown,
            scope,
            trial.times() if layers else None,
        )

    return _on_synthetic_data(job, tried)


def timed(
    job: Job, cancelled: Callable[[], bool] = lambda: False
) -> LayerTimes | Failed:
    """Measure how long each layer takes in a step on synthetic data; errors are returned as by `dry_run`."""

    def times(trial: _Trial) -> LayerTimes:
        trial.step()  # which creates the optimizer's state
        return trial.times(cancelled)

    return _on_synthetic_data(job, times)


def _on_synthetic_data(job: Job, tried: Callable[[_Trial], T]) -> T | Failed:
    """Return what a trial on synthetic data gives, or the event that a run would end with."""
    trial: _Trial | None = None
    try:
        check_numbers(job)
        info = info_of(job, synthetic_info(job))
        check_input(job, info)
        config = replace(job.training, compile=False)
        job = replace(job, training=config, data=replace(job.data, class_weights=False))
        with switched(config), cpu_threads(config.threads), aside(config.seed):
            trial = _Trial(job, info)
            return tried(trial)
    except Exception as error:  # any error is reported like that of a run
        steps = trial.steps if trial is not None else 0
        return failure(error, job.source, job.training.batch_size, 0, steps, kept=False)


class _Trial:
    """A stepper in train mode, and a synthetic batch on its device; `steps` were taken."""

    def __init__(self, job: Job, info: DataInfo) -> None:
        self.device = resolve(job.training.device)
        self.meter = _Meter(self.device.id)
        self.shape = info.input_shape
        self.stepper = stepper_of(job, info, self.device.id)
        self.inputs, self.labels = synthetic_batch(job, info, self.device.id)
        self.stepper.model.train()
        self.steps = 0

    def step(self) -> float:
        """Take a step and return its loss."""
        batch = self.stepper.take(self.inputs, self.labels, True, self.meter)
        loss = float(batch.loss)
        self.meter.update_peak()
        self.steps += 1
        return loss

    def times(self, cancelled: Callable[[], bool] = lambda: False) -> LayerTimes:
        """Measure the time of each layer in train mode."""
        self.stepper.model.train()
        return layer_times(
            self.stepper, self.inputs, self.labels, self.device.id, cancelled
        )


class _Meter:
    """Clock and peak memory of a device."""

    def __init__(self, device: str) -> None:
        self._device = device
        devices.synchronize(device)
        devices.forget_peak(device)
        self._first = self._read()
        self._most = self._first

    def now(self) -> float:
        """Return the time in seconds, after synchronising the device."""
        devices.synchronize(self._device)
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


def rate_test(
    job: Job,
    lowest: float = LOWEST,
    highest: float = HIGHEST,
    batches: int = BATCHES,
    tell: Callable[[int, int], None] = lambda done, total: None,
    cancelled: Callable[[], bool] = lambda: False,
) -> RateTest:
    """Train on `batches` batches, the first with `lowest`, the last with `highest`, evenly on a log scale.

    `tell(done, total)` is called after every batch. Groups keep their proportion; schedule, EMA and accumulation are
    disabled. Raises JobError, DataError, ChoiceError and what torch raises.
    """
    check_numbers(job)
    if not 0 < lowest < highest or not math.isfinite(highest):
        raise JobError(
            f"The rates go from {lowest:g} to {highest:g}; both must be above 0 and increasing."
        )
    if batches < 2 * BEGINNING:
        raise JobError(f"{batches} batches are too few; use {2 * BEGINNING} or more.")
    plain = replace(job.training, schedule=None, ema=None, accumulate=1, compile=False)
    job = replace(job, training=plain)
    device = resolve(plain.device).id
    data = prepared(job, load(job.data, job.data_root))
    check_input(job, data.info)
    data = data.to(device)
    with aside(plain.seed):
        stepper = stepper_of(job, data.info, device)
    if not stepper.rate > 0:
        raise JobError(
            f"{plain.optimizer.name} has no initial learning rate above 0; set its lr."
        )
    stepper.model.train()
    reader = data.train.batches(
        _chunks(data.info.train_count, plain.batch_size, plain.seed, device)
    )
    rates: list[float] = []
    losses: list[float] = []
    smoothed: list[float] = []
    ended = ""
    try:
        for number in range(batches):
            if cancelled():
                ended = "stopped"
                break
            rate = lowest * (highest / lowest) ** (number / (batches - 1))
            with aside(plain.seed + 1 + number):
                inputs, labels = next(reader)
                stepper.rates.scale(rate)
                loss = float(stepper.take(inputs, labels, True).loss)
            if not math.isfinite(loss):
                ended = f"The loss is {loss} at a rate of {rate:.2g}."
                break
            rates.append(rate)
            losses.append(loss)
            before = smoothed[-1] if smoothed else loss
            mean = before + (1 - PAST) * (
                loss - before
            )  # a constant loss stays itself, bit by bit
            smoothed.append(mean)
            tell(number + 1, batches)
            if number >= 2 * BEGINNING and mean > TOO_HIGH * max(min(smoothed), 1e-8):
                ended = f"The loss diverged at a rate of {rate:.2g}."
                break
    finally:
        if isinstance(reader, Generator):
            reader.close()  # workers that read ahead end here
    return RateTest(
        tuple(rates), tuple(losses), tuple(smoothed), steepest(rates, smoothed), ended
    )


def _chunks(count: int, size: int, seed: int, device: str) -> Iterator[Tensor]:
    """Yield the sample indices of each batch, epoch after epoch."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        order = torch.randperm(count, generator=generator).to(device)
        full_chunks = [chunk for chunk in order.split(size) if len(chunk) == size]
        yield from full_chunks or [order]


def steepest(rates: list[float], smoothed: list[float]) -> float | None:
    """Return the rate of the steepest descent of the loss over the log of the rate, before its minimum.

    >>> steepest([10.0**e for e in range(-8, 2)], [9, 9, 9, 9, 9, 9, 5, 4, 4, 8])
    0.01
    """
    if len(smoothed) <= BEGINNING:
        return None
    least = min(range(len(smoothed)), key=smoothed.__getitem__)
    steps = range(BEGINNING, least)
    if least <= BEGINNING or smoothed[least] > 0.99 * smoothed[0]:
        return None
    slopes = {
        at: (smoothed[at + 1] - smoothed[at - 1])
        / math.log(rates[at + 1] / rates[at - 1])
        for at in steps
    }
    return rates[min(slopes, key=slopes.__getitem__)]
