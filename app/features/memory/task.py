"""Estimates a run's memory."""

from __future__ import annotations

from app.engine.server import Context, handles
from app.features.memory.values import EstimateMemory
from app.training.monitoring import measured_memory
from app.training.monitoring.memory_report import MemoryReport


@handles(EstimateMemory)
def estimate_memory(request: EstimateMemory, _context: Context) -> MemoryReport:
    return measured_memory.before(request.job, request.job.training.device)
