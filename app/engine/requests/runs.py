"""Requests about stored runs: resume, start from a checkpoint, TensorBoard event files."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from msgspec import Struct

from app.engine.protocol import Handle, Request
from app.project.project import Project
from app.runs.checkpoint_files import GoingOn
from app.runs.record import Changed
from app.training.config import StartWeights
from app.training.events import Event
from app.training.job import Job


class Resumable(Struct, frozen=True):
    """What a run needs to resume: the project of every stage, the one that it resumes in, from 1, and the job.

    `passed_over` lists newer checkpoints that are unusable. `changed` are the settings that were taken in place of the
    run's own, and `others` those that were not, with both values by name; `refusal` says why these cannot be taken.
    """

    projects: tuple[Project, ...]
    stage: int
    job: Job
    checkpoint: Path
    passed_over: tuple[str, ...]
    changed: Changed | None = None
    others: tuple[str, ...] = ()
    refusal: str = ""

    @property
    def project(self) -> Project:
        """The project of the stage that the run resumes in."""
        return self.projects[self.stage - 1]


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


class FindResumable(Request[Resumable], frozen=True):
    """Find the settings and newest checkpoint of a run; a finished run takes the limits of the project `now`, and with
    `takes` any run takes all its settings. Raises RunError.
    """

    lane: ClassVar[str] = "runs"
    run: Path
    now: Project
    data_root: str
    takes: bool = False


class GoOnFrom(Request[GoingOn], frozen=True):
    """Return the state of a run at a checkpoint and drop later checkpoints. Raises RunError."""

    lane: ClassVar[str] = "runs"
    run: Path
    checkpoint: Path


class StartFrom(Request[StartWeights], frozen=True):
    """The weights of a checkpoint as start weights of that name. Raises RunError."""

    lane: ClassVar[str] = "runs"
    checkpoint: Path
    name: str


class ExportEventFiles(Request[Path], frozen=True):
    """Write a run as event files below a folder; answers where. Raises RunError, DataError."""

    lane: ClassVar[str] = "runs"
    run: Path
    folder: Path
    data_root: str


class BeginEventFiles(Request[Handle], frozen=True):
    """Begin event files of a run in its folder; the handle receives its events. Raises RunError, DataError."""

    lane: ClassVar[str] = "event files"
    run: Path
    job: Job


class WriteEvents(Request[None], frozen=True):
    """Append events of the run."""

    lane: ClassVar[str] = "event files"
    files: Handle
    events: tuple[Event, ...]


class EndEventFiles(Request[None], frozen=True):
    """Close the event files."""

    lane: ClassVar[str] = "event files"
    files: Handle
