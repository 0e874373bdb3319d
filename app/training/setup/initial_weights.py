"""Initial weights of a run: drawn from the seed, then replaced by the project's start weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from safetensors.torch import load_file

from app.source.compiled import make_module
from app.source.generated import Source
from app.training.config import StartWeights
from app.training.setup.weights_header import (
    CURE,
    StartError,
    TensorInfo,
    header,
    is_unchanged,
    misfit_text,
    misfits,
)
from app.util.rng import borrowed

if TYPE_CHECKING:
    from torch import Tensor, nn


def initial_module(source: Source, start: StartWeights | None = None) -> nn.Module:
    """Construct the module with its initial weights: drawn from torch's global generator, then start weights loaded.

    Raises StartError.
    """
    model = make_module(source)
    if start is not None:
        put_in(model, start)
    return model


def put_in(model: nn.Module, start: StartWeights) -> None:
    """Load start weights into a module; other tensors are unchanged. Raises StartError."""
    start_tensors = tensors(start)
    state_dict = model.state_dict()
    problems = misfits(
        {key: TensorInfo.from_tensor(value) for key, value in start_tensors.items()},
        {key: TensorInfo.from_tensor(value) for key, value in state_dict.items()},
    )
    if problems:
        raise StartError(f"{misfit_text(start, problems)} {CURE}")
    model.load_state_dict({**state_dict, **start_tensors})


def initial_weights(
    source: Source, seed: int, start: StartWeights | None = None
) -> dict[str, Tensor]:
    """Return the initial state_dict for this seed; generators are restored. Raises StartError."""
    with borrowed(seed):
        return dict(initial_module(source, start).state_dict())


def tensors(start: StartWeights) -> dict[str, Tensor]:
    """Return the selected tensors by key, on the CPU. Raises StartError."""
    infos = header(start)
    if not is_unchanged(start):
        raise StartError(
            f"{start.path} was changed since its weights were loaded. {CURE}"
        )
    try:
        loaded = load_file(start.path)
    except Exception as error:  # the reader may raise anything
        raise StartError(f"{start.path} cannot be read: {error}. {CURE}") from error
    return {key: loaded[key] for key in start.keys or infos}
