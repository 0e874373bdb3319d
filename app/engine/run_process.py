"""Training in separate processes: the same job and events, and a window that survives any crash of it."""

from __future__ import annotations

import math
import queue
import re
from collections.abc import Iterator
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from time import monotonic

from msgspec import Struct

from app.engine import child_process, pool
from app.engine.client import Question, traceback_of
from app.engine.mark import Mark
from app.engine.own_engine import OwnEngine, once
from app.engine.placement import OWN_PROCESS, RunPlacement
from app.engine.protocol import EngineDiedError
from app.engine.remote_control import RemoteControl
from app.engine.requests.train import (
    Answered,
    Order,
    RankOf,
    ResumeHint,
    RunCommand,
    SetWatchPoints,
    Train,
    Trained,
)
from app.source.generated import Source
from app.training.control import Result
from app.training.events import Event, Failed, Finished, Paused, Resumed, Started
from app.training.job import Job
from app.util import processors
from app.util.leftovers import TemporaryFolder
from app.util.tensors_on_disk import TensorsOnDisk

CHECK_INTERVAL = 0.25  # seconds between two checks of a silent process
HANG = 120.0  # seconds without a word and without work after which it counts as hung
LITTLE = 0.02  # of one core; a process that only waits takes less
STOP = 20.0  # seconds that the current step may take after a stop
OTHERS = 2.0  # seconds in which the others may end by themselves when one has


def train(
    job: Job,
    control: RemoteControl | None = None,
    *,
    threads: int | None = None,
    folder: Path | None = None,
    resume: Path | None = None,
    place: RunPlacement = OWN_PROCESS,
    hash_share: float | None = None,
    hang: float = HANG,
    grace: float = STOP,
) -> Iterator[Event]:
    """Run a job like `app.training.loop.train`, in separate processes; the last event reports how it ended.

    With several, each takes its part of every batch, and if one fails, the others are ended. Processes that are silent
    and idle for `hang` seconds are killed, and those that have not stopped `grace` seconds after a stop. Of the time,
    `hash_share` is for hashes of gradients. Closing the generator ends them.
    """
    control = control or RemoteControl(place.processes)
    with TemporaryFolder() as scratch:
        run = _Child(job, control, Path(scratch), hang, grace)
        try:
            yield from run.events(threads, folder, resume, place, hash_share)
        finally:
            run.close()


class _Ended(Struct, frozen=True):
    """A process has ended: by an `error`, or in good order."""

    rank: int
    error: BaseException | None


