"""An estimate of a run's memory, as it is asked of an engine."""

from __future__ import annotations

from typing import ClassVar

from app.engine.protocol import Request
from app.training.job import Job
from app.training.monitoring.memory_report import MemoryReport


class EstimateMemory(Request[MemoryReport], frozen=True):
    """Estimate the memory of a training step. Raises DataError if the data cannot be read."""

    lane: ClassVar[str] = "memory"
    job: Job
