"""Learning rate range test (Smith 2015): a few batches with an increasing rate.

It trains a separate net on the project's real data and affects neither a concurrent run nor the project.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING

import torch
from msgspec.structs import replace

from app.data.loaders import load
from app.training.job import Job, JobError, check_input, check_numbers
from app.training.objectives import prepared
from app.training.setup.devices import resolve
from app.training.trials.isolated import aside, stepper_of
from app.training.trials.results import BATCHES, HIGHEST, LOWEST, RateTest

if TYPE_CHECKING:
    from torch import Tensor

PAST = 0.85  # of the smoothed loss
TOO_HIGH = 4.0  # times the best smoothed loss: divergence
BEGINNING = 5  # batches until the smoothed loss has settled


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
