"""Requests before runs, or before one is edited: a dry run on synthetic data, a range test, the plan of a
surgery.
"""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from app.data.own_files.cache import Fact
from app.engine.protocol import Request
from app.project.project import Project
from app.training.events import Failed
from app.training.job import Job
from app.training.surgery.values import Outcome, Surgery
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


class SurgeryPlan(Struct, frozen=True):
    """A surgery and its outcome on nets that were initialised for it; `same` if the edited net is that of the run."""

    surgery: Surgery
    outcome: Outcome
    same: bool = False


class PlanSurgery(Request[SurgeryPlan], frozen=True):
    """Compare the project of a run with the edited one, and try the surgery on random inputs. Raises SurgeryError."""

    lane: ClassVar[str] = "surgery"
    before: Project
    after: Project
