"""Handlers: recompute a step of a stored run, find the first at which a condition held, fork without a batch."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from app.engine.requests.runs import Fork
from app.engine.server import Context, handles
from app.engine.tasks.runs import stored
from app.features.revisit.compute.bisect import first_step
from app.features.revisit.compute.revisit import HeldRevisit, labels_of, revisited
from app.features.revisit.values import (
    FindFirst,
    FirstStep,
    ForkWithout,
    Recomputing,
    Revisit,
    Revisited,
    ShowStepBatch,
    parse_condition,
)
from app.runs import resume, stages, step_hashes
from app.runs.record import RunError
from app.runs.step_hashes import as_recorded, check_step
from app.training.checkpoints.checkpoint import CheckpointError, stage_of, step_of
from app.training.monitoring.looks import BatchPeek


@handles(ForkWithout)
def fork_without(request: ForkWithout, _context: Context) -> Fork:
    """Return the start of the fork; nothing is written."""
    stored_run, project, job = stored(request.run, request.data_root)
    check_step(stored_run, job, request.step, step_hashes.recorded_of(stored_run))
    left_out = tuple(sorted({*project.training.leave_out, request.step}))
    project = replace(project, training=replace(project.training, leave_out=left_out))
    job = as_recorded(stored_run, job)
    job = replace(job, training=replace(job.training, leave_out=left_out))
    passed_over: list[str] = []
    checkpoint = resume.nearest(stored_run, request.step - 1, passed_over.append)
    try:
        at, stage = (
            (step_of(checkpoint)[0], stage_of(checkpoint))
            if checkpoint is not None
            else (0, 1)
        )
    except (OSError, CheckpointError) as error:
        raise RunError(str(error)) from error
    return Fork(
        stages.projects_of(stored_run, project),
        stage,
        job,
        checkpoint,
        at,
        tuple(passed_over),
    )


@handles(Revisit)
def revisit(request: Revisit, context: Context) -> Revisited:
    """Recompute a step, and keep it under a handle."""
    stored_run, project, job = stored(request.run, request.data_root)
    answer, captured = revisited(
        stored_run,
        job,
        request.step,
        labels_of(stored_run, project, job, request.step),
        _progress(context),
        context.cancelled,
    )
    return (
        replace(answer, held=context.keep(captured)) if captured is not None else answer
    )


@handles(ShowStepBatch)
def show_step_batch(request: ShowStepBatch, context: Context) -> BatchPeek:
    """Return the batch of a recomputed step."""
    recomputed: HeldRevisit = context.object_of(request.held)
    return recomputed.state.batch


@handles(FindFirst)
def find_first(request: FindFirst, context: Context) -> FirstStep:
    """Find the first step at which a condition held."""
    stored_run, _, job = stored(request.run, request.data_root)
    return first_step(
        stored_run,
        job,
        parse_condition(request.condition),
        _progress(context),
        context.cancelled,
    )


def _progress(context: Context) -> Callable[[int, int], None]:
    return lambda done, of: context.progress(Recomputing(done, of))
