"""Distributed training on several processes of this machine: each runs the exported script; the first one's output is
parsed.

They rendezvous through a file in a private folder and communicate over the loopback interface. torchrun is not used:
its store listens on every network interface without a password, and unpickles what it receives.
"""

from __future__ import annotations

import math
import os
import queue
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, TypeVar

import msgspec

from app.engine import child_process, pool
from app.engine.json_lines.reader import Clock, Reader
from app.engine.own_engine import once
from app.engine.placement import RunPlacement
from app.engine.protocol import EngineDiedError
from app.engine.remote_control import RemoteControl, RemoteRunError
from app.engine.requests.train import PrepareProcesses
from app.engine.run_process import CHECK_INTERVAL, STOP, resume_hint
from app.engine.values import RemoteError
from app.export.script.launch import on_loopback
from app.training.control import Result
from app.training.events import Event, Failed, Finished, Started
from app.training.job import Job, JobError
from app.training.setup.batch_count import batch_count
from app.util import processors
from app.util.leftovers import TemporaryFolder
from app.util.tensors_on_disk import TensorsOnDisk

if TYPE_CHECKING:
    from app.training.monitoring.live_model import LiveRun
    from app.training.run_requests import RunRequest

T = TypeVar("T")

FOLDER = (
    "processes"  # beside the checkpoints of a run: model.py, train.py and the weights
)


class LineControl(RemoteControl):
    """The control of a script that reads words from its standard input."""

    missing = "A run on several processes provides its weights only after it has ended."

    def call(self, function: Callable[[LiveRun], T] | RunRequest[T]) -> Future[T]:
        """Return a future with RemoteRunError: an exported script takes no requests."""
        future: Future[T] = Future()
        future.set_exception(
            RemoteRunError(
                "This run is a script on several processes, which does not support this."
            )
        )
        return future

    def connect(self, say: Callable[[str], None]) -> None:
        """Attach the sender and flush queued commands in order."""
        with self._condition:
            self._send = lambda hand: say(hand.value)
            for hand in self._queued:
                self._send(hand)
            self._queued.clear()
            say(
                "ready"
            )  # the script waits for it, so that earlier commands are in time


def train(
    job: Job,
    control: LineControl | None = None,
    *,
    place: RunPlacement,
    threads: int | None = None,
    folder: Path | None = None,
    resume: Path | None = None,
    grace: float = STOP,
    hash_share: float | None = None,
) -> Iterator[Event]:
    """Run a job like `app.training.loop.train`, on `place.processes` processes; there is no telemetry.

    If one fails, the others are ended. Model, script and weights are stored next to `folder`, the run's checkpoints, if
    given. Of the time, `hash_share` is for hashes of gradients. Closing the generator ends all processes.
    """
    control = control or LineControl()
    with ExitStack() as stack:
        if folder is None:
            scratch = TemporaryFolder()
            home = Path(stack.enter_context(scratch))
        else:
            home = folder.with_name(FOLDER)
        run = _Group(job, control, home, grace, folder, resume, hash_share)
        try:
            yield from run.events(place, threads)
        finally:
            run.close()


class _Rank:
    """One of the processes, with its stderr; `ended` is called when it has ended."""

    def __init__(
        self,
        number: int,
        arguments: list[str],
        extra: dict[str, str],
        ended: Callable[[_Rank], None],
    ) -> None:
        rank_variables = {"RANK": str(number), "LOCAL_RANK": str(number)}
        self._kills = child_process.memory_kills()
        self.child = child = pool.start(
            "rank", {**extra, **rank_variables}, quiet=number > 0, arguments=arguments
        )
        assert child.stderr is not None
        # All ranks print the same warnings, so only the first one's are forwarded; errors are reported later.
        self.stderr = child_process.StderrReader(
            child.stderr, lambda line: number == 0 and not line.startswith("[rank")
        )
        self._ended = ended
        threading.Thread(
            target=self._wait, name=f"end of rank {number}", daemon=True
        ).start()

    def _wait(self) -> None:
        self.child.wait()
        self._ended(self)

    @property
    def failed(self) -> bool:
        return bool(self.child.poll())

    @property
    def killed(self) -> bool:
        """Return whether a signal ended it, rather than an error."""
        return (self.child.poll() or 0) < 0

    def reason(self) -> str:
        """Return a sentence on why it ended."""
        code = self.child.wait()
        return (
            f"it {child_process.describe_exit(code, self._kills)}."
            if code < 0
            else reason(self.stderr.text())
        )