class _Child:
    """The processes of a run, of which the first one tells. `step` and `epoch` are its last reported ones."""

    def __init__(
        self, job: Job, control: RemoteControl, scratch: Path, hang: float, grace: float
    ) -> None:
        self.job, self.control = job, control
        self._scratch, self._hang, self._grace = scratch, hang, grace
        self._engines: list[OwnEngine] = []
        self._heard: queue.SimpleQueue[list[Event] | _Ended] = queue.SimpleQueue()
        # What went wrong, by rank and in the order in which it did.
        self._failures: list[tuple[int, Failed | BaseException]] = []
        self._ends_at = math.inf
        self.epoch = self.step = 0
        self.started = self.paused = False

    def events(
        self,
        threads: int | None,
        folder: Path | None,
        resume: Path | None,
        placement: RunPlacement,
        hash_share: float | None,
    ) -> Iterator[Event]:
        self._folder, self._resume = folder, resume
        count = placement.processes
        if count > 1:
            threads = max(1, (threads or processors.usual_threads()) // count)
        extra = {"CUDA_LAUNCH_BLOCKING": "1"} if placement.launch_blocking else None
        try:
            for rank in range(count):
                self._engines.append(_engine(extra, rank))
        except OSError as error:
            yield Failed(
                "process",
                f"The process of the run cannot be started: {error}.",
                "",
                "",
                None,
                0,
                0,
            )
            return

        def ask_of(
            rank: int, commands: tuple[RunCommand | SetWatchPoints | Order, ...] = ()
        ) -> Question[Trained]:
            scratch = self._scratch / str(rank)
            scratch.mkdir()
            ranks = RankOf(rank, count, self._scratch / "store") if count > 1 else None
            request = Train(
                self.job, scratch, threads, folder, resume, commands, hash_share, ranks
            )
            question = self._engines[rank].ask(request, partial(self._receive, rank))
            question.add_done_callback(partial(self._end, rank))
            return question

        self.control.begin(self._scratch, partial(ask_of, 0))
        for rank in range(1, count):
            ask_of(rank)
        finished: Finished | None = None
        for event in self._events():
            self._follow(event)
            if isinstance(event, Finished):
                finished = (
                    event  # yielded after the process has handed over the weights
                )
            else:
                yield event
        if finished is not None and self.control.result is not None:
            yield finished
        else:
            yield self._failed()

    # On the reading threads: a caller that waits for an answer may be the one that consumes events.

    def _receive(self, rank: int, message: list[Event] | Answered) -> None:
        if isinstance(message, Answered):
            self.control.complete_order(message)
            return
        failures = [event for event in message if isinstance(event, Failed)]
        self._failures += [(rank, event) for event in failures]
        self._heard.put([event for event in message if event not in failures])

    def _end(self, rank: int, question: Future[Trained]) -> None:
        error = question.exception()
        if error is not None:
            self._failures.append((rank, error))
        elif not rank:
            left = question.result()
            weights = TensorsOnDisk(left.weights) if left.weights is not None else None
            self.control.ended(Result(left.ending, left.epoch, left.step, weights))
        self._heard.put(_Ended(rank, error))

    # On the thread that asks for events.

    def _events(self) -> Iterator[Event]:
        """Yield the events of the first process until all have ended, or are stopped."""
        self._silence = ""
        left = len(self._engines)
        quiet_since, work = monotonic(), self._work()
        while left and not self._silence and monotonic() < self._ends_at:
            try:
                message = self._heard.get(timeout=CHECK_INTERVAL)
            except queue.Empty:
                now, done = monotonic(), self._work()
                spent = now - quiet_since
                if (
                    self.paused
                    or done is None
                    or work is None
                    or done - work > LITTLE * max(spent, 1.0)
                ):
                    quiet_since, work = now, done
                elif spent > self._hang:
                    self._silence = (
                        f"has done nothing for {spent:.0f} seconds and was ended"
                    )
                self._check_stop()
                continue
            if isinstance(message, _Ended):
                left -= 1
                if self._failures or not message.rank:  # the others may wait for it
                    self._ends_at = min(self._ends_at, monotonic() + OTHERS)
                continue
            quiet_since, work = monotonic(), self._work()
            yield from message
            self._check_stop()

    def _work(self) -> float | None:
        """Return the CPU seconds of all processes, None if they cannot be read."""
        seconds = [child_process.work_of(engine.child.pid) for engine in self._engines]
        return None if None in seconds else sum(filter(None, seconds))

    def _check_stop(self) -> None:
        at = self.control.stopped_at
        if at is not None and monotonic() - at > self._grace:
            self._silence = f"had not stopped {self._grace:.0f} seconds after the stop request, and was ended"

    def _follow(self, event: Event) -> None:
        if isinstance(event, Started):
            self.started, self.step = True, event.resumed_at
        elif isinstance(event, Paused | Resumed):
            self.paused = isinstance(event, Paused)
        self.epoch = getattr(event, "epoch", self.epoch)
        self.step = max(self.step, getattr(event, "step", 0))

    def _failed(self) -> Failed:
        """Return why the run ended: what failed first, which is not a lost connection to another process."""
        failures = self._failures
        own = [
            failure for failure in failures if not _LOST_OTHER.search(str(failure[1]))
        ]
        if not failures or self._silence:
            return self._died(0, None)
        rank, failure = (own or failures)[0]
        return failure if isinstance(failure, Failed) else self._died(rank, failure)

    def _died(self, rank: int, error: BaseException | None) -> Failed:
        engine = self._engines[rank]
        how, why = self._silence, "."
        if isinstance(error, EngineDiedError):
            how = engine.how_it_ended()
        elif error is not None:  # such as a full disk when its weights are written
            how, why = (
                "failed",
                f": {getattr(error, 'kind', type(error).__name__)}: {error}",
            )
        for each in self._engines:
            each.abort() if self._silence else each.kill()
        # Of processes that hang, each may wait for another.
        ended = self._engines if self._silence else [engine]
        stderr_text = "".join(each.stderr.text() for each in ended)
        if error is not None:
            stderr_text += traceback_of(error)
        # Its last events may be lost with it; the progress mark is not.
        self.epoch, self.step = max((self.epoch, self.step), self._marked())
        began = (
            self.started or self.epoch > 0
        )  # after a quick death there may be nothing but the mark
        where = f"in step {self.step + 1:,}" if began else "before its first step"
        count = len(self._engines)
        subject = (
            "The process of the run" if count == 1 else f"One of the {count} processes"
        )
        node = crashed_node(stderr_text, self.job.source)
        return Failed(
            "process",
            f"{subject} {how} {where}{why}",
            resume_hint(self._folder, self._resume),
            stderr_text,
            node,
            self.epoch,
            self.step,
        )

    def _marked(self) -> tuple[int, int]:
        try:
            mark = Mark(self._scratch / "0" / "mark")
        except OSError:
            return 0, 0
        try:
            return mark.get()
        finally:
            mark.close()

    def close(self) -> None:
        """End all processes, and remove their files."""
        for engine in self._engines:
            engine.close()
        if self._engines:
            self.control.ended(Result("failed", self.epoch, self.step, None))


def _engine(extra: dict[str, str] | None, rank: int) -> OwnEngine:
    """Start a process of a run. All of them print the same warnings, so only the first one's are forwarded."""
    hear = partial(child_process.StderrReader, passes=lambda _line: not rank)
    return OwnEngine(lambda: pool.start("engine", extra), hear)


def resume_hint(folder: Path | None, resume: Path | None) -> str:
    """Describe the checkpoint from which a crashed run can be resumed; a separate process reads them."""
    try:
        return once(ResumeHint(folder, resume))
    except (OSError, EngineDiedError):
        return (
            f"Its checkpoints are in {folder}, and cannot be read now."
            if folder is not None
            else ""
        )


# What the others report when a process has gone.
_LOST_OTHER = re.compile(
    r"closed by peer|reset by peer|Broken pipe|\[\S*gloo\S*\]|NCCL|Timed out waiting",
    re.IGNORECASE,
)
_FRAME = re.compile(r'File "(<[^"]+>)", line (\d+)')


def crashed_node(stderr_text: str, source: Source) -> str | None:
    """Return the node whose line was running when native code crashed, from faulthandler's stack; the innermost is
    first."""
    for file, line in _FRAME.findall(stderr_text):
        if file == source.filename and (node := source.node_at(int(line))) is not None:
            return node
    return None
