"""Answer what the window's runs at places ask."""

from __future__ import annotations

import base64

from msgspec.structs import replace

from app.engine.server import Context, handles
from app.engine.tasks.runs import stored
from app.features.places.compute import SAVES_EVERY, script_files
from app.features.places.values import (
    FindRunGoingOn,
    PreparedScript,
    PrepareScript,
    RunGoingOn,
    checkpoint_of,
)
from app.training.checkpoints.checkpoint import seconds_of, step_of


@handles(PrepareScript)
def prepare_script(request: PrepareScript, _context: Context) -> PreparedScript:
    """Return the script and what lies beside it; it saves checkpoints."""
    job, checkpoint = request.job, request.checkpoint
    every = job.training.save_every or SAVES_EVERY
    files = script_files(replace(job, training=replace(job.training, save_every=every)))
    if checkpoint is None:
        return PreparedScript(files)
    step, epochs = step_of(checkpoint)
    files[checkpoint_of(step)] = base64.b64encode(checkpoint.read_bytes()).decode()
    return PreparedScript(files, step, epochs, seconds_of(checkpoint))


@handles(FindRunGoingOn)
def find_run_going_on(request: FindRunGoingOn, _context: Context) -> RunGoingOn:
    """Return the project and the job of a stored run."""
    _, project, job = stored(request.run, request.data_root)
    return RunGoingOn(project, job)
