"""Measure whether a training step fits into a limit of memory, and the changes that make it fit.

A change is tried by a step of it on synthetic data, with the initial weights of the run: its peak, its time for as many
samples as the batch has, and its gradients beside those without it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from msgspec.structs import replace
from torch import nn

from app.autograd.diagnostics.checkpointing import blocks, gradient_difference
from app.data.fields import Fields
from app.data.loaders import load
from app.features.fit.compute.step_peak import step_peak
from app.features.fit.values import Fit, Plan, StepPeak
from app.training.choices import CLOSURE
from app.training.config import Choice, TrainingConfig
from app.training.error_messages import failure
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
from app.util import module_tree
from app.util.errors import CodedError
from app.util.frozen import FrozenMap
from tapedeck import devices

if TYPE_CHECKING:
    from torch import Tensor

    from app.data.sources import DataInfo
    from app.training.stepper import Stepper

TIMED = 3  # updates, whose median is the time
ENOUGH = 1.0  # second of updates, after which no other is timed
NOISE = 0.1  # of a time: a change that saves less than that is none worth making
MOST_PARTS = 32  # of a batch: as many steps are made to measure one
# Of a parameter's largest gradient, both computed with float64. Sums in another order differ by 1e-12 at most.
EXACT = 1e-6


class FitCancelledError(CodedError):
    """Raised between two measurements where nobody waits for them any more."""


class _Variant(NamedTuple):
    """Training settings, and their changes as `--set` takes them."""

    changes: tuple[str, ...]
    training: TrainingConfig


def fit(
    job: Job,
    limit: int,
    tell: Callable[[int], None] = lambda measured: None,
    cancelled: Callable[[], bool] = lambda: False,
) -> Fit | Failed:
    """Measure a step of `job` and changes of its settings against a limit in bytes.

    Where the memory of the device ends amid the step as it is, all is measured on the CPU. `tell` is called with the
    number of measurements so far. An error of the job itself is returned as the event that a run would end with. Raises
    FitCancelledError, and JobError for a limit below 1.
    """
    if limit < 1:
        raise JobError("The limit must be above 0 bytes.")
    config = replace(job.training, compile=False)
    job = replace(job, training=config, data=replace(job.data, class_weights=False))
    try:
        check_numbers(job)
        info = info_of(job, synthetic_info(job))
        check_input(job, info)
        device = resolve(config.device).id
        try:
            return _fitted(_Trial(job, info, device, tell, cancelled), limit)
        except torch.OutOfMemoryError:
            if device == "cpu":
                raise
        return _fitted(_Trial(job, info, "cpu", tell, cancelled), limit)
    except FitCancelledError:
        raise
    except Exception as error:  # any error is reported like that of a run
        return failure(error, job.source, config.batch_size, 0, 0, kept=False)


def _fitted(trial: _Trial, limit: int) -> Fit:
    """Measure the job of a trial as it is, and its variants. Raises what the net raises as it is."""
    config = trial.job.training
    plain = _Variant((), config)
    with switched(config), cpu_threads(config.threads):
        step = trial.peak(plain)
        seconds = trial.seconds(plain)
        peaks, failed = {plain: step.peak}, []
        for lever in _levers(config, trial.blocks(), trial.device):
            for variant in _tried(lever, config.batch_size, peaks, limit):
                try:
                    peaks[variant] = trial.peak(variant).peak
                except FitCancelledError:
                    raise
                except Exception as error:  # such as a norm of a single sample
                    failed.append(_reason(variant, error))
        plans = _plans(trial, peaks, limit)
    return Fit(
        trial.device,
        config.batch_size,
        limit,
        step.peak,
        step.peak <= limit,
        seconds,
        step.by,
        step.owner,
        step.phase,
        step.scope,
        step.curve,
        plans,
        tuple(failed),
    )


def _tried(
    lever: _Variant, batch: int, peaks: dict[_Variant, int], limit: int
) -> Iterator[_Variant]:
    """Yield a lever without splitting the batch, split as far as it goes, and, where only that fits, what lies between.

    Who takes one puts its peak into `peaks` before the next, unless it fails.
    """
    yield lever
    parts = list(_split(lever, batch))
    if lever not in peaks:
        return
    smallest = lever
    for smallest in reversed(parts):
        yield smallest
        if smallest in peaks:  # a norm in the net does not take a single sample
            break

    def fits(variant: _Variant) -> bool:
        return variant in peaks and peaks[variant] <= limit

    if fits(smallest) and not fits(lever):
        for variant in parts[: parts.index(smallest)]:
            yield variant
            if fits(variant):
                return


def _plans(trial: _Trial, peaks: dict[_Variant, int], limit: int) -> tuple[Plan, ...]:
    """Return the three plans, measuring the time of what fits and the gradients of what is chosen."""
    time_of, difference_of = cache(trial.seconds), cache(trial.difference)

    def plan(name: str, variant: _Variant) -> Plan:
        difference = difference_of(variant)
        return Plan(
            name,
            variant.changes,
            peaks[variant],
            time_of(variant),
            difference <= EXACT,
            peaks[variant] <= limit,
            difference,
            variant.training,
        )

    by_peak = sorted(peaks, key=peaks.__getitem__)
    smallest = by_peak[0]

    def cost(variant: _Variant) -> float:
        return time_of(variant) * (1 + NOISE * bool(variant.changes))

    by_time = sorted(_least_split(peaks, limit), key=cost) or [smallest]
    # The settings as they are among them, which are exact.
    config = trial.job.training
    keeping = [each for each in by_peak if _keeps_batch(each, config)]
    exact = next(
        variant
        for variant in (*by_time, *keeping)
        if variant.training.amp == config.amp and difference_of(variant) <= EXACT
    )
    return plan("fastest", by_time[0]), plan("exact", exact), plan("smallest", smallest)


def _least_split(peaks: dict[_Variant, int], limit: int) -> list[_Variant]:
    """Return the variants that fit; of those that differ in the batch's split alone the one of the fewest parts."""
    least: dict[TrainingConfig, _Variant] = {}
    for variant in peaks:
        lever = replace(variant.training, batch_size=1, accumulate=1)
        other = least.get(lever)
        larger = (
            other is None or variant.training.batch_size > other.training.batch_size
        )
        if peaks[variant] <= limit and larger:
            least[lever] = variant
    return list(least.values())


