"""Recompute a step of a stored run, and capture its graph from the very state that it began with."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from app.autograd.batch import TrainingBatch
from app.autograd.forward_modes import Special
from app.engine import run_process
from app.engine.placement import RunPlacement
from app.engine.requests.capture import node_labels
from app.features.revisit.compute.nondeterminism import parted_at
from app.features.revisit.compute.step_state import StepState
from app.features.revisit.values import Parted, Revisited, RevisitedLayer, digits
from app.project import custom_layers
from app.project.project import Project
from app.runs import resume, stages, step_hashes
from app.runs.step_hashes import as_recorded, check_step
from app.runs.store import Kept
from app.training.events import Event, Failed, Skipped, Started, StepDone, StepHashes
from app.training.job import Job
from app.training.recomputing.errors import RecomputeCancelledError, RecomputeError
from app.training.recomputing.recompute_steps import (
    Recomputed,
    RecomputeWatcher,
    StepFigures,
    leave_recomputing,
    recompute_steps,
)
from app.training.recomputing.recorded import BATCH, EPOCH, FIRST, GENERATOR, Recorded
from app.training.recomputing.snapshot import Snapshot, gradients_of, same_bits
from app.training.setup.torch_flags import cpu_threads, switched
from app.training.stepper import StepInputs, Stepper
from app.util.frozen import FrozenMap

if TYPE_CHECKING:
    from torch import Tensor

    from app.autograd.playback.kept_graph import LiveGraph
    from app.autograd.tape import Tape

# --- Recompute a run that was split between several processes: its steps are verified, and no graph is captured

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


Tell = Callable[[int, int], None]


def labels_of(stored_run: Kept, project: Project, job: Job, step: int) -> Any:
    """Return the labels of the nodes of the net that a run had at a step. Raises RunError."""
    if project.opened is not None:
        return FrozenMap()
    if job.stages:
        project = stages.projects_of(stored_run, project)[job.stage_at(step) - 1]
    return node_labels(project.graph, custom_layers.ops_of(project))


class HeldRevisit:
    """A recomputed step whose graph can be captured any number of times, with the weights from before the step.

    `state` has its batch, activations and gradients. `is_equal` says whether the gradients of the capture are the
    step's; None if the run made no update with its batch.
    """

    def __init__(
        self,
        stepper: Stepper,
        watcher: RecomputeWatcher,
        job: Job,
        labels: Any,
        figures: StepFigures,
    ) -> None:
        assert watcher.snapshot is not None
        self._stepper, self._snapshot = stepper, watcher.snapshot
        self.batch = batch_of_step(stepper, watcher.snapshot, job, labels)
        self.notes: tuple[str, ...] = ()
        self.tape, gradients = self._captured()
        self.is_equal = (
            same_bits(gradients, watcher.gradients) if figures.trained else None
        )
        with self._as_the_run():
            info = watcher.live.data.info
            self.state = StepState(
                stepper, watcher.snapshot, gradients, info, figures.step
            )

    def hold(self) -> LiveGraph:
        """Run the forward pass of the step again and keep its graph. Raises as `TrainingBatch.hold`."""
        with self._as_the_run():
            return self.batch.hold()

    def gradients(self) -> list[Tensor | None]:
        """Return the gradients that backward over the captured graph gives the parameters, with what had been
        accumulated before the step and the factor of a gradient scaler in them."""
        return self._captured()[1]

    @contextmanager
    def _as_the_run(self) -> Iterator[None]:
        """Set torch's threads and flags as the run does: other splits of a sum round differently."""
        config = self._stepper.config
        with cpu_threads(config.threads or None), switched(config):
            yield

    def _captured(self) -> tuple[Tape, list[Tensor | None]]:
        accumulate = self._stepper.config.accumulate
        with self._as_the_run(), self.batch.hold() as graph:
            tape, loss = graph.tape, graph.ends[0]
            loss = loss / accumulate if accumulate > 1 else loss
            (
                loss * self._snapshot.scale
                if self._stepper.scaler is not None
                else loss
            ).backward()
        gradients = gradients_of(self._stepper.model)
        self._snapshot.restore()
        return tape, gradients


