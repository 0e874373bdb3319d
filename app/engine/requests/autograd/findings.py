"""Requests: diagnostics of a captured batch."""

from __future__ import annotations

from typing import ClassVar

from app.autograd.diagnostics.results import Findings, WhatIf
from app.engine.protocol import Request
from app.engine.requests.observe import AnyCapture
from app.util.late_dataclass import dataclass


@dataclass(frozen=True)
class StopEarly:
    """Ask a running request to return the findings so far; sent to its inbox."""


@dataclass(frozen=True)
class FindingsRequest(Request[Findings]):
    """Run every diagnostic on a batch. Progress is a sentence."""

    lane: ClassVar[str] = "findings"
    batch: AnyCapture


@dataclass(frozen=True)
class CheckpointRequest(Request[tuple[WhatIf, ...]]):
    """Checkpoint each block in turn and measure memory and time. Progress is a sentence, or a `WhatIf` as soon as it is
    measured."""

    lane: ClassVar[str] = "findings"
    batch: AnyCapture
