"""The request that grades a hand-in, and what comes of it."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from app.engine.protocol import MAIN, Request
from app.project.project import Project

MEASURED, FROM_RECORD = "measured", "from the record"


class GoalVerdict(Struct, frozen=True):
    """A goal of a hand-in: whether it is reached, what is there, and what was wanted. `evidence` is MEASURED on the
    project again, or what the hand-in records (FROM_RECORD)."""

    goal: str
    passed: bool
    seen: str
    wanted: str
    evidence: str


class Graded(Struct, frozen=True):
    """The goals of one hand-in; `error` is why some of them could not be judged, "" for none. `student` is the name in
    it, `seed` what that gave in a lesson with a seed for each student.
    """

    goals: tuple[GoalVerdict, ...] = ()
    error: str = ""
    student: str = ""
    seed: int | None = None


class Grade(Request[Graded], frozen=True):
    """Grade a project by the text of a lesson; the run that goals ask for is trained, the tape captured. `start` is the
    project that the lesson begins with, None for none. No code of the project runs."""

    lane: ClassVar[str] = MAIN
    lesson: str
    name: str
    project: Project
    start: Project | None = None
