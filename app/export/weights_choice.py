"""Which weights an export takes: the one place where that is decided, for the window and for the command."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from app.rng import borrowed
from app.source import Source, make_module

if TYPE_CHECKING:
    from app.export.weights import StateDict


@dataclass(frozen=True)
class ExportWeights:
    """A state_dict that fits the net, and where it comes from, in words that follow "weights"."""

    state_dict: StateDict
    words: str


def weights_to_export(source: Source, seed: int, trained: Callable[[], StateDict] | None = None) -> ExportWeights:
    """The weights that go with the code of `source`: those of a run if there is one, else new ones drawn with `seed`.

    `trained` gives those of the run; it is called on the thread that exports.
    """
    if trained is not None:
        return ExportWeights(trained(), "trained")
    with borrowed(seed):
        return ExportWeights(make_module(source).state_dict(), f"untrained, drawn with seed {seed}")
