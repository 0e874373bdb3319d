"""What a training step takes at its peak, and plans that take less, as values."""

from __future__ import annotations

import re
from typing import ClassVar

from msgspec import Struct

from app.engine.protocol import Request
from app.training.config import TrainingConfig
from app.training.events import Failed
from app.training.job import Job

UNITS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}


def memory_limit(text: str) -> int:
    """Return bytes, such as 8GiB, 512M or 1e9; units are binary. Raises ValueError with a sentence.

    >>> memory_limit("8 GiB") == 8 << 30, memory_limit("4096")
    (True, 4096)
    """
    match = re.fullmatch(
        r"([0-9]+(?:\.[0-9]+)?(?:e[0-9]{1,2})?)\s*([kmgt]?)(?:i?b)?",
        text.strip().lower(),
    )
    size = float(match[1]) * (1 << UNITS[match[2]]) if match else 0
    if not 1 <= size < 2**63:
        raise ValueError(
            f"{text:.40} is no amount of memory; write 8GiB, 512MiB or a number of bytes"
        )
    return int(size)


class PeakBytes(Struct, frozen=True):
    """Bytes at the peak of a step, by kind. Buffers and the average of the weights count as parameters.

    `saved` is what autograd saved for backward, `temporary` all else: batches, data on a device, outputs, gradients
    under way, what the optimizer computes with, copies of the parameters from which a run measures their updates.
    """

    parameters: int = 0
    gradients: int = 0
    optimizer: int = 0
    saved: int = 0
    temporary: int = 0


class StepPeak(Struct, frozen=True):
    """The peak of a step in bytes, and `curve`: the bytes after each of its operations, evenly thinned.

    `owner` is the layer whose operation made the peak, "" for none, in `phase` "forward", "backward" or "optimizer". By
    `scope` "device" the peak is the allocator's; by "operations" it is counted at torch's operations, without a
    kernel's own workspace.
    """

    peak: int
    by: PeakBytes
    owner: str
    phase: str
    curve: tuple[int, ...]
    scope: str


class Plan(Struct, frozen=True):
    """Changes of the settings, and what a step with them took. `step_seconds` is for the batch as it is without them.

    `difference` is the largest between its gradients and those without the changes, relative to the largest of each
    parameter, both computed with float64 unless the settings narrow that; `exact` tells that it is rounding.
    `training` are the changed settings.
    """

    name: str
    changes: tuple[str, ...]
    peak: int
    step_seconds: float
    exact: bool
    fits: bool
    difference: float
    training: TrainingConfig


class Fit(Struct, frozen=True):
    """What a step takes against a limit of `memory` bytes.

    `plans` are the fastest that fits, the fastest of those that fit and are exact, and the one that takes least; where
    none fits, what comes nearest. `failed` are changes that could not be measured, and why.
    """

    device: str
    batch: int
    memory: int
    peak: int
    fits: bool
    step_seconds: float
    by: PeakBytes
    owner: str
    phase: str
    scope: str
    curve: tuple[int, ...]
    plans: tuple[Plan, ...]
    failed: tuple[str, ...] = ()


class WillItFit(Request[Fit | Failed], frozen=True):
    """Measure a step of a job and plans for it, see `compute.plans.fit`. Progress is the number of measurements."""

    lane: ClassVar[str] = "trials"
    job: Job
    memory: int
