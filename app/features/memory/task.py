"""Estimates a run's memory, and reads snapshots of an allocator."""

from __future__ import annotations

from pathlib import Path

from app.engine.server import Context, handles
from app.features.memory.compute import allocator_snapshot
from app.features.memory.values import DeviceSnapshot, EstimateMemory, ReadSnapshot
from app.training.monitoring import measured_memory
from app.training.monitoring.memory_report import MemoryReport


@handles(EstimateMemory)
def estimate_memory(request: EstimateMemory, _context: Context) -> MemoryReport:
    return measured_memory.before(request.job, request.job.training.device)


@handles(ReadSnapshot)
def read_snapshot(
    request: ReadSnapshot, context: Context
) -> tuple[DeviceSnapshot, ...]:
    return allocator_snapshot.read(Path(request.path), context.progress)
