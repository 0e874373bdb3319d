"""Serialisable requests to a running run, locally or in another process."""

from __future__ import annotations

import math
from dataclasses import dataclass

from app.telemetry import gpu
from app.training.monitoring import activations, memory_report, snapshots, step_profile
from app.training.monitoring.live_model import Live
from app.training.monitoring.looks import LayerInside


@dataclass(frozen=True)
class SetRate:
    """Go on with this learning rate of one parameter group, "" is the main one; the others keep theirs."""

    rate: float
    group: str = ""

    def __call__(self, live: Live) -> float:
        """Set it; returns the rate that was in force before. Raises ValueError for a group that there is not."""
        rates = live.stepper.rates
        before = dict(zip(rates.names, rates.all, strict=True)).get(self.group or rates.names[0], math.nan)
        live.stepper.set_rate(self.rate, self.group)
        return before


@dataclass(frozen=True)
class LookInside:
    """Return the activations of one layer for one sample of the training data."""

    layer: str
    sample: int

    def __call__(self, live: Live) -> LayerInside:
        """The layer as it is at this moment of the run."""
        return activations.of_run(live, self.layer, self.sample)


@dataclass(frozen=True)
class ShowCaught:
    """Return the batch at which a watch point paused the run."""

    def __call__(self, live: Live) -> snapshots.BatchPeek | None:
        """None if none has."""
        return snapshots.caught_batch(live)


@dataclass(frozen=True)
class TellMemory:
    """Measure what a step holds. With `empty`, the caches of the allocator are given back first."""

    empty: bool = False

    def __call__(self, live: Live) -> memory_report.MemoryReport:
        """Measured on a batch of the run."""
        if self.empty:
            gpu.empty_cache(live.device)
        from app.training.monitoring import measured_memory

        return measured_memory.of_run(live)


@dataclass(frozen=True)
class WriteSnapshot:
    """Save a snapshot of CUDA's allocator to a file, for pytorch.org/memory_viz."""

    path: str

    def __call__(self, _live: Live) -> None:
        """Raises OSError."""
        gpu.write_snapshot(self.path)


@dataclass(frozen=True)
class ProfileStep:
    """Profile a step; with `trace`, save the trace to that file as well. With `trace`, write what was seen to that file
    as well.
    """

    trace: str = ""

    def __call__(self, live: Live) -> step_profile.StepProfile:
        """Measured on a batch of the run. Raises OSError."""
        return step_profile.of_run(live, self.trace)
