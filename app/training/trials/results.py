"""Results of a dry run and of a learning rate range test."""

from __future__ import annotations

from msgspec import Struct

LOWEST, HIGHEST, BATCHES = 1e-6, 1.0, 100


class DryRun(Struct, frozen=True):
    """Measurements of a dry run. Seconds are of the first step, which creates the optimizer's state and warms up, and
    the second.

    `memory` is in bytes: with `scope` "device" torch's peak allocation, with "process" the peak growth of the process;
    None if unknown.
    """

    device: str
    note: str
    batch_size: int
    input_shape: tuple[int, ...]
    losses: tuple[float, ...]
    seconds: tuple[float, ...]
    validation_seconds: float
    memory: int | None
    scope: str


class RateTest(Struct, frozen=True):
    """`losses` are the batch losses at each of `rates`, `smoothed` their moving average.

    `suggested` is the rate at which the smoothed loss falls most steeply, None if it does not fall. `ended` explains an
    early end.
    """

    rates: tuple[float, ...]
    losses: tuple[float, ...]
    smoothed: tuple[float, ...]
    suggested: float | None
    ended: str = ""
