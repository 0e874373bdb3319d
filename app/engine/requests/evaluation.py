"""Requests about a trained net: evaluate it, read samples, predict on an input, show activations."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from msgspec import Struct

from app.engine.protocol import Handle, Request
from app.engine.requests.capture import InitialWeights, WeightsChoice
from app.training.evaluation.result import Evaluation
from app.training.evaluation.trying import Image, InputSurvey, Prediction, Sample, Shown
from app.training.job import Job
from app.training.monitoring.looks import LayerInside, StepLayer


class NewestStored(Struct, frozen=True):
    """Those of the newest stored run in a folder; initial ones if there is none."""

    folder: Path


class NamedWeightsFile(Struct, frozen=True):
    """A checkpoint or state_dict, and its name."""

    path: Path
    name: str


Weights = InitialWeights | NewestStored | NamedWeightsFile


class EvaluationScope(Struct, frozen=True):
    """The samples to evaluate on, and the test-time augmentations to average over."""

    part: str
    augment: tuple[str, ...] = ()


class PreparedEvaluation(Struct, frozen=True):
    """A prepared net, held under `net`, the survey of its data, and the evaluation if there was one."""

    net: Handle
    survey: InputSurvey
    found: Evaluation | None


class PrepareEvaluation(Request[PreparedEvaluation], frozen=True):
    """Prepare a net and, with a scope, evaluate it; progress is text.

    Data of the previously prepared net are reused if they are the same.
    """

    lane: ClassVar[str] = "evaluation"
    job: Job
    weights: Weights
    scope: EvaluationScope | None


class ShowSamples(Request[tuple[Shown, ...]], frozen=True):
    """Samples of the evaluation of a net."""

    lane: ClassVar[str] = "samples"
    net: Handle
    numbers: tuple[int, ...]


class ReadSample(Request[Image | Mapping[str, Image]], frozen=True):
    """A sample of the evaluation, as the net gets it."""

    lane: ClassVar[str] = "samples"
    net: Handle
    number: int


class TryInput(Request[Prediction], frozen=True):
    """Predict for one input, and return channels of the first layers."""

    lane: ClassVar[str] = "samples"
    net: Handle
    sample: Sample


class ReadActivations(Request[LayerInside], frozen=True):
    """Return activations and filters of a layer for a training sample."""

    lane: ClassVar[str] = "samples"
    job: Job
    weights: WeightsChoice
    layer: str
    sample: int


class LookIntoStep(Request[StepLayer], frozen=True):
    """Return a module's values at a recomputed step, for a sample of its batch, from 0.

    Raises AttributeError for a module that the net has not.
    """

    lane: ClassVar[str] = "past step"
    held: Handle
    layer: str
    sample: int
