"""Answer what the window's runs at places ask."""

from __future__ import annotations

from msgspec.structs import replace

from app.engine.server import Context, handles
from app.engine.tasks.runs import stored
from app.features.places.compute import SAVES_EVERY, script_files
from app.features.places.values import (
    FindRunGoingOn,
    PrepareScript,
    RunGoingOn,
)


@handles(PrepareScript)
def prepare_script(request: PrepareScript, _context: Context) -> dict[str, str]:
    """Return the script and what lies beside it; it saves checkpoints."""
    job = request.job
    every = job.training.save_every or SAVES_EVERY
    return script_files(replace(job, training=replace(job.training, save_every=every)))


@handles(FindRunGoingOn)
def find_run_going_on(request: FindRunGoingOn, _context: Context) -> RunGoingOn:
    """Return the project and the job of a stored run."""
    _, project, job = stored(request.run, request.data_root)
    return RunGoingOn(project, job)