class _Group:
    """The processes of a run."""

    def __init__(
        self,
        job: Job,
        control: LineControl,
        home: Path,
        grace: float,
        folder: Path | None,
        resume: Path | None,
        hash_share: float | None,
    ) -> None:
        self.job, self.control, self._home, self._grace = job, control, home, grace
        self._folder, self._resume, self._hash_share = folder, resume, hash_share
        self._changed = ""
        self._store: TemporaryFolder | None = None
        self._ranks: list[_Rank] = []
        self._ended: list[_Rank] = []  # in the order in which they did
        self._ends_at: float | None = None  # when those that are left are ended
        self._lines: queue.SimpleQueue[bytes | _Rank | None] = queue.SimpleQueue()
        self._clock = Clock()
        self._count = 0
        self._late = False

    def events(self, placement: RunPlacement, threads: int | None) -> Iterator[Event]:
        self._count = placement.processes
        reader = Reader(
            self._clock,
            f"On {placement.processes} processes, each with its part of every batch.",
            lambda count: batch_count(self.job, count),
        )
        try:
            self._start(self._prepared(placement, threads), placement, threads)
        except (OSError, ValueError, EngineDiedError, RemoteError) as error:
            kind = "job" if isinstance(error, JobError) else "process"
            yield Failed(
                kind, f"The processes cannot be started: {error}", "", "", None, 0, 0
            )
            return
        ending: Finished | None = None
        for line in self._read_lines():
            try:
                event = reader.event(line)
            except ValueError:
                continue  # a print of the model's code
            if event is None:
                continue
            self._clock.follow(event)
            if isinstance(event, Finished):
                ending = event
                continue
            if isinstance(event, Started) and self._changed:
                event = msgspec.structs.replace(event, changed=self._changed)
            yield event
        if ending is None:
            yield self._failed(reader)
            return
        self._hand_over(ending)
        yield ending

    def _prepared(self, placement: RunPlacement, threads: int | None) -> list[str]:
        """Write the script, in a process with torch, and return its arguments. Raises OSError, ValueError,
        EngineDiedError."""
        thread_count = _threads(placement, threads)
        done = once(
            PrepareProcesses(
                self.job,
                self._home,
                self._folder,
                self._resume,
                thread_count,
                placement.processes,
                self._hash_share,
            )
        )
        self._changed, self._clock.before = done.changed, done.before
        return list(done.arguments)

    def _start(
        self, arguments: list[str], placement: RunPlacement, threads: int | None
    ) -> None:
        self._store = TemporaryFolder()  # mode 0700
        extra = {"OMP_NUM_THREADS": str(_threads(placement, threads)), **on_loopback()}
        extra["WORLD_SIZE"] = str(placement.processes)
        if self.job.source.own is not None:
            extra[child_process.OWN_MODEL] = msgspec.json.encode(
                self.job.source.own
            ).decode()
        if placement.launch_blocking:
            extra["CUDA_LAUNCH_BLOCKING"] = "1"
        arguments = [*arguments, "--store", str(Path(self._store.name) / "store")]
        for number in range(placement.processes):
            self._ranks.append(_Rank(number, arguments, extra, self._lines.put))
        stdout = self._ranks[0].child.stdout
        threading.Thread(
            target=self._read, args=(stdout,), name="lines of a run", daemon=True
        ).start()
        self.control.connect(self._write_command)

    def _write_command(self, word: str) -> None:
        stdin = self._ranks[0].child.stdin
        assert stdin is not None
        try:
            stdin.write(f"{word}\n".encode())
            stdin.flush()
        except (OSError, ValueError):
            return  # it has ended, which its reader notices and reports

    def _read(self, stream: object) -> None:
        for line in stream:  # type: ignore[attr-defined]
            self._lines.put(line)
        self._lines.put(None)

    def _read_lines(self) -> Iterator[bytes]:
        """Yield the lines of the first process until all have ended, or the run is stopped."""
        there = True
        while there or len(self._ended) < len(self._ranks):
            try:
                line = self._lines.get(timeout=CHECK_INTERVAL)
            except queue.Empty:
                line = b""
            if line is None:
                there = False
            elif isinstance(line, _Rank):
                self._ended.append(line)
                if self._ends_at is None and (line.failed or line is self._ranks[0]):
                    self._ends_at = monotonic() + OTHERS
            elif line:
                yield line
            if self._ends_at is not None and monotonic() > self._ends_at:
                self._end()  # the others wait for one that has ended
                self._ends_at = math.inf
            at = self.control.stopped_at
            if at is not None and monotonic() - at > self._grace:
                self._late = True
                return

    def _hand_over(self, ending: Finished) -> None:
        path = self._home / "trained" / "weights.pt"
        weights = TensorsOnDisk(path, copy=True) if path.exists() else None
        self.control.finish(Result(ending.reason, ending.epoch, ending.steps, weights))

    def _failed(self, reader: Reader) -> Failed:
        if self._late:
            how = f"had not stopped {self._grace:.0f} seconds after the stop request, and were ended"
            message = f"The {self._count} processes {how}."
            return Failed(
                "process", message, self._cure, "", None, reader.epoch, reader.step
            )
        culprit = self._culprit()
        message = f"One of the {self._count} processes failed after step {reader.step:,}: {culprit.reason()}"
        return Failed(
            "process",
            message,
            self._cure,
            culprit.stderr.text(),
            None,
            reader.epoch,
            reader.step,
        )

    def _culprit(self) -> _Rank:
        """Return the rank that failed first; the others fail on the lost connection to it."""
        failed = [rank for rank in self._ended if rank.failed] or self._ended
        candidates = (
            rank
            for rank in failed
            if rank.killed or not _LOST_OTHER.search(rank.reason())
        )
        return next(candidates, failed[0])

    @property
    def _cure(self) -> str:
        return resume_hint(self._folder, self._resume)

    def close(self) -> None:
        """End all processes."""
        self._end()
        for rank in self._ranks:
            rank.child.wait()
            if rank.child.stdin is not None:
                with suppress(OSError):  # the last command was not read
                    rank.child.stdin.close()
        if self._store is not None:
            self._store.cleanup()
        if self.control.result is None:
            self.control.finish(Result("failed", 0, 0, None))

    def _end(self) -> None:
        for rank in self._ranks:
            rank.child.kill()
            if os.name == "posix":
                child_process.end_group(rank.child.pid)  # and its children


OTHERS = 2.0  # seconds in which the others may end by themselves when one has failed, or the first has ended
_LOST_OTHER = re.compile(
    r"closed by peer|reset by peer|Broken pipe|\[\S*gloo\S*\]|NCCL|Timed out waiting",
    re.I,
)


def _threads(placement: RunPlacement, threads: int | None) -> int:
    """Return the number of threads of each process."""
    return max(1, (threads or processors.usual_threads()) // placement.processes)


def reason(stderr_text: str) -> str:
    """Return the most informative line of stderr: the last of an error, else the last one.

    >>> reason("a warning\\n[rank0]: Traceback\\n[rank0]: ValueError: 3")
    'ValueError: 3'
    """
    lines = [line.strip() for line in stderr_text.splitlines() if line.strip()]
    chosen = (
        [line for line in lines if line.startswith("[rank")] or lines or ["no output"]
    )[-1]
    return chosen.partition("]: ")[2] if chosen.startswith("[rank") else chosen
