"""Load the weights that a request names: of a run, or those that a run starts with."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from app.engine.requests.capture import NewestWeights, WeightsChoice, WeightsFile
from app.export.errors import WeightsError
from app.export.weights_choice import ExportWeights, untrained_text, weights_to_export
from app.runs.newest import newest_checkpoint, newest_of, weights_in
from app.source.generated import Source
from app.training.config import StartWeights
from app.util import tensor_files


def load_chosen(weights: WeightsChoice, source: Source, seed: int, start: StartWeights | None) -> ExportWeights:
    """Return the named weights. Raises WeightsError, StartError, CheckpointError and OSError."""
    return weights_to_export(source, seed, partial(_of_a_run, weights, source), start)


def _of_a_run(weights: WeightsChoice, source: Source) -> ExportWeights | None:
    if isinstance(weights, NewestWeights):
        return newest_of(Path(weights.folder), source)
    if not isinstance(weights, WeightsFile):
        return None
    try:
        path = Path(weights.path)
        return ExportWeights(weights_in(path) if weights.is_checkpoint else tensor_files.load(path), weights.words)
    except tensor_files.UnreadableTensorsError as error:
        raise WeightsError(str(error)) from error


def describe_weights(weights: WeightsChoice, source: Source, seed: int, start: StartWeights | None) -> str:
    """Describe the named weights, for after the word "weights". Raises StartError, OSError."""
    if isinstance(weights, WeightsFile):
        return weights.words
    found = newest_checkpoint(Path(weights.folder), source) if isinstance(weights, NewestWeights) else None
    return found[1] if found is not None else untrained_text(seed, start)
