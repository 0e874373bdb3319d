"""Look inside a layer of a net: see `app.engine.requests.look_inside`."""

from __future__ import annotations

from pathlib import Path

from app.engine.requests.capture import NewestWeights, WeightsFile
from app.engine.requests.look_inside import LookInside
from app.engine.server import Context, handles
from app.export.weights_choice import untrained_words
from app.runs.newest import newest_checkpoint, weights_in
from app.training.monitoring import activations
from app.training.monitoring.looks import Inside
from app.util import tensor_files


@handles(LookInside)
def look_inside(request: LookInside, _context: Context) -> Inside:
    job, chosen, state = request.job, request.weights, None
    words = untrained_words(job.training.seed, job.training.start)
    if isinstance(chosen, NewestWeights) and (found := newest_checkpoint(Path(chosen.folder), job.source)) is not None:
        state, words = weights_in(found[0]), found[1]
    elif isinstance(chosen, WeightsFile):
        path, words = Path(chosen.path), chosen.words
        state = weights_in(path) if chosen.is_checkpoint else tensor_files.load(path)
    return activations.of_weights(job, state, request.layer, request.sample, f"weights {words}")
