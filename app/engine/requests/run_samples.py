"""Requests about samples of stored runs: evaluate a run's weights, and show samples with its predictions."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from msgspec import Struct

from app.engine.protocol import Handle, Request
from app.training.evaluation.of_run import RunEvaluation, RunSample


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
