"""The plan of a surgery, and its request."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from app.engine.protocol import Request
from app.project.project import Project
from app.training.surgery.values import Outcome, Surgery


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
