"""A run somewhere else, watched through the file that its lines go into: what `train.py --json` prints."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, BinaryIO, TypeVar

from app.engine.json_lines import Reader
from app.engine.remote_control import RemoteRunError
from app.source.generated import Source
from app.training.config import Choice, TrainingConfig
from app.training.control import Control, Ending, Result
from app.training.events import Event, Failed, Finished
from app.training.job import Job
from app.util.frozen import FrozenMap

if TYPE_CHECKING:
    from app.training.monitoring.live_model import LiveRun
    from app.training.run_requests import RunRequest

T = TypeVar("T")

EVERY = 0.1  # seconds between two looks at the file
AT_ONCE = 1 << 20  # bytes
NOTE = "Watched through its file: it was started elsewhere, and is paused and stopped there."


class WatchedRunControl(Control):
    """Ends the watching; the run itself is out of reach."""

    def pause(self) -> None:
        """Without effect."""

    def resume(self) -> None:
        """Without effect."""

    def step(self) -> None:
        """Without effect."""

    def rest(self, seconds: float) -> None:
        """Wait, unless the watching is to end."""
        with self._condition:
            self._condition.wait_for(lambda: self.stopping, seconds)

    def call(self, function: Callable[[LiveRun], T] | RunRequest[T]) -> Future[T]:
        """The future gets RemoteRunError."""
        future: Future[T] = Future()
        future.set_exception(RemoteRunError("This run is watched through its file and cannot be asked for that."))
        return future


def stand_in(path: Path) -> Job:
    """A job for a run of which only the lines are known: it has no net, and no names of what is not told."""
    unknown = Choice("–", FrozenMap())
    return Job(Source(""), training=TrainingConfig(optimizer=unknown, loss=unknown, device=path.name))


def follow(path: Path, control: WatchedRunControl | None = None, every: float = EVERY) -> Iterator[Event]:
    """The events of the lines of a file, those that are there and those to come, until the run or the watching ends.

    A file that is not there yet is waited for; one that was begun anew, or became shorter, is read from its start;
    a line that is not whole is left until it is. The time of a step is when it was read, since the watching began.
    """
    control = control or WatchedRunControl()
    tail, began, at = Tail(path), monotonic(), 0.0
    reader = Reader(lambda: at, NOTE)
    ending: Finished | Failed | None = None
    try:
        while not control.stopping:
            lines = tail.read()
            for line in lines:
                try:
                    event = reader.event(line)
                except ValueError:
                    continue  # what the script prints beside its lines
                ending = event if isinstance(event, Finished | Failed) else ending if event is None else None
                if event is not None and ending is None:
                    yield event
            if not lines and ending is not None:
                break
            if not tail.behind:
                control.rest(every)
                at = monotonic() - began
    finally:
        tail.close()
        state: Ending = "stopped" if ending is None else "failed" if isinstance(ending, Failed) else ending.reason
        control.finish(Result(state, reader.epoch, reader.step, None))
    yield ending or Finished("stopped", reader.epoch, reader.step, at, "the run itself goes on where it was started")


class Tail:
    """The whole lines that a file has got since the last look. `behind`: there is more to be read at once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self._rest = b""
        self.behind = False

    def read(self) -> list[bytes]:
        """None of a file that is not there or cannot be read just now."""
        try:
            file = self._opened()
            data = file.read(AT_ONCE)
        except OSError:
            self.close()
            return []
        self.behind = len(data) == AT_ONCE
        whole, _, self._rest = (self._rest + data).rpartition(b"\n")
        if len(self._rest) > AT_ONCE:
            self._rest = b""  # nothing of ours has such lines
        return whole.split(b"\n") if whole else []

    def _opened(self) -> BinaryIO:
        """The file, from its start if it is another one now or became shorter. Raises OSError."""
        there = self._path.stat()
        if self._file is not None:
            here = os.fstat(self._file.fileno())
            if (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino) and there.st_size >= self._file.tell():
                return self._file
            self.close()
        self._file, self._rest = self._path.open("rb"), b""
        return self._file

    def close(self) -> None:
        """Let go of the file; the next look opens it anew."""
        if self._file is not None:
            self._file.close()
        self._file, self.behind = None, False
