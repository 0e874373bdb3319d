"""Weights that a request names, and weights of a file in a model from anywhere."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from torch import Tensor, nn

from app.engine.requests.capture import (
    NewestWeights,
    WeightsChoice,
    WeightsFile,
)
from app.export.errors import WeightsError
from app.export.weights_choice import ExportWeights, untrained_text, weights_to_export
from app.project.weights import state_dicts
from app.runs.newest import best_checkpoint, newest_checkpoint, newest_of, weights_in
from app.source.generated import Source
from app.sources.spec import SourceError
from app.training.checkpoints.checkpoint import ForeignCheckpointError
from app.training.config import StartWeights
from app.util import tensor_files


def load_chosen(
    weights: WeightsChoice, source: Source, seed: int, start: StartWeights | None
) -> ExportWeights:
    """Return the named weights. Raises WeightsError, StartError, CheckpointError and OSError."""
    return weights_to_export(source, seed, partial(_of_a_run, weights, source), start)


def _of_a_run(weights: WeightsChoice, source: Source) -> ExportWeights | None:
    if isinstance(weights, NewestWeights):
        return newest_of(Path(weights.folder), source, weights.best)
    if not isinstance(weights, WeightsFile):
        return None
    try:
        path = Path(weights.path)
        return ExportWeights(
            weights_in(path) if weights.is_checkpoint else tensor_files.load(path),
            weights.words,
        )
    except tensor_files.UnreadableTensorsError as error:
        raise WeightsError(str(error)) from error


def describe_weights(
    weights: WeightsChoice, source: Source, seed: int, start: StartWeights | None
) -> str:
    """Describe the named weights, for after the word "weights". Raises StartError, RunError, OSError."""
    if isinstance(weights, WeightsFile):
        return weights.words
    if not isinstance(weights, NewestWeights):
        return untrained_text(seed, start)
    checkpoint = (best_checkpoint if weights.best else newest_checkpoint)(
        Path(weights.folder), source
    )
    return checkpoint[1] if checkpoint is not None else untrained_text(seed, start)


def fit_weights(
    model: nn.Module, state_dict: Mapping[str, Tensor], where: str, name: str
) -> list[str]:
    """Load the tensors that a model has, and return remarks on the others. Raises SourceError for a tensor of another
    shape, and where none fits; `where` are the weights from, `name` is that of the model."""
    model_state = model.state_dict()
    wrong = [
        f"{key} is {shape_text(value)}, and {shape_text(model_state[key])} in the model"
        for key, value in state_dict.items()
        if key in model_state and model_state[key].shape != value.shape
    ]
    fitting = {key: value for key, value in state_dict.items() if key in model_state}
    if wrong or not fitting:
        keys = (", ".join([*tensors][:3]) for tensors in (state_dict, model_state))
        problem = "; ".join(wrong[:3]) or "its keys are {}, and the model's {}".format(
            *keys
        )
        raise SourceError(f"{where} does not fit {name}: {problem}")
    model.load_state_dict(fitting, strict=False)
    missing, left = (
        len(model_state.keys() - state_dict.keys()),
        len(state_dict.keys() - model_state.keys()),
    )
    remarks = (
        [f"{missing} tensors of {name} are not in {Path(where).name}."]
        if missing
        else []
    )
    return [
        *remarks,
        *(
            [f"{left} tensors of {Path(where).name} have no counterpart in {name}."]
            if left
            else []
        ),
    ]


def shape_text(tensor: Tensor) -> str:
    return "×".join(map(str, tensor.shape)) or "scalar"


def state_of(path: str) -> Mapping[str, Tensor]:
    """Read a state_dict: of a checkpoint of a run its weights, the running mean where there is one. Raises
    WeightsError."""
    if not Path(path).exists():
        raise WeightsError(f"there is no file {path}")
    if Path(path).suffix == ".pt":
        try:
            return weights_in(Path(path))
        except ForeignCheckpointError:
            pass
    return state_dicts.read(path).tensors
