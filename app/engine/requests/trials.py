"""Requests before a run: a dry run on synthetic data, and a learning rate range test."""

from __future__ import annotations

from typing import ClassVar

from app.data.own_files.cache import Fact
from app.engine.protocol import Request
from app.training.events import Failed
from app.training.job import Job
from app.training.trials.results import DryRun, RateTest
from app.util.late_dataclass import dataclass


@dataclass(frozen=True)
class TryOnSyntheticData(Request[DryRun | Failed]):
    """Run two steps and a validation batch on synthetic data; `fact` describes the job's files."""

    lane: ClassVar[str] = "trials"
    job: Job
    fact: Fact | None


@dataclass(frozen=True)
class RangeTest(Request[RateTest]):
    """Run a learning rate range test, see `app.training.trials.lr_range_test`. Progress is the number of batches."""

    lane: ClassVar[str] = "trials"
    job: Job
    lowest: float
    highest: float
    batches: int
