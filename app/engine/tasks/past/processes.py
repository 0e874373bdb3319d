"""Recompute a run that was split between several processes: its steps are verified, and no graph is captured."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from app.engine import distributed
from app.engine.placement import RunPlacement
from app.engine.requests.past.revisit import Parted, Revisited, RevisitedLayer, digits
from app.runs.store import Kept
from app.training.events import Failed, Skipped, Started, StepDone, StepHashes
from app.training.job import Job
from app.training.revisit.errors import RecomputeCancelledError, RecomputeError
from app.training.revisit.recorded import FIRST, GENERATOR, Recorded

NO_GRAPH = "The graph of a step on several processes is not captured."
EVERY = 1e9  # times the time of a step that hashing it may take: each is hashed


def recomputed_on_processes(
    stored_run: Kept,
    job: Job,
    step: int,
    recorded: Recorded,
    checkpoint: Path | None,
    tell: Callable[[int, int], None],
    cancelled: Callable[[], bool],
) -> Revisited:
    """Recompute a run on as many processes as it had, up to a step.

    Raises RecomputeError and RecomputeCancelledError.
    """
    where = stored_run.record.environment
    assert where is not None
    training = replace(
        job.training, max_minutes=None, save_every=0, revisit_seconds=0.0
    )
    events = distributed.train(
        replace(job, training=training),
        place=RunPlacement(where.processes),
        resume=checkpoint,
        hash_share=EVERY,
    )
    began, verified, notes = 0, 0, [NO_GRAPH]
    row: tuple[int, ...] = ()
    layers: tuple[str, ...] = ()
    try:
        for event in events:
            match event:
                case Started():
                    began = event.resumed_at
                    notes += [event.changed] if event.changed else []
                case StepHashes():
                    layers, row = (
                        event.layers,
                        struct.unpack(f"<{len(event.rows) // 8}q", event.rows)[1:],
                    )
                case StepDone():
                    tell(event.step - began, step - began)
                    recorded_row, loss = (
                        recorded.hashes.get(event.step),
                        recorded.losses.get(event.step),
                    )
                    parted = _compared(event, row, layers, recorded)
                    verified += recorded_row is not None and parted is None
                    if parted is not None or event.step >= step:
                        by_name = recorded.layers_at(event.step)
                        revisited_layers = tuple(
                            RevisitedLayer(
                                layer,
                                digits(by_name[layer]) if layer in by_name else None,
                                digits(layer_hash),
                                None,
                            )
                            for layer, layer_hash in zip(
                                layers, row[FIRST:], strict=True
                            )
                        )
                        return Revisited(
                            stored_run.record.title,
                            event.step,
                            row[0],
                            row[1],
                            checkpoint.name if checkpoint else "",
                            began,
                            verified,
                            event.loss,
                            loss,
                            None
                            if recorded_row is None
                            else row[GENERATOR] == recorded_row[GENERATOR],
                            revisited_layers,
                            parted,
                            None,
                            None,
                            tuple(notes),
                        )
                case Skipped() if event.step >= step:
                    raise RecomputeError(event.message)
                case Failed():
                    raise RecomputeError(
                        f"Recomputing failed after step {event.step:,}: {event.message}"
                    )
            if cancelled():
                raise RecomputeCancelledError
    finally:
        events.close()  # type: ignore[attr-defined]
    raise RecomputeError(f"The run has no step {step:,}.")


def _compared(
    event: StepDone, row: tuple[int, ...], layers: tuple[str, ...], recorded: Recorded
) -> Parted | None:
    """Return how a step differs from the recorded one; None if it does not."""
    reason = "the operation is not searched for in a run on several processes"
    recorded_row = recorded.hashes.get(event.step)
    if recorded_row is not None:
        pairs = zip(recorded.layers, row[FIRST:], recorded_row[FIRST:], strict=True)
        differing = tuple(
            name for name, recomputed, other in pairs if recomputed != other
        )
        if row[:GENERATOR] != recorded_row[:GENERATOR]:
            return Parted(event.step, "position", "", (), reason=reason)
        if differing:
            return Parted(
                event.step, "gradients", differing[-1], differing, reason=reason
            )
        if row[GENERATOR] != recorded_row[GENERATOR]:
            return Parted(event.step, "generator", "", (), reason=reason)
    if (loss := recorded.losses.get(event.step)) is not None and loss != event.loss:
        return Parted(event.step, "loss", "", (), reason=reason)
    return None
