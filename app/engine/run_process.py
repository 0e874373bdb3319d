"""Training in a separate process: the same job and events, and a window that survives any crash of it."""

from __future__ import annotations

import itertools
import queue
import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

from app.engine import child_process, pool
from app.engine.client import Question, traceback_of
from app.engine.mark import Mark
from app.engine.own_engine import OwnEngine, once
from app.engine.placement import OWN_PROCESS, RunPlacement
from app.engine.protocol import EngineDiedError
from app.engine.remote_control import RemoteControl, RemoteRunError
from app.engine.requests.train import (
    Answered,
    Order,
    ResumeHint,
    RunCommand,
    SetWatchPoints,
    Train,
    Trained,
    WriteWeights,
)
from app.engine.values import Codec
from app.source.generated import Source
from app.training.control import Result, RunEndedError
from app.training.events import Event, Failed, Finished, Paused, Resumed, Started
from app.training.job import Job
from app.training.monitoring.watch_points import WatchPoints
from app.training.run_requests import RunRequest
from app.util.leftovers import TemporaryFolder
from app.util.tensors_on_disk import TensorsOnDisk

if TYPE_CHECKING:
    from torch import Tensor

    from app.training.monitoring.live_model import LiveRun

T = TypeVar("T")

CHECK_INTERVAL = 0.25  # seconds between two checks of a silent process
HANG = 120.0  # seconds without a word and without work after which it counts as hung
LITTLE = 0.02  # of one core; a process that only waits takes less
STOP = 20.0  # seconds that the current step may take after a stop


class ChildControl(RemoteControl):
    """Control of a run in a separate process, which answers requests between two steps."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._asked: dict[int, Future[Any]] = {}
        self._numbers = itertools.count()
        super().__init__()

    def pause_at(self, points: WatchPoints) -> None:
        super().pause_at(points)
        self._send_or_queue(SetWatchPoints(points))

    def call(self, function: Callable[[LiveRun], T] | RunRequest[T]) -> Future[T]:
        """Send a request of `app.training.run_requests` to the process; others get RemoteRunError."""
        if not isinstance(function, RunRequest):
            future: Future[T] = Future()
            future.set_exception(RemoteRunError())
            return future
        return self._send_order(function)

    def weights(self, timeout: float | None = None) -> Mapping[str, Tensor]:
        if self._result is None and self._folder is not None:
            path = self._folder / f"weights-{uuid4().hex}.pt"
            try:
                if self._written(path, timeout):
                    return TensorsOnDisk(path)
            finally:
                path.unlink(missing_ok=True)
        return super().weights(timeout)

    def write_weights(self, path: Path, timeout: float | None = None) -> None:
        """Write the weights as any control does; the run's process writes them, so that nothing is loaded here."""
        if (
            self._result is None
            and self._folder is not None
            and self._written(path, timeout)
        ):
            return
        super().write_weights(path, timeout)

    def _written(self, path: Path, timeout: float | None) -> bool:
        """Request a copy in a file from the process; False if it has ended."""
        try:
            self._send_order(WriteWeights(path)).result(timeout)
        except RunEndedError:  # it ended before answering; its result is on its way
            with self._condition:
                self._condition.wait_for(lambda: self._result is not None, timeout)
            return False
        return True

    def _send_order(self, command: Any) -> Future[Any]:
        """Send a command that is answered. Raises NotAValueError."""
        future: Future[Any] = Future()
        with self._condition:
            if self._result is not None:
                future.set_exception(
                    RunEndedError(
                        "The run has ended; its weights are in `Control.result`."
                    )
                )
                return future
            order = Order(next(self._numbers), command)
            self._send_or_queue(order)
            self._asked[order.number] = future
        return future

    def _send_or_queue(self, command: Any) -> None:
        """Send a command. Raises NotAValueError before it could end the run."""
        Codec(0).encode(command)
        super()._send_or_queue(command)

    # What follows is for `train` alone.

    def begin(
        self,
        folder: Path,
        ask: Callable[
            [tuple[RunCommand | SetWatchPoints | Order, ...]], Question[Trained]
        ],
    ) -> None:
        """Start the run with `ask` and the queued commands; files that it writes on request go to `folder`."""
        with self._condition:
            self._folder = folder
            self._send = ask(tuple(self._queued)).send
            self._queued.clear()

    def complete_order(self, answer: Answered) -> None:
        """Complete the future of an order with its answer or error."""
        with self._condition:
            future = self._asked.pop(answer.number, None)
        if future is None or not future.set_running_or_notify_cancel():
            return
        error = answer.error
        if error is not None:
            future.set_exception(
                error if isinstance(error, RunEndedError) else RuntimeError(str(error))
            )
        else:
            future.set_result(answer.value)

    def ended(self, result: Result) -> None:
        """Store the result, and fail futures that are still pending."""
        with self._condition:
            if self._result is None:
                self._result = result
            waiting, self._asked = list(self._asked.values()), {}
            self._condition.notify_all()
        for future in waiting:
            future.set_exception(RunEndedError("The run has ended."))


