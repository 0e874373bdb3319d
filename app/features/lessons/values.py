"""The request that grades a hand-in, and what comes of it."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from app.engine.protocol import MAIN, Request
from app.project.project import Project


class GoalVerdict(Struct, frozen=True):
    """A goal of a hand-in: whether it is reached, what is there, and what was wanted; `measured` whether that was
    measured on the project again, else it is what the hand-in records."""

    goal: str
    passed: bool
    seen: str
    wanted: str
    measured: bool


class Graded(Struct, frozen=True):
    """The goals of one hand-in; `error` is why some of them could not be judged, "" for none. `student` is the name in
    it, `seed` what that gave in a lesson with a seed for each student.
    """

    goals: tuple[GoalVerdict, ...] = ()
    error: str = ""
    student: str = ""
    seed: int | None = None


class Grade(Request[Graded], frozen=True):
    """Grade a project by the text of a lesson; the run that goals ask for is trained. No code of the project runs."""

    lane: ClassVar[str] = MAIN
    lesson: str
    name: str
    project: Project
