"""An estimate of a run's memory, and a snapshot of an allocator, as they are asked of an engine."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from app.engine.protocol import Request
from app.training.job import Job
from app.training.monitoring.memory_report import MemoryReport
from app.util.errors import CodedError


class EstimateMemory(Request[MemoryReport], frozen=True):
    """Estimate the memory of a training step. Raises DataError if the data cannot be read."""

    lane: ClassVar[str] = "memory"
    job: Job


class SnapshotError(CodedError):
    """Raised for a file that is no snapshot of an allocator; the text is a sentence."""


class AllocationSite(Struct, frozen=True):
    """A line that allocated memory: the innermost one outside torch, and in `inside` the one of torch that it called.

    `size` are the bytes in use when the snapshot was taken, in `blocks`; `peak` those at the most that was in use. The
    path is "" for what was allocated before the recording began.
    """

    path: str
    line: int
    function: str
    inside: str
    size: int
    blocks: int
    peak: int


class OutOfMemory(Struct, frozen=True):
    """An allocation that failed: the bytes that were wanted, those that the device had left, and the line."""

    size: int
    device_free: int
    path: str
    line: int
    function: str


class DeviceSnapshot(Struct, frozen=True):
    """The memory of a device: bytes reserved, in use, the largest free block, and the most in use over the recording.

    `curve` are the bytes in use after the events of the recording, evenly thinned.
    """

    device: int
    reserved: int
    in_use: int
    largest_free: int
    peak: int
    events: int
    curve: tuple[int, ...]
    sites: tuple[AllocationSite, ...]
    out_of_memory: tuple[OutOfMemory, ...]


class ReadSnapshot(Request[tuple[DeviceSnapshot, ...]], frozen=True):
    """Read a snapshot of an allocator from a file. Progress is the share that was read. Raises SnapshotError."""

    lane: ClassVar[str] = "memory"
    path: str