def train(
    job: Job,
    control: ChildControl | None = None,
    *,
    threads: int | None = None,
    folder: Path | None = None,
    resume: Path | None = None,
    place: RunPlacement = OWN_PROCESS,
    hang: float = HANG,
    grace: float = STOP,
) -> Iterator[Event]:
    """Run a job like `app.training.loop.train`, in a separate process; the last event reports how it ended.

    A process that is silent and idle for `hang` seconds is killed, and one that has not stopped `grace` seconds after a
    stop. Closing the generator ends it.
    """
    control = control or ChildControl()
    with TemporaryFolder() as scratch:
        run = _Child(job, control, Path(scratch), hang, grace)
        try:
            yield from run.events(threads, folder, resume, place)
        finally:
            run.close()


class _Child:
    """One process. `step` and `epoch` are its last reported ones."""

    def __init__(
        self, job: Job, control: ChildControl, scratch: Path, hang: float, grace: float
    ) -> None:
        self.job, self.control = job, control
        self._scratch, self._hang, self._grace = scratch, hang, grace
        self._engine: OwnEngine | None = None
        self._heard: queue.SimpleQueue[list[Event] | None] = queue.SimpleQueue()
        self._error: BaseException | None = None
        self.epoch = self.step = 0
        self.started = self.paused = False

    def events(
        self,
        threads: int | None,
        folder: Path | None,
        resume: Path | None,
        placement: RunPlacement,
    ) -> Iterator[Event]:
        self._folder, self._resume = folder, resume
        extra = {"CUDA_LAUNCH_BLOCKING": "1"} if placement.launch_blocking else None
        try:
            self._engine = engine = OwnEngine(lambda: pool.start("engine", extra))
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

        def ask(
            commands: tuple[RunCommand | SetWatchPoints | Order, ...],
        ) -> Question[Trained]:
            question = engine.ask(
                Train(self.job, self._scratch, threads, folder, resume, commands),
                self._receive,
            )
            question.add_done_callback(self._end)
            return question

        self.control.begin(self._scratch, ask)
        ending: Finished | Failed | None = None
        for event in self._events(engine):
            self._follow(event)
            if isinstance(event, Finished | Failed):
                ending = event  # yielded after the process has handed over the weights
            else:
                yield event
        yield (
            ending
            if ending is not None and self.control.result is not None
            else self._died(engine)
        )

    # On the reading thread: a caller that waits for an answer may be the one that consumes events.

    def _receive(self, message: list[Event] | Answered) -> None:
        if isinstance(message, Answered):
            self.control.complete_order(message)
        else:
            self._heard.put(message)

    def _end(self, question: Future[Trained]) -> None:
        self._error = question.exception()
        if self._error is None:
            left = question.result()
            weights = TensorsOnDisk(left.weights) if left.weights is not None else None
            self.control.ended(Result(left.ending, left.epoch, left.step, weights))
        self._heard.put(None)

    # On the thread that asks for events.

    def _events(self, engine: OwnEngine) -> Iterator[Event]:
        """Yield the events of the process until it has no more or is stopped."""
        self._silence = ""
        pid = engine.child.pid
        quiet_since, work = monotonic(), child_process.work_of(pid)
        while not self._silence:
            try:
                events = self._heard.get(timeout=CHECK_INTERVAL)
            except queue.Empty:
                now, done = monotonic(), child_process.work_of(pid)
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
            if events is None:
                return
            quiet_since, work = monotonic(), child_process.work_of(pid)
            yield from events
            self._check_stop()

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

    def _died(self, engine: OwnEngine) -> Failed:
        error = None if self._silence else self._error
        how, why = self._silence, "."
        if isinstance(error, EngineDiedError):
            how = engine.how_it_ended()
        elif error is not None:  # such as a full disk when its weights are written
            how, why = (
                "failed",
                f": {getattr(error, 'kind', type(error).__name__)}: {error}",
            )
        engine.kill()
        stderr_text = engine.stderr.text() + (
            traceback_of(error) if error is not None else ""
        )
        # Its last events may be lost with it; the progress mark is not.
        self.epoch, self.step = max((self.epoch, self.step), self._marked())
        began = (
            self.started or self.epoch > 0
        )  # after a quick death there may be nothing but the mark
        where = f"in step {self.step + 1:,}" if began else "before its first step"
        message = f"The process of the run {how} {where}{why}"
        node = crashed_node(stderr_text, self.job.source)
        return Failed(
            "process",
            message,
            self._resume_hint(),
            stderr_text,
            node,
            self.epoch,
            self.step,
        )

    def _marked(self) -> tuple[int, int]:
        try:
            mark = Mark(self._scratch / "mark")
        except OSError:
            return 0, 0
        try:
            return mark.get()
        finally:
            mark.close()

    def _resume_hint(self) -> str:
        return resume_hint(self._folder, self._resume)

    def close(self) -> None:
        """Remove all of its files."""
        if self._engine is not None:
            self._engine.close()
            self.control.ended(Result("failed", self.epoch, self.step, None))


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


_FRAME = re.compile(r'File "(<[^"]+>)", line (\d+)')


def crashed_node(stderr_text: str, source: Source) -> str | None:
    """Return the node whose line was running when native code crashed, from faulthandler's stack; the innermost is
    first."""
    for file, line in _FRAME.findall(stderr_text):
        if file == source.filename and (node := source.node_at(int(line))) is not None:
            return node
    return None