def revisited(
    stored_run: Kept,
    job: Job,
    step: int,
    labels: Any = FrozenMap(),
    tell: Tell = lambda _done, _of: None,
    cancelled: Callable[[], bool] = lambda: False,
) -> tuple[Revisited, HeldRevisit | None]:
    """Recompute a step of a run and capture it. Raises as `Revisit`."""
    recorded = step_hashes.recorded_of(stored_run)
    check_step(stored_run, job, step, recorded)
    notes: list[str] = []
    checkpoint = resume.nearest(stored_run, step - 1, notes.append)
    job = as_recorded(stored_run, job)
    if (
        stored_run.record.environment is not None
        and stored_run.record.environment.processes > 1
    ):
        answer = recomputed_on_processes(
            stored_run, job, step, recorded, checkpoint, tell, cancelled
        )
        return replace(answer, notes=(*notes, *answer.notes)), None
    captures: list[HeldRevisit] = []

    def at_end(
        watcher: RecomputeWatcher, figures: StepFigures
    ) -> tuple[Parted | None, bool | None]:
        stepper, now = (
            leave_recomputing(watcher),
            job.at_stage(job.stage_at(figures.step)),
        )
        if watcher.parting is not None:
            return parted_at(watcher.parting, stepper, watcher, now), None
        step_held = HeldRevisit(stepper, watcher, now, labels, figures)
        if step_held.is_equal is False:
            notes.append(_unequal(job))
        captures.append(step_held)
        return None, step_held.is_equal

    recomputed = recompute_steps(
        job, recorded, step, at_end, resume=checkpoint, tell=tell, cancelled=cancelled
    )
    if recomputed.changed:
        notes.insert(0, recomputed.changed)
    if job.stages:
        notes.append(_stage_text(job, recomputed.figures.step))
    return _answer(
        stored_run, recorded, checkpoint, recomputed, tuple(notes), captures
    ), captures[0] if captures else None


def _stage_text(job: Job, step: int) -> str:
    """Return which net a step had, of a run whose net was edited."""
    number = job.stage_at(step)
    since = (
        f", since the surgery after step {job.stages[number - 2].step:,}"
        if number > 1
        else ""
    )
    return f"Step {step:,} is of stage {number} of {len(job.stages) + 1}{since}."


class StepLoss:
    """The loss of a step, as the run computes it."""

    whole = True

    def __init__(self, stepper: Stepper, given: StepInputs) -> None:
        self._stepper, self._given = stepper, given

    def __call__(self, output: Any, _target: Any) -> Tensor:
        step_inputs = self._given
        return self._stepper.measured(
            output, step_inputs.labels, step_inputs.others, step_inputs.share
        )


def batch_of_step(
    stepper: Stepper, snapshot: Snapshot, job: Job, labels: Any
) -> TrainingBatch:
    """Return the net before a step with the step's batch, loss and generators."""
    opened = bool(job.source.opened)
    step_inputs = snapshot.given
    return TrainingBatch(
        stepper.model,
        stepper.arguments(step_inputs.inputs),
        StepLoss(stepper, step_inputs),
        getattr(step_inputs.labels, "parts", step_inputs.labels),
        None if opened else job.source,
        stepper.model.training,
        snapshot.generators,
        labels,
        Special(amp=job.training.amp),
        own_lines=opened,
    )


def _unequal(job: Job) -> str:
    if job.training.compile:
        return (
            "The run compiles its forward pass, and the captured graph is not compiled: its gradients are rounded "
            "differently."
        )
    return "The gradients of the captured graph are not those of the step bit for bit."


def _answer(
    stored_run: Kept,
    recorded: Recorded,
    checkpoint: Path | None,
    recomputed: Recomputed[tuple[Parted | None, bool | None]],
    notes: tuple[str, ...],
    captures: list[HeldRevisit],
) -> Revisited:
    figures = recomputed.figures
    recorded_layers, row = (
        recorded.layers_at(figures.step),
        recorded.hashes.get(figures.step),
    )
    layers = tuple(
        RevisitedLayer(
            layer,
            digits(recorded_layers[layer]) if layer in recorded_layers else None,
            digits(layer_hash),
            _norm(figures, layer),
        )
        for layer, layer_hash in figures.hashes.items()
    )
    parted, captured = recomputed.found
    return Revisited(
        stored_run.record.title,
        figures.step,
        figures.epoch,
        figures.batch,
        checkpoint.name if checkpoint else "",
        recomputed.started_at,
        recomputed.verified,
        figures.loss,
        recorded.losses.get(figures.step),
        None if row is None else row[GENERATOR] == figures.generator,
        layers,
        parted,
        captures[0].tape if captures else None,
        captured,
        notes,
        trained=figures.trained,
    )


def _norm(figures: StepFigures, layer: str) -> float | None:
    norm = figures.norms[layer]
    return None if math.isnan(norm) else norm
