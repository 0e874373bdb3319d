"""Request: compare two models, one model in two modes, or two files of weights."""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar

from app.compare.modes import Modes
from app.compare.results import Difference
from app.engine.protocol import MAIN, Request
from app.engine.requests.observe import Observe
from app.source.generated import Source
from app.training.config import StartWeights
from app.util.late_dataclass import dataclass


@dataclass(frozen=True)
class DiffSide:
    """One of two things that are compared: `model` is the source of a model, or the text of a project's net, and None
    for weights alone. `weights` is a file of the program: a state_dict, or the checkpoint of a run; "" for those that
    the model is made with, of a project after `start`."""

    name: str
    model: Observe | Source | None = None
    weights: str = ""
    start: StartWeights | None = None

    @property
    def own_code(self) -> bool:
        """Return whether making it runs code that has to be trusted, in a process of its own."""
        if isinstance(self.model, Source):
            return self.model.own is not None
        return self.model is not None and self.model.source.own_code


@dataclass(frozen=True)
class Diff(Request[Difference]):
    """Make both models with `seed`, run them on the same batch, and say where they part. `trains` are the modes that
    are tried, False for eval. Without weights of its own a side gets the other's. With `modes`, B is A in another mode.

    Raises SourceError, ComparisonError and WeightsError; send it to an engine of its own, which runs the code of the
    models.
    """

    lane: ClassVar[str] = MAIN
    a: DiffSide
    b: DiffSide
    modes: Modes | None = None
    trains: tuple[bool, ...] = (False, True)
    batch: int = 2
    seed: int = 0
    numbers: bool = field(default=True)
