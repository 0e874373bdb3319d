"""An engine with one process for one request: a run, a snippet, an import."""

from __future__ import annotations

import contextlib
import math
import os
import queue
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import IO, Any, Generic, Literal, NoReturn, TypeVar

from app.engine import child_process, pool
from app.engine.channel import LONGEST
from app.engine.client import Engine, _Process
from app.engine.protocol import Request
from app.source import layer_files
from app.util.errors import CodedError

A = TypeVar("A")

POLL_INTERVAL = 0.02  # seconds between two checks of the limits of a request
ABORT = 2.0  # seconds that a process may take to write where it was
_ANSWERED = object()


class RequestStoppedError(CodedError):
    """Raised where a request was cancelled, or has exceeded its limit of time or memory."""

    def __init__(self, reason: Literal["cancelled", "time", "memory"]) -> None:
        super().__init__(reason)
        self.reason = reason


class OwnEngine(Engine):
    """An engine whose process is started at once and never restarted; pending requests fail with EngineDiedError.

    `start` starts it, such as `partial(pool.start, "engine", ...)`, and `hear` gets its stderr. Trusted layer files
    need no trial first. Answers have at most `longest` bytes. Raises OSError if it cannot be started.
    """

    def __init__(
        self,
        start: Callable[[], Any],
        hear: Callable[[IO[bytes]], Any] = child_process.StderrReader,
        longest: int = LONGEST,
    ) -> None:
        process = _Process(1, start, hear, longest)
        self._how = ""
        super().__init__(start)
        self._own = self._process = process
        self.child, self.stderr = process.child, process.stderr
        self._begin(process)

    def how_it_ended(self) -> str:
        """Return how it ended, as the second half of a sentence; waits for its end."""
        return self._how or child_process.describe_exit(
            self.child.wait(), self._own.kills
        )

    def kill(self) -> None:
        """End it now, whatever it does."""
        self.child.kill()

    def abort(self) -> None:
        """End it so that its stderr says where it was; kill it where that takes more than ABORT seconds."""
        if os.name == "posix":
            self.child.send_signal(signal.SIGABRT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.child.wait(ABORT)
        self.kill()

    def close(self) -> None:
        """Kill it and its children during a request; else it ends when its input closes."""
        if self._own.open:
            self.kill()
        super().close()
        if os.name == "posix":
            child_process.end_group(self.child.pid)

    def _current(self) -> _Process:
        return self._own

    def _trusted(self) -> tuple[frozenset[str], frozenset[str]]:
        allowed, _ = layer_files.trusted()
        return allowed, allowed

    def _death_message(self, how: str) -> str:
        self._how = how
        return f"The process {how}."


class LimitedQuestion(Generic[A]):
    """A request to an engine of its own, stopped after `seconds`, when its process has grown by `memory` bytes (on
    Linux alone), and when `cancelled`.
    """

    def __init__(
        self,
        engine: OwnEngine,
        request: Request[A],
        seconds: float = math.inf,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> None:
        self.cancelled = cancelled
        self._engine = engine
        self._messages: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._question = engine.ask(request, self._messages.put)
        self._question.add_done_callback(lambda _: self._messages.put(_ANSWERED))
        self.limit(seconds)

    def limit(self, seconds: float, memory: float = math.inf) -> None:
        """Limit what it may take from now on."""
        self._began, self._seconds, self._memory = time.monotonic(), seconds, memory
        self._base = self._used_memory()

    @property
    def took(self) -> float:
        """The seconds since the last limit was set."""
        return time.monotonic() - self._began

    def messages(self) -> Iterator[Any]:
        """Yield what the handler reports, and None wherever it reports nothing for a moment, until there is an answer.
        Raises RequestStoppedError."""
        while True:
            try:
                message = self._messages.get(timeout=POLL_INTERVAL)
            except queue.Empty:
                message = None
            if message is _ANSWERED:
                self._messages.put(_ANSWERED)  # for who asks for messages again
                return
            if self.cancelled():
                self._stop("cancelled")
            if self.took > self._seconds:
                self._stop("time")
            if self._used_memory() - self._base > self._memory:
                self._stop("memory")
            yield message

    def answer(self, tell: Callable[[Any], None] = lambda _message: None) -> A:
        """Wait for the answer; `tell` is called with what the handler reports before.

        Raises RequestStoppedError, EngineDiedError, and what the handler raises.
        """
        for message in self.messages():
            if message is not None:
                tell(message)
        return self._question.result()

    def _used_memory(self) -> int:
        if self._memory == math.inf:
            return 0
        return child_process.memory_of(self._engine.child.pid) or 0

    def _stop(self, reason: Literal["cancelled", "time", "memory"]) -> NoReturn:
        self._question.stop()
        raise RequestStoppedError(reason)


def once(request: Request[A]) -> A:
    """Run one request in a new process that ends afterwards.

    Raises what the handler raises, EngineDiedError, and OSError if no process can be started.
    """
    engine = OwnEngine(lambda: pool.start("engine"))
    try:
        return engine.ask(request).result()
    finally:
        engine.close()
