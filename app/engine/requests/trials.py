"""Requests before a run, or before it is edited: a dry run on synthetic data, a range test, the plan of a surgery."""

from __future__ import annotations

from typing import ClassVar

from app.data.own_files.cache import Fact
from app.engine.protocol import Request
from app.project.project import Project
from app.training.events import Failed
from app.training.job import Job
from app.training.surgery.values import Outcome, Surgery
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


@dataclass(frozen=True)
class SurgeryPlan:
    """A surgery and its outcome on nets that were initialised for it; `same` if the edited net is that of the run."""

    surgery: Surgery
    outcome: Outcome
    same: bool = False


@dataclass(frozen=True)
class PlanSurgery(Request[SurgeryPlan]):
    """Compare the project of a run with the edited one, and try the surgery on random inputs. Raises SurgeryError."""

    lane: ClassVar[str] = "surgery"
    before: Project
    after: Project
