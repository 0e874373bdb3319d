"""Length of a run and of its schedule, in epochs and in optimizer steps, and the rate over it."""

from __future__ import annotations

import math

from msgspec import Struct
from msgspec.structs import replace

from app.training.config import Schedule, TrainingConfig
from app.util.frozen import FrozenMap

ONCE_A_STEP = ("OneCycleLR", "CyclicLR")
# The parameter with a schedule's length.
LENGTHS = {
    "CosineAnnealingLR": "T_max",
    "OneCycleLR": "total_steps",
    "PolynomialLR": "total_iters",
}


class Span(Struct, frozen=True):
    """Length of a run: its epochs, and its optimizer steps, None if the data's size is unknown."""

    epochs: int
    steps: int | None

    def moves(self, per: str) -> int | None:
        """Return the number of schedule steps."""
        return self.epochs if per == "epoch" else self.steps


def span(config: TrainingConfig, samples: int | None, drop_last: bool = False) -> Span:
    """Return the length of a run over a number of training samples, ignoring early limits.

    >>> span(TrainingConfig(epochs=3, batch_size=64, accumulate=4), 1438)
    Span(epochs=3, steps=18)
    >>> span(TrainingConfig(epochs=30, batch_size=64, max_steps=100), 640)
    Span(epochs=10, steps=100)
    """
    if config.one_batch:
        samples = config.batch_size
    if samples is None:
        return Span(config.epochs, None)
    batches = max(
        samples // config.batch_size
        if drop_last
        else math.ceil(samples / config.batch_size),
        1,
    )
    updates = math.ceil(batches / config.accumulate)
    if config.max_steps is None or config.max_steps >= config.epochs * batches:
        return Span(config.epochs, config.epochs * updates)
    epochs, rest = divmod(config.max_steps, batches)
    return Span(
        epochs + (rest > 0), epochs * updates + math.ceil(rest / config.accumulate)
    )


def fitted(schedule: Schedule, length: Span) -> Schedule | None:
    """Return the schedule fitted to the length of the run; None if it is already, or has no length."""
    name = LENGTHS.get(schedule.choice.name)
    moves = length.moves(schedule.per)
    if (
        name is None or moves is None or schedule.warmup >= moves
    ):  # no part of the run is left for it
        return None
    target_moves = moves - schedule.warmup
    params = schedule.choice.params
    if schedule.choice.name == "OneCycleLR" and params.get("total_steps") is None:
        factors = params.get("epochs"), params.get("steps_per_epoch")
        has = (
            factors[0] * factors[1]
            if all(type(factor) is int for factor in factors)
            else None
        )
    else:
        has = params.get(name, 5 if name == "total_iters" else None)
    if has == target_moves:
        return None
    params = params.set(name, target_moves)
    if schedule.choice.name == "OneCycleLR":
        params = params.without("epochs").without("steps_per_epoch")
    return replace(schedule, choice=replace(schedule.choice, params=FrozenMap(params)))


class RatePreview(Struct, frozen=True):
    """The rate of the main parameter group after each move; `per` is what moves it.

    `words` explains a missing or partial preview.
    """

    rates: tuple[float, ...] = ()
    per: str = "epoch"
    words: str = ""
