"""Watch a run elsewhere through the file of its JSON lines, as `train.py --json` prints them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

import msgspec

from app.engine.json_lines import Reader
from app.engine.remote_control import RemoteRunError
from app.engine.watched.script_link import ScriptLink
from app.engine.watched.script_ranks import ranks_of
from app.source.generated import Source
from app.training.config import Choice, TrainingConfig
from app.training.control import Control, Ending, Result
from app.training.events import Event, Failed, Finished
from app.training.job import Job
from app.training.run_requests import SetRate
from app.util.frozen import FrozenMap

if TYPE_CHECKING:
    from app.training.monitoring.live_model import LiveRun
    from app.training.run_requests import RunRequest

T = TypeVar("T")

EVERY = 0.1  # seconds between two polls of the file
RANKS_EVERY = 1.0  # seconds
AT_ONCE = 1 << 20  # bytes
_BEGINS = b'{"event": "script"'
GONE = "the script ended without a final event"
LEFT = "the run itself continues where it was started"
NOTE = "Watched through its file: it was started elsewhere, and is paused and stopped there."


class WatchedRunControl(Control):
    """Control of a watched run: ends the watching. Only scripts under `tapedeck run` can be paused and given rates."""

    def __init__(self) -> None:
        super().__init__()
        self._link: ScriptLink | None = None
        self.where: Mapping[str, Any] = {}  # the "script" frame of the script that is connected
        self._missing = False  # it says where it listens, and does not
        self.ranks: Mapping[int, Path] = {}  # the frames of all ranks by rank, where the script has several
        self._ranks_due = 0.0

    @property
    def commands(self) -> bool:  # type: ignore[override]
        """Return whether the script accepts commands."""
        return self._link is not None and not self._link.ended

    def connect(self, where: Mapping[str, Any]) -> None:
        """Connect to the script of a "script" frame, if it still listens."""
        self.disconnect()
        self.ranks, self._ranks_due = {}, 0.0
        try:
            self._link, self._missing, self.where = ScriptLink(where), False, where
        except (OSError, KeyError):
            self._link, self._missing = None, "socket" in where or "port" in where
            return
        if where.get("rank"):
            self._link.send("speak")  # rank 0 alone does so unasked

    def disconnect(self) -> None:
        """Disconnect from the script, which continues if it was paused from here."""
        if self._link is not None:
            self._link.close()

    def poll(self) -> bool:
        """Take the answers of the script; whether it has ended since it was reached."""
        if self._link is None:
            return self._missing
        self._link.poll()
        return self._link.ended

    def look_for_ranks(self, path: Path) -> None:
        """Find the frames files of the other ranks, which start at different times."""
        now = monotonic()
        if self.commands and now >= self._ranks_due and len(self.ranks) < int(self.where.get("world") or 1):
            self._ranks_due = now + RANKS_EVERY
            self.ranks = ranks_of(path, self.where)

    def pause(self) -> None:
        """Pause a connected script after the current step."""
        self._command("pause")

    def resume(self) -> None:
        """Resume a paused script."""
        self._command("resume")

    def step(self) -> None:
        """Let a script take one step, and pause then; of no effect elsewhere."""
        self._command("step")

    def ask(self, do: str, **fields: Any) -> Future[dict[str, Any]]:
        """Send a command to a script; the future has its answer, or RemoteRunError."""
        if self._link is None or self._link.ended:
            future: Future[dict[str, Any]] = Future()
            future.set_exception(RemoteRunError("This run takes no commands: only a script under `tapedeck run` does."))
            return future
        return self._link.send(do, **fields)

    def _command(self, do: str) -> None:
        if self._link is not None and not self._link.ended:
            self._link.send(do)

    def rest(self, seconds: float) -> None:
        """Wait, unless the watching is to end."""
        with self._condition:
            self._condition.wait_for(lambda: self.stopping, seconds)

    def call(self, function: Callable[[LiveRun], T] | RunRequest[T]) -> Future[T]:
        """Set a learning rate of a script; for all else the future gets RemoteRunError."""
        future: Future[T] = Future()
        if isinstance(function, SetRate) and self._link is not None and not self._link.ended:
            answer = self._link.send("rate", rate=function.rate, group=function.group)
            answer.add_done_callback(lambda done: _pass_on(done, future))
        else:
            words = "This run is watched through its file and cannot be asked for that."
            future.set_exception(RemoteRunError(words))
        return future


def _pass_on(done: Future[dict[str, Any]], future: Future[Any]) -> None:
    error = done.exception()
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(done.result().get("before"))


def stand_in(path: Path) -> Job:
    """Return a job for a run that is known by its JSON lines only: without a net, with unknown names."""
    unknown = Choice("–", FrozenMap())
    return Job(Source(""), training=TrainingConfig(optimizer=unknown, loss=unknown, device=path.name))


def follow(path: Path, control: WatchedRunControl | None = None, every: float = EVERY) -> Iterator[Event]:
    """Yield the events of the lines of a file, present and future ones, until the run or the watching ends.

    Waits for a missing file; reads a replaced or truncated one from its start, and an incomplete line once it is
    complete. The time of a step is when it was read, since the watching began.
    """
    control = control or WatchedRunControl()
    tail, began, at = Tail(path), monotonic(), 0.0

    def now() -> float:
        return at

    reader = Reader(now, NOTE, timed=False)
    ending: Finished | Failed | None = None
    note = LEFT
    try:
        while not control.stopping:
            gone = control.poll()
            lines = tail.read()
            for line in lines:
                if line.startswith(_BEGINS):
                    control.connect(_script(line))
                    reader = Reader(now)
                try:
                    event = reader.event(line)
                except ValueError:
                    continue  # what the script prints beside its lines
                ending = event if isinstance(event, Finished | Failed) else ending if event is None else None
                if event is not None and ending is None:
                    yield event
            if not lines and (ending is not None or gone):
                note = GONE
                break
            if not tail.behind:
                control.look_for_ranks(path)
                control.rest(every)
                at = monotonic() - began
    finally:
        tail.close()
        control.disconnect()
        state: Ending = "stopped" if ending is None else "failed" if isinstance(ending, Failed) else ending.reason
        control.finish(Result(state, reader.epoch, reader.step, None))
    yield ending or Finished("stopped", reader.epoch, reader.step, at, note)


def _script(line: bytes) -> Mapping[str, Any]:
    """Return the fields of a "script" frame; none of an incomplete line."""
    with suppress(msgspec.DecodeError):
        return msgspec.json.decode(line, type=dict[str, Any])
    return {}


class Tail:
    """Reads the complete lines appended to a file since the last read. `behind`: more can be read at once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self._rest = b""
        self.behind = False

    def read(self) -> list[bytes]:
        """Return the new complete lines; none of a file that is missing or cannot be read."""
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
        """Return the open file, from its start if it was replaced or truncated. Raises OSError."""
        there = self._path.stat()
        if self._file is not None:
            here = os.fstat(self._file.fileno())
            if (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino) and there.st_size >= self._file.tell():
                return self._file
            self.close()
        self._file, self._rest = self._path.open("rb"), b""
        return self._file

    def close(self) -> None:
        """Close the file; the next read opens it again."""
        if self._file is not None:
            self._file.close()
        self._file, self.behind = None, False