def _keeps_batch(variant: _Variant, config: TrainingConfig) -> bool:
    """Return whether a variant has the batch and the precision of the settings."""
    training = variant.training
    return (training.batch_size, training.amp) == (config.batch_size, config.amp)


def _reason(variant: _Variant, error: Exception) -> str:
    """Return why a variant could not be measured, in a line."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return f"{', '.join(variant.changes)}: {lines[0]}"


def _levers(
    config: TrainingConfig, model_blocks: list[str], device: str
) -> Iterator[_Variant]:
    """Yield changes of all but the batch, the settings as they are first."""
    plain = _Variant((), config)
    optimizer = config.optimizer
    single = plain
    if _takes_foreach(optimizer):
        params = FrozenMap({**optimizer.params, "foreach": False})
        single = _Variant(
            ("optimizer.params.foreach=false",),
            replace(config, optimizer=replace(optimizer, params=params)),
        )
    bases = [plain] if single is plain else [plain, single]
    yield from bases
    chosen = set(config.recompute)
    halves = [model_blocks[: len(model_blocks) // 2], model_blocks]
    recomputed = [
        tuple(dict.fromkeys((*config.recompute, *half)))
        for half in halves
        if set(half) - chosen
    ]
    if device != "cpu" and not config.save_on_cpu:
        for base in (single, *(_recomputing(single, paths) for paths in recomputed)):
            yield _with(base, "save_on_cpu=true", save_on_cpu=True)
    narrow = [] if config.amp else ["bfloat16"]
    for paths in recomputed:
        yield _recomputing(single, paths)
    for dtype in narrow:
        yield _with(single, f"amp={dtype}", amp=dtype)
        for paths in recomputed[-1:]:
            both = _recomputing(single, paths)
            yield _with(both, f"amp={dtype}", amp=dtype)


def _recomputing(base: _Variant, paths: tuple[str, ...]) -> _Variant:
    listed = json.dumps(paths, separators=(",", ":"))
    return _with(base, f"recompute={listed}", recompute=paths)


def _with(base: _Variant, change: str, **values: Any) -> _Variant:
    return _Variant((*base.changes, change), replace(base.training, **values))


def _takes_foreach(optimizer: Choice) -> bool:
    """Return whether an optimizer of torch has a foreach implementation, which its parameters do not choose."""
    kind = getattr(torch.optim, optimizer.name, None)
    return kind is not None and (
        "foreach" in kind.__init__.__annotations__
        and "foreach" not in optimizer.params
        and not optimizer.params.get("fused")
    )


def _split(levers: _Variant, batch: int) -> Iterator[_Variant]:
    """Yield a variant with its batch in more and more parts whose gradients are accumulated."""
    if levers.training.optimizer.name == CLOSURE:
        return
    parts = 1
    for divisor in range(2, min(batch, MOST_PARTS) + 1):
        if batch % divisor == 0 and divisor >= 2 * parts:
            parts = divisor
            yield _with(
                _with(
                    levers, f"batch_size={batch // parts}", batch_size=batch // parts
                ),
                f"accumulate={levers.training.accumulate * parts}",
                accumulate=levers.training.accumulate * parts,
            )


class _Trial:
    """Measures variants of a job on a synthetic batch; each begins with the initial weights."""

    def __init__(
        self,
        job: Job,
        info: DataInfo,
        device: str,
        tell: Callable[[int], None],
        cancelled: Callable[[], bool],
    ) -> None:
        self.job, self._info, self.device = job, info, device
        self._tell, self._cancelled, self._count = tell, cancelled, 0
        self._gradients_as_is: list[Tensor | None] = []
        self._widest = devices.widest_float(torch.device(device).type)
        # A run keeps its data on an accelerator, where the allocator counts them.
        self._data = (
            prepared(job, load(job.data, job.data_root)).to(device)
            if device != "cpu"
            else None
        )

    def blocks(self) -> list[str]:
        """Return the innermost blocks of the net, those worth a checkpoint."""
        with aside(self.job.training.seed):
            model = stepper_of(self.job, self._info, self.device).model
        # Attention of torch is part of a block, and recomputing it alone frees little.
        paths = [
            path
            for path in blocks(model)
            if not isinstance(module_tree.submodule(model, path), nn.MultiheadAttention)
        ]
        return [
            path
            for path in paths
            if not any(other.startswith(f"{path}.") for other in paths)
        ]

    def peak(self, variant: _Variant) -> StepPeak:
        """Measure the memory of an update of the weights. Raises what the net raises."""
        training = variant.training
        with self._begun(training, training.batch_size) as (stepper, batches):
            _update(stepper, batches)  # makes the state of the optimizer
            # Two batches are enough: gradients that wait while another batch is computed.
            count = min(training.accumulate, 2)
            return step_peak(stepper, count * batches, self.device, self.job.source)

    def seconds(self, variant: _Variant) -> float:
        """Measure the time of an update of the weights, for as many samples as the batch of the job has."""
        with self._begun(variant.training) as (stepper, batches):
            _update(stepper, batches[:1])
            seconds: list[float] = []
            while len(seconds) < TIMED and sum(seconds) < ENOUGH:
                devices.synchronize(self.device)
                began = perf_counter()
                _update(stepper, batches)
                devices.synchronize(self.device)
                seconds.append(perf_counter() - began)
        return median(seconds)

    def difference(self, variant: _Variant) -> float:
        """Compare the gradients of the first update with those of the job as it is."""
        if variant.training == self.job.training:
            return 0.0
        if not self._gradients_as_is:
            try:
                self._gradients_as_is = self._gradients(self.job.training)
            except (RuntimeError, TypeError):  # a net that casts to a fixed dtype
                self._widest = torch.float32
                self._gradients_as_is = self._gradients(self.job.training)
        return gradient_difference(
            self._gradients_as_is, self._gradients(variant.training)
        )

    def _gradients(self, training: TrainingConfig) -> list[Tensor | None]:
        """Return the gradients of the first update, computed with float64 where device and net take it and the settings
        narrow nothing: what is left of a difference then is no rounding."""
        with self._begun(replace(training, ema=None)) as (stepper, batches):
            if not training.amp and self._widest is not torch.float32:
                for module in (stepper.model, stepper.loss):
                    module.to(self._widest)
                batches = [
                    (_widened(inputs, self._widest), _widened(labels, self._widest))
                    for inputs, labels in batches
                ]
            gradients = _Gradients(stepper)
            _update(stepper, batches, gradients)
        return gradients.first

    @contextmanager
    def _begun(
        self, training: TrainingConfig, samples: int | None = None
    ) -> Iterator[tuple[Stepper, list[tuple[Any, Any]]]]:
        """Set up a step of the job with other settings, and `samples`, as many as its batch has if None, in batches of
        their size."""
        if self._cancelled():
            raise FitCancelledError
        size = training.batch_size
        count = samples or self.job.training.batch_size
        drawn = replace(self.job.training, batch_size=count)
        with aside(training.seed):
            job = replace(self.job, training=training)
            stepper = stepper_of(job, self._info, self.device)
            stepper.model.train()
            inputs, labels = synthetic_batch(
                replace(self.job, training=drawn), self._info, self.device
            )
            yield (
                stepper,
                [
                    (inputs[start : start + size], labels[start : start + size])
                    for start in range(0, count, size)
                ],
            )
        self._count += 1
        self._tell(self._count)


def _widened(fields: Any, dtype: torch.dtype) -> Any:
    """Return inputs or labels with their floating-point numbers in `dtype`."""
    if isinstance(fields, Fields):
        return Fields(
            {name: _widened(tensor, dtype) for name, tensor in fields.parts.items()}
        )
    return fields.to(dtype) if fields.is_floating_point() else fields


def _update(
    stepper: Stepper,
    batches: list[tuple[Any, Any]],
    gradients: _Gradients | None = None,
) -> None:
    for number, (inputs, labels) in enumerate(batches):
        stepper.take(inputs, labels, number == len(batches) - 1, gradients)


class _Gradients:
    """An observer that copies the gradients of an update to the CPU before the optimizer's step."""

    def __init__(self, stepper: Stepper) -> None:
        self._model = stepper.model
        self.first: list[Tensor | None] = []

    def forward_done(self, _loss: Tensor) -> None:
        """Keep nothing of the forward pass."""

    def hash_gradients(self) -> None:
        """Hash nothing: the step is not recomputed."""

    def measure(self) -> None:
        self.first = [
            None
            if parameter.grad is None
            else parameter.grad.detach().to("cpu", copy=True)
            for parameter in module_tree.parameters(self._model)
        ]
