"""What the diagnostics are asked about a captured batch, as plain data."""

from __future__ import annotations

from dataclasses import dataclass

from app.engine.requests.capture import CaptureRequest


@dataclass(frozen=True)
class FindingsRequest:
    """Run every diagnostic on a batch. Answered by `Findings`; progress is a sentence."""

    batch: CaptureRequest


@dataclass(frozen=True)
class CheckpointRequest:
    """Checkpoint each block in turn and measure memory and time. Answered by a tuple of `WhatIf`; progress is a
    sentence, or a `WhatIf` as soon as it is measured."""

    batch: CaptureRequest
