"""Requests to a running run between two steps, as values; `monitoring.answers` answers them in its process."""

from __future__ import annotations

from typing import Generic, TypeVar

from msgspec import Struct

from app.training.monitoring.looks import BatchPeek, LayerInside, StepProfile
from app.training.monitoring.memory_report import MemoryReport
from app.training.surgery.values import Outcome, Surgery

T = TypeVar("T")


class RunRequest(Struct, Generic[T], frozen=True):
    """Ask for a T."""


class SetRate(RunRequest[float], frozen=True):
    """Set the learning rate of one parameter group, "" is the main one; the others keep theirs.

    The answer is the previous rate. ValueError for an unknown group.
    """

    rate: float
    group: str = ""


class Operate(RunRequest[Outcome], frozen=True):
    """Replace the run's net by an edited one before the next step; the answer reports each layer.

    SurgeryError if that is not possible; the run is as it was then.
    """

    surgery: Surgery


class LookInside(RunRequest[LayerInside], frozen=True):
    """Return the activations of one layer for one sample of the training data, at this moment of the run."""

    layer: str
    sample: int


class ShowCaught(RunRequest[BatchPeek | None], frozen=True):
    """Return the batch at which a watch point paused the run; None if none has."""


class TellMemory(RunRequest[MemoryReport], frozen=True):
    """Measure the memory of a step on a batch of the run; with `empty`, the allocator's caches are emptied first."""

    empty: bool = False


class WriteSnapshot(RunRequest[bool], frozen=True):
    """Save a snapshot of the device's allocator to a file, for pytorch.org/memory_viz; False if the device has none.
    OSError if it cannot be written.
    """

    path: str


class ProfileStep(RunRequest[StepProfile], frozen=True):
    """Profile a step on a batch of the run; with `trace`, save the trace to that file as well.

    OSError if it cannot be written.
    """

    trace: str = ""
