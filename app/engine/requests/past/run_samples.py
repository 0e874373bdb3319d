"""Requests about samples of stored runs: evaluate a run's weights, and show samples with its predictions."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from app.engine.protocol import Handle, Request
from app.training.evaluation.of_run import RunEvaluation, RunSample
from app.util.late_dataclass import dataclass


@dataclass(frozen=True)
class EvaluatedRun:
    """A run's net and data, held under `net`, and its evaluation."""

    net: Handle
    evaluation: RunEvaluation


@dataclass(frozen=True)
class EvaluateRun(Request[EvaluatedRun]):
    """Evaluate the best weights of a stored run on a part of its data, and store that in its folder; an evaluation of
    these weights that is stored there is taken. Progress is text. Raises RunError, JobError, DataError."""

    lane: ClassVar[str] = "evaluation"
    run: Path
    data_root: str
    part: str


@dataclass(frozen=True)
class ShowRunSamples(Request[tuple[RunSample, ...]]):
    """Return samples of an evaluated run, and its outputs where these are pictures."""

    lane: ClassVar[str] = "samples"
    net: Handle
    numbers: tuple[int, ...]
