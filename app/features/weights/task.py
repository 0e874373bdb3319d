"""Read, keep and save weight files."""

from __future__ import annotations

from app.engine.server import Context, handles
from app.engine.tasks.weights import load_chosen
from app.export.weights import save_pt, save_safetensors
from app.features.weights.values import (
    CountStart,
    KeepWeights,
    ReadWeights,
    SaveWeights,
    WeightsBeside,
)
from app.project.weights import start_weights, state_dicts
from app.project.weights.state_dict_diff import diff, suggestions, transposed
from app.training.config import StartWeights


@handles(ReadWeights)
def read_weights(request: ReadWeights, context: Context) -> WeightsBeside:
    """Compare a file with the net. Raises WeightsError."""
    state = state_dicts.read(request.path, context.progress)
    if request.source is None or context.cancelled():
        return WeightsBeside(state.infos, state.notes, parts=state.parts)
    context.progress(f"Comparing {len(state.infos):,} tensors with the network")
    ours = state_dicts.net_infos(request.source)
    notes = (*state.notes, *filter(None, (transposed(state.infos, ours),)))
    return WeightsBeside(
        state.infos, notes, ours, suggestions(state.infos, ours), state.parts
    )


@handles(KeepWeights)
def keep_weights(request: KeepWeights, context: Context) -> StartWeights:
    """Store the chosen tensors as start weights; the file is read again, and refused if it no longer fits.

    Raises WeightsError, OSError.
    """
    state = state_dicts.read(request.path, context.progress)
    differences = diff(
        state.infos, state_dicts.net_infos(request.source), request.names
    )
    context.progress(f"Keeping {len(request.keys):,} tensors")
    return start_weights.chosen(state, differences, request.keys)


@handles(SaveWeights)
def save_weights(request: SaveWeights, _context: Context) -> str:
    """Write the weights to a file and describe them. Raises WeightsError, StartError, OSError."""
    chosen = load_chosen(request.weights, request.source, request.seed, request.start)
    (save_safetensors if request.path.suffix == ".safetensors" else save_pt)(
        chosen.state_dict, request.path
    )
    return chosen.words


@handles(CountStart)
def count_start(request: CountStart, _context: Context) -> tuple[int, int]:
    """Count the tensors of the start weights. Raises StartError."""
    return start_weights.counted(request.start, request.source)
