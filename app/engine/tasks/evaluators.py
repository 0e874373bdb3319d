"""A net with its weights and data, for handlers that evaluate it."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping

from torch import Tensor

from app.data.spec import ReadingCancelledError
from app.engine.server import Context
from app.engine.tasks.pace import Pace
from app.training.evaluation.evaluator import EvaluationCancelledError, Evaluator
from app.training.job import Job

_newest: weakref.ref[Evaluator] | None = None  # its data are reused while it is alive


def make_evaluator(
    job: Job, weights: Mapping[str, Tensor] | None, context: Context
) -> Evaluator:
    """Create an evaluator, with the data of the newest one if they are the same; progress is text. Raises JobError,
    DataError and EvaluationCancelledError."""
    global _newest
    pace = Pace()

    def reading(done: int, total: int, name: str) -> None:
        if context.cancelled():
            raise ReadingCancelledError
        if pace.due():
            context.progress(f"Reading {name}, {done:,} of {total:,}")

    old = _newest() if _newest is not None else None
    same = old is not None and (old.job.data, old.job.data_root) == (
        job.data,
        job.data_root,
    )
    evaluator = Evaluator(
        job, weights, old.data if old is not None and same else None, reading
    )
    if context.cancelled():
        raise EvaluationCancelledError
    _newest = weakref.ref(evaluator)
    return evaluator


def tell_samples(context: Context) -> Callable[[int, int], None]:
    """Return what reports the progress of an evaluation as text."""
    pace = Pace()

    def watch(done: int, total: int) -> None:
        if pace.due():
            context.progress(f"{done:,} of {total:,} samples")

    return watch
