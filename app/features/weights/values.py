"""Requests about weight files: compare with a net, import some keys, save those of a net."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from msgspec import Struct

from app.engine.protocol import Request
from app.engine.requests.capture import WeightsChoice
from app.project.weights.state_dict_diff import Infos, Suggestion
from app.source.generated import Source
from app.training.config import StartWeights
from app.util.frozen import FrozenMap


class WeightsBeside(Struct, frozen=True):
    """The tensors of a file and of the net; None if the net cannot be built yet.

    `notes` say how tensors were found; `parts` are the names of all state_dicts in the file.
    """

    infos: Infos
    notes: tuple[str, ...] = ()
    ours: Infos | None = None
    offers: tuple[Suggestion, ...] = ()
    parts: tuple[str, ...] = ()


class ReadWeights(Request[WeightsBeside], frozen=True):
    """Read a state_dict file and compare it with a net, if there is one. Progress is words."""

    lane: ClassVar[str] = (
        "weight files"  # which may be huge: saving does not wait for them
    )
    overtaken: ClassVar[bool] = True
    path: Path
    source: Source | None


class KeepWeights(Request[StartWeights], frozen=True):
    """Store tensors of a file as start weights of a net, by the net's `keys`; `names` maps keys of the net to those of
    the file."""

    lane: ClassVar[str] = "weights"
    path: Path
    source: Source
    keys: tuple[str, ...]
    names: FrozenMap[str, str] = FrozenMap()


class SaveWeights(Request[str], frozen=True):
    """Write weights of a net to a `.pt` or `.safetensors` file: initial ones where no run has any. Answers which, in
    words that follow "weights"."""

    lane: ClassVar[str] = "weights"
    path: Path
    source: Source
    seed: int
    start: StartWeights | None
    weights: WeightsChoice


class CountStart(Request[tuple[int, int]], frozen=True):
    """How many tensors of a net start from a file, and how many it has."""

    lane: ClassVar[str] = "shapes"
    start: StartWeights
    source: Source
