"""Requests about a trained net: evaluate it, read samples, predict on an input, show activations."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from app.engine.protocol import Handle, Request
from app.engine.requests.autograd.capture import InitialWeights, WeightsChoice
from app.training.evaluation.result import Evaluation
from app.training.evaluation.trying import Image, InputSurvey, Prediction, Sample, Shown
from app.training.job import Job
from app.training.monitoring.looks import LayerInside
from app.util.late_dataclass import dataclass


@dataclass(frozen=True)
class NewestStored:
    """Those of the newest stored run in a folder; initial ones if there is none."""

    folder: Path


@dataclass(frozen=True)
class NamedWeightsFile:
    """A checkpoint or state_dict, and its name."""

    path: Path
    name: str


Weights = InitialWeights | NewestStored | NamedWeightsFile


@dataclass(frozen=True)
class EvaluationScope:
    """The samples to evaluate on, and the test-time augmentations to average over."""

    part: str
    augment: tuple[str, ...] = ()


@dataclass(frozen=True)
class PreparedEvaluation:
    """A prepared net, held under `net`, the survey of its data, and the evaluation if there was one."""

    net: Handle
    survey: InputSurvey
    found: Evaluation | None


@dataclass(frozen=True)
class PrepareEvaluation(Request[PreparedEvaluation]):
    """Prepare a net and, with a scope, evaluate it; progress is text.

    Data of the previously prepared net are reused if they are the same.
    """

    lane: ClassVar[str] = "evaluation"
    job: Job
    weights: Weights
    scope: EvaluationScope | None


@dataclass(frozen=True)
class ShowSamples(Request[tuple[Shown, ...]]):
    """Samples of the evaluation of a net."""

    lane: ClassVar[str] = "samples"
    net: Handle
    numbers: tuple[int, ...]


@dataclass(frozen=True)
class ReadSample(Request[Image | Mapping[str, Image]]):
    """A sample of the evaluation, as the net gets it."""

    lane: ClassVar[str] = "samples"
    net: Handle
    number: int


@dataclass(frozen=True)
class TryInput(Request[Prediction]):
    """Predict for one input, and return channels of the first layers."""

    lane: ClassVar[str] = "samples"
    net: Handle
    sample: Sample


@dataclass(frozen=True)
class ReadActivations(Request[LayerInside]):
    """Return activations and filters of a layer for a training sample."""

    lane: ClassVar[str] = "samples"
    job: Job
    weights: WeightsChoice
    layer: str
    sample: int
