"""Requests before runs, or before one is edited: a dry run on synthetic data, and a range test."""

from __future__ import annotations

from typing import ClassVar

from app.data.own_files.cache import Fact
from app.engine.protocol import Request
from app.training.events import Failed
from app.training.job import Job
from app.training.trials.results import DryRun, RateTest


class TryOnSyntheticData(Request[DryRun | Failed], frozen=True):
    """Run two steps and a validation batch on synthetic data; `fact` describes the job's files."""

    lane: ClassVar[str] = "trials"
    job: Job
    fact: Fact | None


class RangeTest(Request[RateTest], frozen=True):
    """Run a learning rate range test, see `app.training.trials.lr_range_test`. Progress is the number of batches."""

    lane: ClassVar[str] = "trials"
    job: Job
    lowest: float
    highest: float
    batches: int
