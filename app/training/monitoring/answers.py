"""Answer requests to a running run between two steps."""

from __future__ import annotations

import math
from functools import singledispatch
from importlib import import_module
from time import perf_counter
from typing import Any

from torch.profiler import ProfilerActivity, profile, supported_activities

from app.telemetry import gpu
from app.training.monitoring import activations, measured_memory, snapshots
from app.training.monitoring.live_model import LiveRun
from app.training.monitoring.looks import BatchPeek, LayerInside, OpTime, StepProfile
from app.training.monitoring.memory_report import MemoryReport
from app.training.run_requests import (
    LookInside,
    ProfileStep,
    SetRate,
    ShowCaught,
    TellMemory,
    WriteSnapshot,
)
from app.util import atomic
from tapedeck import devices

# --- Profile of a training step by operation, with torch.profiler

MOST = 40  # rows; others are included in the sums


def of_run(live: LiveRun, trace: str = "") -> StepProfile:
    """Profile forward and backward of the first batch, after one warm-up. To be run by `Control.call`.

    With `trace`, what chrome://tracing and ui.perfetto.dev draw is written to that file; raises OSError.
    """
    stepper = live.stepper
    inputs, labels = live.data.batch(stepper.config.batch_size)
    cpu = {ProfilerActivity.CPU}
    activities = supported_activities() if live.device != "cpu" else cpu

    def step() -> None:
        live.model.zero_grad(set_to_none=True)
        stepper.measured(stepper.output(stepper.forward, inputs), labels).backward()
        devices.synchronize(live.device)

    live.model.train()
    step()
    with profile(activities=activities, record_shapes=True) as profiler:
        begin = perf_counter()
        step()
        seconds = perf_counter() - begin
    if trace:
        try:
            atomic.write(trace, lambda file: profiler.export_chrome_trace(str(file)))
        except OSError as error:  # report the requested file, not the temporary one
            raise OSError(error.errno, error.strerror, trace) from error
    return _step_profile(
        live.device, len(inputs), seconds, profiler.key_averages(), activities != cpu
    )


def _step_profile(
    device: str, batch: int, seconds: float, averages: Any, timed: bool
) -> StepProfile:
    # Kernels have separate rows, and also count for the operations that launched them.
    rows = [
        OpTime(
            average.key,
            average.count,
            float(average.self_cpu_time_total),
            float(average.self_device_time_total) if timed else None,
        )
        for average in averages
        if average.device_type.name == "CPU"
    ]
    rows.sort(key=lambda row: (-(row.on_device or 0.0), -row.cpu, row.name))
    return StepProfile(
        device,
        batch,
        1000 * seconds,
        sum(row.cpu for row in rows),
        sum(row.on_device or 0.0 for row in rows) if timed else None,
        tuple(rows[:MOST]),
        max(len(rows) - MOST, 0),
    )


@singledispatch
def answer(request: Any, live: LiveRun) -> Any:
    """Handle a request to a live run; call it by `LiveRun.visit`. Raises what the request documents.

    The handler of a request of the shelf is registered by the module "task" beside its values.
    """
    folder, _, role = type(request).__module__.rpartition(".")
    if role == "values":
        import_module(f"{folder}.task")
        handler = answer.dispatch(type(request))
        if handler is not answer.dispatch(object):
            return handler(request, live)
    raise TypeError(f"a run does not support the request {type(request).__name__}")


@answer.register
def _(request: SetRate, live: LiveRun) -> float:
    rates = live.stepper.rates
    before = dict(zip(rates.names, rates.all, strict=True)).get(
        request.group or rates.names[0], math.nan
    )
    live.stepper.set_rate(request.rate, request.group)
    return before


@answer.register
def _(request: LookInside, live: LiveRun) -> LayerInside:
    return activations.of_run(live, request.layer, request.sample)


@answer.register
def _(_request: ShowCaught, live: LiveRun) -> BatchPeek | None:
    return snapshots.caught_batch(live)


@answer.register
def _(request: TellMemory, live: LiveRun) -> MemoryReport:
    if request.empty:
        devices.empty_cache(live.device)
    return measured_memory.of_run(live)


@answer.register
def _(request: WriteSnapshot, live: LiveRun) -> bool:
    return gpu.write_snapshot(live.device, request.path)


@answer.register
def _(request: ProfileStep, live: LiveRun) -> StepProfile:
    return of_run(live, request.trace)
