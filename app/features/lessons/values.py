"""The request that grades a hand-in, and what comes of it."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from app.engine.protocol import MAIN, Request
from app.project.project import Project


class GoalVerdict(Struct, frozen=True):
    """A goal of a hand-in: whether it is reached, what is there, and what was wanted."""

    goal: str
    passed: bool
    seen: str
    wanted: str


class Graded(Struct, frozen=True):
    """The goals of one hand-in; `error` is why some of them could not be judged, "" for none."""

    goals: tuple[GoalVerdict, ...] = ()
    error: str = ""


class Grade(Request[Graded], frozen=True):
    """Grade a project by the text of a lesson; the run that goals ask for is trained. No code of the project runs."""

    lane: ClassVar[str] = MAIN
    lesson: str
    name: str
    project: Project
