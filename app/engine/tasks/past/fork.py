"""Prepare a fork of a run from the nearest checkpoint before a step, without the step's batch."""

from __future__ import annotations

from msgspec.structs import replace

from app.engine.requests.fork import Fork, ForkWithout
from app.engine.server import Context, handles
from app.engine.tasks.past.revisit import as_recorded, check, stored
from app.runs import resume, stages, step_hashes
from app.runs.record import RunError
from app.training.checkpoints.checkpoint import CheckpointError, stage_of, step_of


@handles(ForkWithout)
def fork_without(request: ForkWithout, _context: Context) -> Fork:
    """Return the start of the fork; nothing is written."""
    stored_run, project, job = stored(request.run, request.data_root)
    check(stored_run, job, request.step, step_hashes.recorded_of(stored_run))
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
