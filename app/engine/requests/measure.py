"""Requests: the state of an engine, and an estimate of a run's memory."""

from __future__ import annotations

from typing import ClassVar

from app.engine.protocol import Request
from app.training.job import Job
from app.training.monitoring.memory_report import MemoryReport
from app.util.late_dataclass import dataclass


@dataclass(frozen=True)
class Vitals:
    """`memory` is resident memory in bytes, `kept` the number of objects held under handles."""

    pid: int
    memory: int | None
    kept: int


@dataclass(frozen=True)
class Measure(Request[Vitals]):
    """How the engine fares."""

    lane: ClassVar[str] = "measure"


@dataclass(frozen=True)
class EstimateMemory(Request[MemoryReport]):
    """Estimate the memory of a training step. Raises DataError if the data cannot be read."""

    lane: ClassVar[str] = "memory"
    job: Job
