"""What comes of a dry run and of a learning rate range test."""

from __future__ import annotations

from dataclasses import dataclass

LOWEST, HIGHEST, BATCHES = 1e-6, 1.0, 100


@dataclass(frozen=True)
class DryRun:
    """What was measured. Seconds are of the first step, which makes the optimizer's state and warms up, and the second.

    `memory` is in bytes: with `scope` "device" the most that torch had allocated there at once, with "process" how much
    the process has grown at the most; None where the device does not tell.
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


@dataclass(frozen=True)
class RateTest:
    """`losses` is the loss of the batch that was taken with each of `rates`, `smoothed` its moving average.

    `suggested` is the rate at which the smoothed loss falls most steeply, None where it does not fall. `ended` says why
    there are fewer rates than were asked for.
    """

    rates: tuple[float, ...]
    losses: tuple[float, ...]
    smoothed: tuple[float, ...]
    suggested: float | None
    ended: str = ""
