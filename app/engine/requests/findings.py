"""Requests: diagnostics of a captured batch."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from app.autograd.diagnostics.results import Findings, WhatIf
from app.engine.protocol import Request
from app.engine.requests.observe import AnyCapture


class StopEarly(Struct, frozen=True):
    """Ask a running request to return the findings so far; sent to its inbox."""


class FindingsRequest(Request[Findings], frozen=True):
    """Run every diagnostic on a batch. Progress is a sentence."""

    lane: ClassVar[str] = "findings"
    batch: AnyCapture


class CheckpointRequest(Request[tuple[WhatIf, ...]], frozen=True):
    """Checkpoint each block in turn and measure memory and time. Progress is a sentence, or a `WhatIf` as soon as it is
    measured."""

    lane: ClassVar[str] = "findings"
    batch: AnyCapture
