"""The control of a run that other processes carry out."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

from app.engine.client import Question
from app.engine.requests.train import (
    Answered,
    Order,
    RunCommand,
    SetWatchPoints,
    Trained,
    WriteWeights,
)
from app.engine.values import Codec
from app.training.control import (
    ENDED,
    Control,
    NoWeightsError,
    Result,
    RunEndedError,
    failed,
)
from app.training.monitoring.watch_points import WatchPoints
from app.training.run_requests import (
    Operate,
    ProfileStep,
    RunRequest,
    SetRate,
    TellMemory,
)
from app.util.tensors_on_disk import TensorsOnDisk

if TYPE_CHECKING:
    from torch import Tensor

    from app.training.monitoring.live_model import LiveRun

T = TypeVar("T")

# What a run on several processes is not asked: it would change one of them, or take a step in it alone.
OF_ONE_PROCESS = (Operate, SetRate, TellMemory, ProfileStep)
SEVERAL = "This run is on several processes, which do not support this."


class RemoteRunError(RunEndedError):
    """The callable cannot be serialised for a run in another process."""

    def __init__(
        self,
        words: str = "This run is in a separate process, where this is not available.",
    ) -> None:
        super().__init__(words)


class RemoteControl(Control):
    """Control of a run in `processes` others, which answer requests between two steps; commands are queued until it has
    begun.

    `stopped_at` is the time of the first stop request.
    """

    def __init__(self, processes: int = 1) -> None:
        self._processes = processes
        self._folder: Path | None = None
        self._asked: dict[int, Future[Any]] = {}
        self._numbers = itertools.count()
        self._send: Callable[[Any], object] | None = None
        self._queued: list[Any] = []
        self.stopped_at: float | None = None
        super().__init__()

    def pause(self) -> None:
        super().pause()
        self._send_or_queue(RunCommand.PAUSE)

    def resume(self) -> None:
        super().resume()
        self._send_or_queue(RunCommand.RESUME)

    def step(self) -> None:
        super().step()
        self._send_or_queue(RunCommand.STEP)

    def stop(self) -> None:
        super().stop()
        self.stopped_at = self.stopped_at or monotonic()
        self._send_or_queue(RunCommand.STOP)

    def pause_at(self, points: WatchPoints) -> None:
        super().pause_at(points)
        self._send_or_queue(SetWatchPoints(points))

    def call(self, function: Callable[[LiveRun], T] | RunRequest[T]) -> Future[T]:
        """Send a request of `app.training.run_requests` to the run; others get RemoteRunError."""
        if not isinstance(function, RunRequest):
            return failed(RemoteRunError())
        if self._processes > 1 and isinstance(function, OF_ONE_PROCESS):
            return failed(RemoteRunError(SEVERAL))
        return self._send_order(function)

    def weights(self, timeout: float | None = None) -> Mapping[str, Tensor]:
        if self._result is None and self._folder is not None:
            path = self._folder / f"weights-{uuid4().hex}.pt"
            try:
                if self._written(path, timeout):
                    return TensorsOnDisk(path)
            finally:
                path.unlink(missing_ok=True)
        if self._result is None or self._result.state_dict is None:
            raise NoWeightsError(
                "The run has no weights: it has not started, or its process has ended."
            )
        return self._result.state_dict

    def write_weights(self, path: Path, timeout: float | None = None) -> None:
        """Write the weights as any control does; the run's process writes them, so that nothing is loaded here."""
        if (
            self._result is None
            and self._folder is not None
            and self._written(path, timeout)
        ):
            return
        weights = self.weights(timeout)
        assert isinstance(weights, TensorsOnDisk)
        shutil.copyfile(weights.path, path)

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
        with self._condition:
            if self._result is not None:
                return failed(RunEndedError(ENDED))
            future: Future[Any] = Future()
            order = Order(next(self._numbers), command)
            self._send_or_queue(order)
            self._asked[order.number] = future
        return future

    def _send_or_queue(self, command: Any) -> None:
        """Send a command. Raises NotAValueError before it could end the run."""
        Codec(0).encode(command)
        with self._condition:
            if self._send is not None:
                self._send(command)
            elif self._result is None:
                self._queued.append(command)

    # What follows is for the run alone.

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
