"""Answer requests to a running run between two steps."""

from __future__ import annotations

import math
from functools import singledispatch
from importlib import import_module
from typing import Any

from app.telemetry import gpu
from app.training.monitoring import (
    activations,
    measured_memory,
    snapshots,
    step_profile,
)
from app.training.monitoring.live_model import LiveRun
from app.training.monitoring.looks import BatchPeek, LayerInside, StepProfile
from app.training.monitoring.memory_report import MemoryReport
from app.training.run_requests import (
    LookInside,
    ProfileStep,
    SetRate,
    ShowCaught,
    TellMemory,
    WriteSnapshot,
)
from tapedeck import devices


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
    return step_profile.of_run(live, request.trace)
