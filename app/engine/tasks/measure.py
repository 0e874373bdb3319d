"""Measure the engine's memory, and estimate a run's: see `app.engine.requests.measure`."""

from __future__ import annotations

import os

from app.engine.child_process import memory_of
from app.engine.requests.measure import EstimateMemory, Measure, Vitals
from app.engine.server import Context, handles
from app.training.monitoring import measured_memory
from app.training.monitoring.memory_report import MemoryReport


@handles(Measure)
def measure(_request: Measure, context: Context) -> Vitals:
    return Vitals(os.getpid(), memory_of(os.getpid()), context.count)


@handles(EstimateMemory)
def estimate_memory(request: EstimateMemory, _context: Context) -> MemoryReport:
    return measured_memory.before(request.job, request.job.training.device)
