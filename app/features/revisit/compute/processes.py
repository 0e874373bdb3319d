"""Recompute a run that was split between several processes: its steps are verified, and no graph is captured."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec.structs import replace

from app.engine import run_process
from app.engine.placement import RunPlacement
from app.features.revisit.values import Parted, Revisited, RevisitedLayer, digits
from app.runs.store import Kept
from app.training.events import Event, Failed, Skipped, Started, StepDone, StepHashes
from app.training.job import Job
from app.training.recomputing.errors import RecomputeCancelledError, RecomputeError
from app.training.recomputing.recorded import BATCH, EPOCH, FIRST, GENERATOR, Recorded

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
    events = run_process.train(
        replace(job, training=training),
        place=RunPlacement(where.processes),
        resume=checkpoint,
        hash_share=EVERY,
    )
    began, verified, notes = 0, 0, [NO_GRAPH]
    losses: dict[int, float] = {}
    try:
        for event in events:
            match event:
                case Started():
                    began = event.resumed_at
                    notes += [event.changed] if event.changed else []
                case StepDone():
                    tell(event.step - began, step - began)
                    losses[event.step] = event.loss
                case Skipped() if event.step >= step:
                    raise RecomputeError(event.message)
                case Failed():
                    raise RecomputeError(
                        f"Recomputing failed after step {event.step:,}: {event.message}"
                    )
            for at, layers, row in _hashes(event):
                parted = _compared(at, losses[at], layers, row, recorded)
                verified += at in recorded.hashes and parted is None
                if parted is None and at < step:
                    continue
                recorded_row, by_name = recorded.hashes.get(at), recorded.layers_at(at)
                return Revisited(
                    stored_run.record.title,
                    at,
                    row[EPOCH],
                    row[BATCH],
                    checkpoint.name if checkpoint else "",
                    began,
                    verified,
                    losses[at],
                    recorded.losses.get(at),
                    None
                    if recorded_row is None
                    else row[GENERATOR] == recorded_row[GENERATOR],
                    tuple(
                        RevisitedLayer(
                            layer,
                            digits(by_name[layer]) if layer in by_name else None,
                            digits(layer_hash),
                            None,
                        )
                        for layer, layer_hash in zip(layers, row[FIRST:], strict=True)
                    ),
                    parted,
                    None,
                    None,
                    tuple(notes),
                )
            if cancelled():
                raise RecomputeCancelledError
    finally:
        events.close()  # type: ignore[attr-defined]
    raise RecomputeError(f"The run has no step {step:,}.")


def _hashes(event: Event) -> Iterator[tuple[int, tuple[str, ...], tuple[int, ...]]]:
    """Yield the step, the layers and the row, as `Recorded` has it, of each hash that an event tells."""
    if isinstance(event, StepHashes):
        width = len(event.layers) + FIRST + 1
        for step, *row in struct.iter_unpack(f"<{width}q", event.rows):
            yield step, event.layers, tuple(row)


def _compared(
    step: int,
    computed_loss: float,
    layers: tuple[str, ...],
    row: tuple[int, ...],
    recorded: Recorded,
) -> Parted | None:
    """Return how a step differs from the recorded one; None if it does not."""
    reason = "the operation is not searched for in a run on several processes"
    recorded_row = recorded.hashes.get(step)
    if recorded_row is not None:
        pairs = zip(layers, row[FIRST:], recorded_row[FIRST:], strict=True)
        differing = tuple(
            name for name, recomputed, other in pairs if recomputed != other
        )
        if row[:GENERATOR] != recorded_row[:GENERATOR]:
            return Parted(step, "position", "", (), reason=reason)
        if differing:
            return Parted(step, "gradients", differing[-1], differing, reason=reason)
        if row[GENERATOR] != recorded_row[GENERATOR]:
            return Parted(step, "generator", "", (), reason=reason)
    if (loss := recorded.losses.get(step)) is not None and loss != computed_loss:
        return Parted(step, "loss", "", (), reason=reason)
    return None
