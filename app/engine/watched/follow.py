"""Watch a run elsewhere through the file of its JSON lines, as `train.py --json` prints them."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from app.engine.remote_control import RemoteRunError
from app.engine.watched import frame_types
from app.engine.watched.frame_types import first_frame, ranks_of
from app.engine.watched.reader import Reader
from app.engine.watched.script_link import ScriptLink
from app.source.generated import Source
from app.training.config import Choice, TrainingConfig
from app.training.control import Control, Ending, Result, failed
from app.training.events import Event, Failed, Finished, Noticed, Paused
from app.training.job import Job
from app.training.run_requests import SetRate
from app.util import regular_files
from app.util.frozen import FrozenMap
from tapedeck.frames import Script

if TYPE_CHECKING:
    from app.training.monitoring.live_model import LiveRun
    from app.training.run_requests import RunRequest

T = TypeVar("T")

EVERY = 0.1  # seconds between two polls of the file
RANKS_EVERY = 1.0  # seconds
AT_ONCE = 1 << 20  # bytes
LONGEST_LINE = 1 << 26  # bytes
_BEGINS = b'{"event": "script"'
GONE = "the script was killed or crashed: it could not say how it ended"
LEFT = "it continues where it was started"
CHOOSE = "Choose the frames.jsonl of a script under `tapedeck run`, or a file of what train.py --json prints."
NOTE = "Watched through its file: it was started elsewhere, and is paused and stopped there."


class WatchedRunControl(Control):
    """Control of a watched run: ends the watching, and one that is `owned` first. Only scripts under `tapedeck run` can
    be paused and given rates.
    """

    def __init__(self, owned: bool = False) -> None:
        super().__init__()
        self._owned, self._interrupted = owned, False
        self._holds = False  # a pause was asked for that has not come yet
        self._link: ScriptLink | None = None
        self.folder = Path()  # of the frames of the script that is connected
        self._script: Script | None = None
        self._missing = False  # it says that it listens, and does not
        self.ranks: Mapping[
            int, Path
        ] = {}  # the frames of all ranks by rank, where the script has several
        self._ranks_due = 0.0

    @property
    def commands(self) -> bool:  # type: ignore[override]
        """Return whether the script accepts commands."""
        return self._link is not None and not self._link.ended

    def connect(self, path: Path, script: Script) -> None:
        """Connect to the script that writes the frames of a file, if it still listens."""
        self.disconnect()
        self.ranks, self._ranks_due = {}, 0.0
        self._link, self._missing = None, False
        if not script.commands:
            return
        try:
            self._link, self.folder, self._script = (
                ScriptLink(path.parent),
                path.parent,
                script,
            )
        except OSError:
            self._missing = True
            return
        if script.rank:
            self._link.send("speak")  # rank 0 alone does so unasked
        if self._interrupted:
            self._link.send("interrupt")
        elif self._holds:
            self._link.send("pause")

    def disconnect(self) -> None:
        """Disconnect from the script, which continues if it was paused from here."""
        if self._link is not None:
            self._link.close()

    def note(self, event: Event) -> None:
        """Heed what the script tells of itself."""
        if isinstance(event, Paused):
            self._holds = False

    def poll(self) -> bool:
        """Take the answers of the script; whether it has ended since it was reached."""
        if self._link is None:
            return self._missing
        self._link.poll()
        return self._link.ended

    def look_for_ranks(self, path: Path) -> None:
        """Find the frames files of the other ranks, which start at different times."""
        now, script = monotonic(), self._script
        if (
            script is not None
            and self.commands
            and now >= self._ranks_due
            and len(self.ranks) < script.world
        ):
            self._ranks_due = now + RANKS_EVERY
            self.ranks = ranks_of(path, script)

    def stop(self) -> None:
        """End the watching; an owned run is interrupted between two steps, and only the second call leaves it."""
        if not self._owned or self._interrupted or self.stopping:
            super().stop()
            return
        self._interrupted = True
        self._command("interrupt")

    def leave(self) -> None:
        """End the watching; the run goes on."""
        super().stop()

    def pause(self) -> None:
        """Pause a connected script after the current step."""
        self._holds = True
        self._command("pause")

    def resume(self) -> None:
        """Resume a paused script."""
        self._holds = False
        self._command("resume")

    def step(self) -> None:
        """Let a script take one step, and pause then; of no effect elsewhere."""
        self._command("step")

    def ask(self, do: str, **fields: Any) -> Future[dict[str, Any]]:
        """Send a command to a script; the future has its answer, or RemoteRunError."""
        if self._link is None or self._link.ended:
            return failed(
                RemoteRunError(
                    "This run takes no commands: only a script under `tapedeck run` does."
                )
            )
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
        if not isinstance(function, SetRate) or self._link is None or self._link.ended:
            message = (
                "This run is watched through its file and cannot be asked for that."
            )
            return failed(RemoteRunError(message))
        future: Future[T] = Future()
        answer = self._link.send("rate", rate=function.rate, group=function.group)
        answer.add_done_callback(lambda done: _pass_on(done, future))
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
    return Job(
        Source(""),
        training=TrainingConfig(optimizer=unknown, loss=unknown, device=path.name),
    )


def follow(
    path: Path, control: WatchedRunControl | None = None, every: float = EVERY
) -> Iterator[Event]:
    """Yield the events of the lines of a file, present and future ones, until the run or the watching ends.

    Waits for a missing file; reads a replaced or truncated one from its start, and an incomplete line once it is
    complete. The time of a step is when it was read, since the watching began.
    """
    control = control or WatchedRunControl()
    tail, began, at = Tail(path), monotonic(), 0.0

    def now() -> float:
        return at

    lines = _Lines(path, Reader(now, NOTE, timed=False))
    ending: Finished | Failed | None = None
    last = Finished("left", 0, 0, 0.0, LEFT)
    try:
        while not control.stopping:
            gone = control.poll()
            try:
                new = tail.read()
            except OSError as error:
                ending = _unreadable(path, error.strerror or str(error))
                break
            for line in new:
                if line.startswith(_BEGINS) and (script := _script(line)) is not None:
                    control.connect(path, script)
                    lines.reader = Reader(now)
                event = lines.event(line)
                ending = (
                    event
                    if isinstance(event, Finished | Failed)
                    else ending
                    if event is None
                    else None
                )
                if lines.broken:
                    break
                if event is not None and ending is None:
                    control.note(event)
                    yield event
            if lines.broken or (not new and (ending is not None or gone)):
                last = Finished("stopped", 0, 0, 0.0, GONE)
                break
            if not tail.behind:
                if (notice := lines.nothing_yet()) is not None:
                    yield notice
                control.look_for_ranks(path)
                control.rest(every)
                at = monotonic() - began
    finally:
        tail.close()
        control.disconnect()
        reader = lines.reader
        last = msgspec.structs.replace(
            last, epoch=reader.epoch, steps=reader.step, seconds=at
        )
        state: Ending = (
            "failed" if isinstance(ending, Failed) else (ending or last).reason
        )
        control.finish(Result(state, reader.epoch, reader.step, None))
    yield ending or last


class _Lines:
    """Turns the lines of a file into events, and says once that some are no frames.

    `broken` becomes True with a malformed frame before the run has started: nothing can be shown then.
    """

    def __init__(self, path: Path, reader: Reader) -> None:
        self._path, self.reader = path, reader
        self._count = 0
        self._said = self._recognised = False
        self.broken = False

    def event(self, line: bytes) -> Event | None:
        """Return the event of a line; None of what the script prints beside its frames."""
        self._count += 1
        try:
            event = self.reader.event(line)
        except ValueError as error:
            return self._refused(str(error)) if frame_types.is_frame(line) else None
        self._recognised = (
            self._recognised or event is not None or frame_types.is_frame(line)
        )
        return event

    def _refused(self, reason: str) -> Event | None:
        self._recognised = True
        message = f"Line {self._count:,} of {self._path.name} is {reason}"
        if not self.reader.has_started:
            self.broken = True
            return Failed("data", message, CHOOSE, "", None, 0, 0)
        if self._said:
            return None
        self._said = True
        return Noticed(
            self.reader.step, "", None, f"{message}. Such lines are left out."
        )

    def nothing_yet(self) -> Event | None:
        """Say once, at the end of what is there, that no line is one of a run."""
        if self._recognised or self._said or not self._count:
            return None
        self._said = True
        return Noticed(
            0,
            "",
            None,
            f"No line of {self._path.name} is one of a run so far. {CHOOSE}",
        )


def _unreadable(path: Path, reason: str) -> Failed:
    return Failed(
        "data", f"{path.name} cannot be watched: {reason}", CHOOSE, "", None, 0, 0
    )


def _script(line: bytes) -> Script | None:
    """Return the "script" frame that a line is, None of a malformed one."""
    with suppress(ValueError):
        return first_frame(line)
    return None


class Tail:
    """Reads the complete lines appended to a file since the last read. `behind`: more can be read at once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None
        self._rest = b""
        self._offset = self._endless = (
            0  # bytes that were read, and those since the last end of a line
        )
        self.behind = False

    def read(self) -> list[bytes]:
        """Return the new complete lines; none of a missing file.

        Raises OSError of what is no regular file, cannot be read, or has a line without an end.
        """
        try:
            data = os.read(self._opened(), AT_ONCE)
        except FileNotFoundError:
            self.close()
            return []
        self._offset += len(data)
        self.behind = len(data) == AT_ONCE
        complete, end, self._rest = (self._rest + data).rpartition(b"\n")
        self._endless = 0 if end else self._endless + len(data)
        if self._endless > LONGEST_LINE:
            raise OSError(
                errno.EFBIG, f"it has a line of more than {LONGEST_LINE >> 20} MiB"
            )
        if len(self._rest) > AT_ONCE:
            self._rest = b""  # nothing of ours has such lines
        return complete.split(b"\n") if complete else []

    def _opened(self) -> int:
        """Return the descriptor of the file, from its start if it was replaced or truncated. Raises OSError."""
        there = os.stat(self._path)
        if self._file is not None:
            here = os.fstat(self._file)
            if (here.st_dev, here.st_ino) == (
                there.st_dev,
                there.st_ino,
            ) and there.st_size >= self._offset:
                return self._file
            self.close()
        self._file = regular_files.opened(self._path)
        return self._file

    def close(self) -> None:
        """Close the file; the next read opens it again."""
        if self._file is not None:
            os.close(self._file)
        self._file, self._rest, self.behind, self._offset, self._endless = (
            None,
            b"",
            False,
            0,
            0,
        )
