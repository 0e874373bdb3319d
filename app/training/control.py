"""Thread-safe control of a training run: pause, resume, step, stop, callbacks between two steps."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from msgspec import Struct

from app.training.monitoring.watch_points import WatchPoints
from app.training.run_requests import Operate, RunRequest
from app.util.errors import CodedError

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    from app.training.monitoring.live_model import LiveRun

T = TypeVar("T")
Answer = Callable[[RunRequest[Any], "LiveRun"], Any]
ENDED = "The run has ended; its weights are in `Control.result`."
Ending = Literal["done", "stopped", "left", "failed", "abandoned"]


class RunEndedError(CodedError, RuntimeError):
    """Raised for callbacks passed to a run whose live model is gone; its weights are in `Control.result`."""


class NoWeightsError(CodedError, RuntimeError):
    """Raised if the run ended before its model was created."""


class Result(Struct, frozen=True):
    """What remains of a run: how it ended, and its weights on the CPU, or None if no model was created."""

    ending: Ending
    epoch: int
    step: int
    state_dict: Mapping[str, Tensor] | None = None


def failed(error: Exception) -> Future[Any]:
    """Return a future that has failed."""
    future: Future[Any] = Future()
    future.set_exception(error)
    return future


class Control:
    """Thread-safe control of one run. Methods return immediately, except `weights` during a run."""

    commands = True  # whether it reaches the run
    ranks: Mapping[int, Path] = {}  # the files of the ranks of a watched script

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._paused = False
        self._credits = 0
        self._stopping = False
        self._calls: deque[
            tuple[Callable[[LiveRun], Any] | RunRequest[Any], Future[Any]]
        ] = deque()
        self._operations: deque[tuple[Operate, Future[Any]]] = deque()
        self._live: LiveRun | None = None
        self._answer: Answer | None = None
        self._loop_thread: int | None = None
        self._result: Result | None = None
        # Read by the loop at every step without the lock: whether there are requests.
        self.attention = False
        self._watch = WatchPoints()

    @property
    def watch(self) -> WatchPoints:
        """The conditions that the run pauses at."""
        return self._watch

    def pause_at(self, points: WatchPoints) -> None:
        """Set the conditions to pause at; at any time, effective from the next measurement."""
        self._watch = points

    @property
    def paused(self) -> bool:
        """Return whether the run is paused, or will be after the current step."""
        return self._paused

    @property
    def stopping(self) -> bool:
        return self._stopping

    @property
    def result(self) -> Result | None:
        """None until the run has ended."""
        return self._result

    def pause(self) -> None:
        """Pause before the next step."""
        with self._condition:
            self._paused, self._credits = True, 0
            self._changed()

    def resume(self) -> None:
        with self._condition:
            self._paused, self._credits = False, 0
            self._changed()

    def step(self) -> None:
        """Take one more step (a batch), then pause."""
        with self._condition:
            self._paused = True
            self._credits += 1
            self._changed()

    def stop(self) -> None:
        """Stop after the current step. The weights are kept, see `result`."""
        with self._condition:
            self._stopping = True
            self._changed()

    def leave(self) -> None:
        """End the watching of a run that executes elsewhere; any other stops."""
        self.stop()

    def call(self, function: Callable[[LiveRun], T] | RunRequest[T]) -> Future[T]:
        """Run `function(live)`, or answer a request, on the loop's thread between two steps, immediately if the run is
        paused.

        The generators, the buffers, the train flags and the gradients are put back afterwards, so the numbers of the
        run stay what they were; weights that the function writes stay written. The future gets RunEndedError if the run
        has ended before. A surgery is made by the loop, see `next_operation`.
        """
        future: Future[T] = Future()
        with self._condition:
            if self._result is not None:
                return failed(RunEndedError(ENDED))
            if isinstance(function, Operate):
                self._operations.append((function, future))
            else:
                self._calls.append((function, future))
            self._changed()
        # The thread that holds the suspended generator would wait for itself.
        if self._loop_thread == threading.get_ident():
            self.run_calls()
        return future

    def weights(self, timeout: float | None = None) -> Mapping[str, Tensor]:
        """Return a copy of the state_dict on the CPU: of the live model between two steps, or of a finished run.

        Raises NoWeightsError if no model was created, TimeoutError if the current step takes longer than `timeout`.
        """
        if self._result is None:
            future = self.call(lambda live: live.weights())
            try:
                return future.result(timeout)
            except RunEndedError:
                # It ended between the check and the call.
                pass
        assert self._result is not None
        if self._result.state_dict is None:
            raise NoWeightsError("The run ended before it had a model.")
        return self._result.state_dict

    def write_weights(self, path: Path, timeout: float | None = None) -> None:
        """Leave that copy in a new file, as `torch.save` writes it; a run in another process writes it there.

        Raises as `weights` does, and OSError.
        """
        raise NoWeightsError("This run saves no weights to a file.")

    # What follows is for the loop alone.

    def attach(self, live: LiveRun, answer: Answer) -> None:
        """Attach the model that `call` passes to callbacks, and the handler of requests about it."""
        self._live, self._answer, self._loop_thread = (
            live,
            answer,
            threading.get_ident(),
        )

    def wait(self, timeout: float | None = None) -> None:
        """Wait until there is a callback, a step to take, or the end; for `timeout` seconds at most."""
        with self._condition:
            self._condition.wait_for(
                lambda: (
                    self._calls
                    or self._operations
                    or self._stopping
                    or not self._paused
                    or self._credits
                ),
                timeout,
            )

    def may_step(self) -> bool:
        """Return whether the next step may be taken; consumes one permission of `step`."""
        with self._condition:
            if self._paused and self._credits:
                self._credits -= 1
                return True
            return not self._paused

    def next_operation(self) -> tuple[Operate, Future[Any]] | None:
        """Return and remove the next requested surgery and the future of its outcome."""
        with self._condition:
            while self._operations:
                request, future = self._operations.popleft()
                if future.set_running_or_notify_cancel():
                    return request, future
            self._note()
            return None

    def run_calls(self) -> None:
        """Run the queued callbacks."""
        while self._live is not None:
            with self._condition:
                if not self._calls:
                    self._note()
                    return
                function, future = self._calls.popleft()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(self._live.visit(self._visitor(function)))
            except BaseException as error:
                future.set_exception(error)
                if not isinstance(error, Exception):
                    raise

    def _visitor(
        self, function: Callable[[LiveRun], Any] | RunRequest[Any]
    ) -> Callable[[LiveRun], Any]:
        if not isinstance(function, RunRequest):
            return function
        assert self._answer is not None
        return partial(self._answer, function)

    def finish(self, result: Result) -> None:
        """Run the remaining callbacks, release the model, and store the result."""
        self.run_calls()
        with self._condition:
            self._result = result
            self._live = None
            left = [future for _, future in self._calls]
            late = [future for _, future in self._operations]
            self._calls.clear()
            self._operations.clear()
        for future in (*left, *late):
            if future.set_running_or_notify_cancel():
                message = (
                    "The run has ended; its net can no longer be edited."
                    if future in late
                    else ("The run ended before it had a model.")
                )
                future.set_exception(RunEndedError(message))

    def _changed(self) -> None:
        self._note()
        self._condition.notify_all()

    def _note(self) -> None:
        self.attention = bool(
            self._paused or self._stopping or self._calls or self._operations
        )
