"""Run the diagnostics on a batch that is captured anew."""

from __future__ import annotations

from collections.abc import Callable

from app.autograd.diagnostics.results import Findings, WhatIf
from app.engine.requests.findings import CheckpointRequest, FindingsRequest
from app.engine.tasks.capture import batch_of

Tell = Callable[[str], None]
Cancelled = Callable[[], bool]


def find(request: FindingsRequest, tell: Tell, cancelled: Cancelled) -> Findings:
    """Every diagnostic, of one batch. Raises as `batch_of`."""
    from app.autograd.diagnostics.findings import find_all

    return find_all(batch_of(request.batch), tell, cancelled)


def measure_blocks(
    request: CheckpointRequest, tell: Tell, measured: Callable[[WhatIf], None], cancelled: Cancelled
) -> tuple[WhatIf, ...]:
    """Checkpoint each block in turn; `measured` gets each as soon as it is measured. Raises as `batch_of`."""
    from app.autograd.diagnostics import checkpointing
    from app.autograd.errors import CaptureError

    batch, rows = batch_of(request.batch), []
    paths = checkpointing.blocks(batch.model)
    if not paths:
        raise CaptureError("This net has no blocks: modules that are made of modules. A single layer keeps its input "
                           "under a checkpoint too, so there is little to be had.")  # fmt: skip
    for number, path in enumerate(paths, 1):
        tell(f"Checkpointing {path} ({number} of {len(paths)})")
        if cancelled():
            break
        rows.append(checkpointing.what_if(batch, path))
        measured(rows[-1])
    return tuple(rows)
