"""Requests to a running run between two steps, as values; `monitoring.answers` answers them in its process."""

from __future__ import annotations

from typing import Generic, TypeVar

from app.training.monitoring.looks import BatchPeek, LayerInside, StepProfile
from app.training.monitoring.memory_report import MemoryReport
from app.training.surgery.values import Outcome, Surgery
from app.util.late_dataclass import dataclass

T = TypeVar("T")


class RunRequest(Generic[T]):
    """Ask for a T."""


@dataclass(frozen=True)
class SetRate(RunRequest[float]):
    """Set the learning rate of one parameter group, "" is the main one; the others keep theirs.

    The answer is the previous rate. ValueError for an unknown group.
    """

    rate: float
    group: str = ""


@dataclass(frozen=True)
class Operate(RunRequest[Outcome]):
    """Replace the run's net by an edited one before the next step; the answer reports each layer.

    SurgeryError if that is not possible; the run is as it was then.
    """

    surgery: Surgery


@dataclass(frozen=True)
class LookInside(RunRequest[LayerInside]):
    """Return the activations of one layer for one sample of the training data, at this moment of the run."""

    layer: str
    sample: int


@dataclass(frozen=True)
class ShowCaught(RunRequest[BatchPeek | None]):
    """Return the batch at which a watch point paused the run; None if none has."""


@dataclass(frozen=True)
class TellMemory(RunRequest[MemoryReport]):
    """Measure the memory of a step on a batch of the run; with `empty`, the allocator's caches are emptied first."""

    empty: bool = False


@dataclass(frozen=True)
class WriteSnapshot(RunRequest[None]):
    """Save a snapshot of CUDA's allocator to a file, for pytorch.org/memory_viz. OSError if it cannot be written."""

    path: str


@dataclass(frozen=True)
class ProfileStep(RunRequest[StepProfile]):
    """Profile a step on a batch of the run; with `trace`, save the trace to that file as well.

    OSError if it cannot be written.
    """

    trace: str = ""
