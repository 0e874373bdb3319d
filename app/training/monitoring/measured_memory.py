"""Measure the memory of a run's step, or estimate it before the run."""

from __future__ import annotations

from app.data.loaders import load
from app.telemetry import gpu, memory
from app.training.job import Job
from app.training.monitoring import memory_by_layer
from app.training.monitoring.live_model import LiveRun
from app.training.monitoring.memory_report import MemoryReport
from app.training.setup.devices import resolve


def of_run(live: LiveRun) -> MemoryReport:
    """Measure the memory of a training step now."""
    step = memory_by_layer.of_run(live)
    return MemoryReport(
        live.device,
        step,
        False,
        gpu.allocator(live.device),
        gpu.read(live.device),
        memory.resident(),
    )


def before(job: Job, device: str) -> MemoryReport:
    """Estimate the memory of a run before it starts, on the device that its `device` resolves to.

    Raises DataError where the data cannot be read.
    """
    device = resolve(device).id
    step = memory_by_layer.estimate(job, load(job.data, job.data_root).info)
    return MemoryReport(device, step, True, None, gpu.read(device), memory.resident())
