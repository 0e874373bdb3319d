"""A run as one long question: its events are told as lists of them, and what is sent to its inbox are hands on it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar

from app.engine.protocol import MAIN, Request
from app.training.control import Ending
from app.training.job import Job
from app.training.monitoring.watch_points import WatchPoints


class Hand(Enum):
    """What a run can be told in one word."""

    PAUSE = "pause"
    RESUME = "resume"
    STEP = "step"
    STOP = "stop"


@dataclass(frozen=True)
class Watch:
    """Pause by itself at these points."""

    points: WatchPoints


@dataclass(frozen=True)
class Order:
    """One of `app.training.run_requests`, or WriteWeights; Answered with the same number."""

    number: int
    what: Any


@dataclass(frozen=True)
class WriteWeights:
    """Leave a copy of the weights in a file."""

    path: Path


@dataclass(frozen=True)
class Answered:
    """What came of an order, or why nothing did; told among the lists of events."""

    number: int
    value: Any
    error: Exception | None = None


@dataclass(frozen=True)
class Trained:
    """How a run ended, and the file of its weights."""

    ending: Ending
    epoch: int
    step: int
    weights: Path | None


@dataclass(frozen=True)
class Train(Request[Trained]):
    """Carry out a run, from the checkpoint `resume` on, with checkpoints in `folder`. What was `said` before there was
    anybody to hear it holds from the first batch on. `scratch` gets the mark of where it stands, and the weights.
    """

    lane: ClassVar[str] = MAIN
    left_alone: ClassVar[float] = 10.0
    job: Job
    scratch: Path
    threads: int | None = None
    folder: Path | None = None
    resume: Path | None = None
    said: tuple[Hand | Watch | Order, ...] = ()
