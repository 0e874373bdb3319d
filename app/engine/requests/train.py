"""Request: a whole run. Its progress are lists of events; commands arrive in its inbox."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Any, ClassVar

from msgspec import Struct

from app.engine.protocol import MAIN, Request
from app.training.control import Ending
from app.training.job import Job
from app.training.monitoring.watch_points import WatchPoints


class RunCommand(Enum):
    """Commands without arguments."""

    PAUSE = "pause"
    RESUME = "resume"
    STEP = "step"
    STOP = "stop"


class SetWatchPoints(Struct, frozen=True):
    """Set the watch points at which the run pauses."""

    points: WatchPoints


class Order(Struct, frozen=True):
    """One of `app.training.run_requests`, or WriteWeights; answered by Answered with the same number."""

    number: int
    what: Any


class WriteWeights(Struct, frozen=True):
    """Leave a copy of the weights in a file."""

    path: Path


class Answered(Struct, frozen=True):
    """Result or error of an order, sent as progress among the lists of events."""

    number: int
    value: Any
    error: Exception | None = None


class Trained(Struct, frozen=True):
    """How a run ended, and the file of its weights."""

    ending: Ending
    epoch: int
    step: int
    weights: Path | None


class RankOf(Struct, frozen=True):
    """One of `count` processes, the `rank`-th from 0; they meet over the file `store`."""

    rank: int
    count: int
    store: Path


class Train(Request[Trained], frozen=True):
    """Run training, from the checkpoint `resume` if given, with checkpoints in `folder`. Commands in `said` were given
    before the engine was ready and apply from the first batch. `scratch` receives the progress mark and the weights. Of
    the time, `hash_share` is for hashes of gradients. With `ranks` this is one of several processes of the run.
    """

    lane: ClassVar[str] = MAIN
    left_alone: ClassVar[float] = 10.0
    job: Job
    scratch: Path
    threads: int | None = None
    folder: Path | None = None
    resume: Path | None = None
    said: tuple[RunCommand | SetWatchPoints | Order, ...] = ()
    hash_share: float | None = None
    ranks: RankOf | None = None


class ResumeHint(Request[str], frozen=True):
    """Describe the checkpoint from which a crashed run can be resumed, given its folder of checkpoints and the one it
    started from."""

    lane: ClassVar[str] = MAIN
    folder: Path | None
    resumed: Path | None
