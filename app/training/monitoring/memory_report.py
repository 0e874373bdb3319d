"""Memory report of a run as a value: shown in the window and saved as JSON."""

from __future__ import annotations

import json
from typing import Any

from msgspec import Struct, to_builtins

from app.telemetry.gpu_figures import Allocator, GpuReading
from app.telemetry.layer_bytes import StepBytes


class MemoryReport(Struct, frozen=True):
    """`step` is measured on a batch of the run, or estimated if `estimated`; None if neither is possible.

    `allocator` exists for an accelerator that tells it, `gpu` explains the absence of its figures,
    `resident` is the reporting process's memory in bytes.
    """

    device: str
    step: StepBytes | None
    estimated: bool
    allocator: Allocator | None
    gpu: GpuReading
    resident: int | None

    def to_json(self) -> str:
        """Return the report as JSON; all sizes in bytes."""
        raw: dict[str, Any] = to_builtins(self)
        if self.step is not None:
            raw["step"]["total"] = to_builtins(self.step.total)
        return json.dumps(raw, indent=2, ensure_ascii=False)


def score(estimated: int, measured: int) -> float:
    """Return the relative error of the estimate: −0.1 is 10 % too low."""
    return (estimated - measured) / measured if measured else 0.0
