"""Run the diagnostics on a newly captured batch."""

from __future__ import annotations

from app.autograd.diagnostics import checkpointing
from app.autograd.diagnostics.findings import find_all
from app.autograd.diagnostics.results import Findings, WhatIf
from app.autograd.errors import CaptureError
from app.engine.requests.findings import CheckpointRequest, FindingsRequest
from app.engine.server import Context, handles
from app.engine.tasks.capture import batch_of
from app.util.language import tr


def stopped(context: Context) -> bool:
    """Return whether to stop: `StopEarly` has arrived, or the request was cancelled."""
    return context.cancelled() or not context.inbox.empty()


@handles(FindingsRequest)
def find(request: FindingsRequest, context: Context) -> Findings:
    """Run all diagnostics on one batch. Raises as `batch_of`."""
    return find_all(batch_of(request.batch), context.progress, lambda: stopped(context))


@handles(CheckpointRequest)
def measure_blocks(request: CheckpointRequest, context: Context) -> tuple[WhatIf, ...]:
    """Checkpoint each block in turn. Raises as `batch_of`, and CaptureError for a net that has no blocks."""
    batch, rows = batch_of(request.batch), []
    paths = checkpointing.blocks(batch.model)
    if not paths:
        raise CaptureError(
            tr(
                "This net has no blocks, that is, modules with submodules. A checkpointed single layer "
                "still stores its input, so little would be freed."
            )
        )
    for number, path in enumerate(paths, 1):
        context.progress(f"Checkpointing {path} ({number} of {len(paths)})")
        if stopped(context):
            break
        rows.append(checkpointing.what_if(batch, path))
        context.progress(rows[-1])
    return tuple(rows)
