"""An evaluation of the weights of a stored run and its samples, and the requests for them."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from msgspec import Struct

from app.engine.protocol import Handle, Request
from app.training.evaluation.result import Evaluation, Picture


class RunEvaluation(Struct, frozen=True, eq=False):
    """What the weights of a run say of a part of its data.

    Samples of runs with the same `space` are the same ones if they have the same number: their row in the whole data,
    or in the part where rows are not known. `unit`: the net's outputs are probabilities. `checkpoint` identifies the
    file that the weights are from.
    """

    found: Evaluation
    space: str
    unit: bool
    checkpoint: str


class RunSample(Struct, frozen=True, eq=False):
    """A sample as a picture, or as text; for a target that is a picture, such as a mask, that one and the output.

    `note` compares them, as by IoU.
    """

    number: int
    picture: Picture | None
    text: str
    target: Picture | None = None
    output: Picture | None = None
    note: str = ""


class EvaluatedRun(Struct, frozen=True):
    """A run's net and data, held under `net`, and its evaluation."""

    net: Handle
    evaluation: RunEvaluation


class EvaluateRun(Request[EvaluatedRun], frozen=True):
    """Evaluate the best weights of a stored run on a part of its data, and store that in its folder; an evaluation of
    these weights that is stored there is taken. Progress is text. Raises RunError, JobError, DataError."""

    lane: ClassVar[str] = "evaluation"
    run: Path
    data_root: str
    part: str


class ShowRunSamples(Request[tuple[RunSample, ...]], frozen=True):
    """Return samples of an evaluated run, and its outputs where these are pictures."""

    lane: ClassVar[str] = "samples"
    net: Handle
    numbers: tuple[int, ...]
