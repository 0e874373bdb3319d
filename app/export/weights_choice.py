"""Which weights an export takes: the one place where that is decided, for the window and for the command."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from app.source.generated import Source
from app.training.setup.initial_weights import initial_weights
from app.training.setup.weights_header import header

if TYPE_CHECKING:
    from app.export.weights import StateDict
    from app.training.config import StartWeights


class ExportWeights(Struct, frozen=True):
    """A state_dict that fits the net, and its origin as `words`, which follow "weights" in texts."""

    state_dict: StateDict
    words: str


def weights_to_export(
    source: Source,
    seed: int,
    trained: Callable[[], ExportWeights | None] | None = None,
    start: StartWeights | None = None,
) -> ExportWeights:
    """Return the weights to export with `source`: those of a run if there is one, else the initial weights.

    `trained` returns those of the run, if any; it is called on the exporting thread. Raises StartError.
    """
    weights = trained() if trained is not None else None
    if weights is not None:
        return weights
    return ExportWeights(
        initial_weights(source, seed, start), untrained_text(seed, start)
    )


def untrained_text(seed: int, start: StartWeights | None) -> str:
    """Describe the origin of untrained weights."""
    if start is None:
        return f"untrained, initialised with seed {seed}"
    name = start.name or "the start weights"
    return f"to start from: {len(header(start)):,} tensors of {name}, missing ones initialised with seed {seed}"
