"""Answer what the window's runs at places ask."""

from __future__ import annotations

from msgspec.structs import replace

from app.engine.server import Context, handles
from app.features.places.compute import SAVES_EVERY, script_files
from app.features.places.values import PrepareScript


@handles(PrepareScript)
def prepare_script(request: PrepareScript, _context: Context) -> dict[str, str]:
    """Return the script and what lies beside it; it saves checkpoints."""
    job = request.job
    every = job.training.save_every or SAVES_EVERY
    return script_files(replace(job, training=replace(job.training, save_every=every)))
