"""What is asked of a net with its weights and data: an evaluation, samples of it, and what it makes of an input."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from app.engine.protocol import Handle, Request
from app.engine.requests.capture import WeightsChoice
from app.training.evaluation.result import Evaluation
from app.training.evaluation.trying import Answer, Image, Shown, Survey
from app.training.job import Job
from app.training.monitoring.looks import LayerInside


@dataclass(frozen=True)
class InitialWeights:
    """Those that a run of the job begins with."""


@dataclass(frozen=True)
class NewestKept:
    """Those of the newest run in a folder of kept runs; initial ones where there is none."""

    folder: Path


@dataclass(frozen=True)
class WeightsFile:
    """A checkpoint, or a state_dict, and what it is called."""

    path: Path
    name: str


Weights = InitialWeights | NewestKept | WeightsFile


@dataclass(frozen=True)
class Scope:
    """Which samples a net is evaluated on, and over which changed copies of them its answers are averaged."""

    part: str
    augment: tuple[str, ...] = ()


@dataclass(frozen=True)
class Prepared:
    """A net that is ready under `net`, what its data are like, and what was found, if it was evaluated."""

    net: Handle
    survey: Survey
    found: Evaluation | None


@dataclass(frozen=True)
class Prepare(Request[Prepared]):
    """Make a net ready, and evaluate it in a scope if there is one; says how far it is, in words.

    Data of a net that is kept are taken again if they are the same.
    """

    lane: ClassVar[str] = "evaluation"
    job: Job
    weights: Weights
    scope: Scope | None


@dataclass(frozen=True)
class ShowSamples(Request[tuple[Shown, ...]]):
    """Samples of the evaluation of a net."""

    lane: ClassVar[str] = "samples"
    net: Handle
    numbers: tuple[int, ...]


@dataclass(frozen=True)
class ReadSample(Request[Image]):
    """A sample of the evaluation, as the net gets it."""

    lane: ClassVar[str] = "samples"
    net: Handle
    number: int


@dataclass(frozen=True)
class TryInput(Request[Answer]):
    """What a net makes of an input without the batch, and channels of its first layers."""

    lane: ClassVar[str] = "samples"
    net: Handle
    sample: Image


@dataclass(frozen=True)
class LookInside(Request[LayerInside]):
    """Activations and filters of a layer for a training sample, with the weights that are chosen."""

    lane: ClassVar[str] = "samples"
    job: Job
    weights: WeightsChoice
    layer: str
    sample: int
