"""Requests: the state of an engine, and an estimate of a run's memory."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from app.engine.protocol import Request
from app.training.job import Job
from app.training.monitoring.memory_report import MemoryReport


class Vitals(Struct, frozen=True):
    """`memory` is resident memory in bytes, `kept` the number of objects held under handles."""

    pid: int
    memory: int | None
    kept: int


class Measure(Request[Vitals], frozen=True):
    """How the engine fares."""

    lane: ClassVar[str] = "measure"


class EstimateMemory(Request[MemoryReport], frozen=True):
    """Estimate the memory of a training step. Raises DataError if the data cannot be read."""

    lane: ClassVar[str] = "memory"
    job: Job
