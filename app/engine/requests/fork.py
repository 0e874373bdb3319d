"""Request: checkpoint and job of a fork that leaves out the batch of a step."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from msgspec import Struct

from app.engine.protocol import Request
from app.project.project import Project
from app.training.job import Job


class Fork(Struct, frozen=True):
    """The project of every stage of a run with a step in `leave_out`, its job, and the checkpoint to resume from, in a
    stage from 1: None for the start of the run. `passed_over` lists nearer checkpoints that are unusable."""

    projects: tuple[Project, ...]
    stage: int
    job: Job
    checkpoint: Path | None
    checkpoint_step: int
    passed_over: tuple[str, ...]

    @property
    def project(self) -> Project:
        """The project of the stage in which the fork starts."""
        return self.projects[self.stage - 1]


class ForkWithout(Request[Fork], frozen=True):
    """Prepare a fork of a stored run that leaves out the batch of a step. Raises RunError and JobError."""

    lane: ClassVar[str] = "runs"
    run: Path
    step: int
    data_root: str
