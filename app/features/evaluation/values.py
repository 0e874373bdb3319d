"""Requests about a trained net: evaluate it, read samples, predict on an input that a person makes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from app.data.spec import Category, ColumnScale
from app.engine.protocol import Handle, Request
from app.engine.requests.capture import InitialWeights
from app.training.evaluation.result import Evaluation, Picture, Shown
from app.training.job import Job

Image = NDArray[np.float32]


class PictureFile(Struct, frozen=True):
    """A picture file as an input, read as the data's own reader does; `inverted` swaps dark and light."""

    path: Path
    inverted: bool = False


Entered = Image | PictureFile
Sample = Entered | Mapping[str, Entered]  # of several inputs by name


class DrawingStyle(Struct, frozen=True):
    """How drawings lie in pictures with a plain ground: the share of the side that they fill, whether it is their
    centre of mass that is in the middle or that of their outline, and whether they are dark on light."""

    fill: float
    by_mass: bool
    dark: bool


class InputSurvey(Struct, frozen=True, eq=False):
    """Statistics of the training samples: minimum, maximum and mean of every channel or column, names of the columns.

    They are in the units of the data; `scale` is that of standardised columns; `outputs` name values to predict.
    `categories` are texts, each of several of the columns. `drawing` is how drawings lie in pictures, None for others.
    If samples have several inputs, each of `parts` is of one, with its `name`, its dtype, its value in the `first`
    sample, and the texts of its integer codes; other fields are those of the first.
    """

    shape: tuple[int, ...]
    classes: tuple[str, ...]
    low: NDArray[np.float32]
    high: NDArray[np.float32]
    mean: NDArray[np.float32]
    columns: tuple[str, ...]
    unit: bool  # the net's answers are probabilities
    weights: str
    name: str = ""
    dtype: str = "float32"
    symbols: tuple[str, ...] = ()
    first: Image | None = None
    parts: tuple[InputSurvey, ...] = ()
    scale: ColumnScale | None = None
    outputs: tuple[str, ...] = ()
    categories: tuple[Category, ...] = ()
    drawing: DrawingStyle | None = None

    def scaled(self, values: Image) -> Image:
        """Return columns in the units of the data as the network gets them."""
        return values if self.scale is None else self.scale.scaled(values)

    def unscaled(self, values: Image) -> Image:
        """Return columns as the network gets them in the units of the data."""
        return values if self.scale is None else self.scale.unscaled(values)


class Prediction(Struct, frozen=True, eq=False):
    """The net's output for an input: a value per class (or output), the input as a picture, and activations as
    pictures."""

    values: NDArray[np.float32]
    seen: Picture | None
    layers: tuple[tuple[str, tuple[Picture, ...]], ...] = ()
    remark: str = ""  # about the picture file that was read
    unlike: str = ""  # how unlike the data the input is


class NewestStored(Struct, frozen=True):
    """Those of the newest stored run in a folder; initial ones if there is none."""

    folder: Path


class NamedWeightsFile(Struct, frozen=True):
    """A checkpoint or state_dict, its name, and the folder of the run that it is of."""

    path: Path
    name: str
    run: Path | None = None


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
