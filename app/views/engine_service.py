"""Send requests to the engine from the window's thread; answers and failures arrive on its event loop."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from PySide6.QtCore import QObject, Qt, Signal, SignalInstance, Slot

from app.engine.client import Engine, Question, shared, traceback_of
from app.engine.protocol import EngineDiedError, Handle, Request
from app.views.ui.background import PendingRequests, WorkerFailure

if TYPE_CHECKING:
    from app.engine.own_engine import OwnEngine

A = TypeVar("A")


class EngineService(PendingRequests):
    """Client of the engine; of several requests under one key only the newest is answered.

    `ended(words)` reports how an engine ended unexpectedly, `started` the one that the next request starts.
    """

    ended = Signal(str)
    started = Signal()
    _said = Signal(int, object)

    def __init__(
        self, parent: QObject | None = None, engine: Engine | None = None
    ) -> None:
        super().__init__(parent)
        self._engine = engine or shared()
        self._questions: dict[int, Question[Any]] = {}
        self._progress: dict[int, Callable[[Any], None]] = {}
        self._emitting = threading.Lock()
        self._closed = False
        self._said.connect(self._report_progress, Qt.ConnectionType.QueuedConnection)
        self._engine.listen(self._tell_end)
        self._engine.listen_to_starts(self._tell_start)

    def warm(self) -> None:
        """Start the engine now, so that the first question does not wait for torch."""
        self._engine.warm()

    def ask(
        self,
        key: str,
        request: Request[A],
        *,
        on_answer: Callable[[A], None],
        on_error: Callable[[WorkerFailure], None] | None = None,
        on_progress: Callable[[Any], None] | None = None,
    ) -> Question[A] | None:
        """Send a request; answer, failure and progress arrive on this object's thread. None after `close`.

        Without `on_error` a failure is raised on this thread, except the engine's end, which `ended` reports once.
        """
        number = self._register(key, on_answer, on_error or _raise)
        if number is None:
            return None
        if on_progress is not None:
            self._progress[number] = on_progress
        progress = (
            partial(self._tell_progress, number) if on_progress is not None else None
        )
        question = self._questions[number] = self._engine.ask(request, progress)
        question.add_done_callback(partial(self._done, number))
        return question

    @property
    def pid(self) -> int | None:
        """The process that answers at the moment."""
        return self._engine.pid

    def release(self, handle: Handle) -> None:
        """Release the object of a handle."""
        self._engine.release(handle)

    def _emit(self, signal: SignalInstance, *values: Any) -> None:
        """Emit from the thread that reads answers, unless this is closed: then it may be destroyed meanwhile."""
        with self._emitting, contextlib.suppress(RuntimeError):
            if not self._closed:
                signal.emit(*values)

    def _tell_end(self, message: str) -> None:
        self._emit(self.ended, message)

    def _tell_start(self) -> None:
        self._emit(self.started)

    def _tell_progress(self, number: int, value: Any) -> None:
        self._emit(self._said, number, value)

    def _done(self, number: int, question: Question[Any]) -> None:
        """Pass the answer from the reading thread to the window's."""
        if question.cancelled():
            return
        error = question.exception()
        answer = (
            question.result()
            if error is None
            else WorkerFailure(error, traceback_of(error))
        )
        self._emit(self.answered, number, answer)

    @Slot(int, object)
    def _report_progress(self, number: int, value: Any) -> None:
        if number in self._open and number in self._progress:
            self._progress[number](value)

    def _hand_over(self) -> None:
        number = self._arrived[0][0]
        self._questions.pop(number, None)
        self._progress.pop(number, None)
        super()._hand_over()

    def _drop(self, key: str, number: int) -> None:
        self._progress.pop(number, None)
        question = self._questions.pop(number, None)
        if question is not None:
            question.stop()

    def close(self) -> None:
        """Cancel all requests; the engine itself is closed with the program."""
        with self._emitting:
            self._closed = True
        super().close()
        self._engine.unlisten(self._tell_end)
        self._engine.unlisten_to_starts(self._tell_start)
        for question in list(self._questions.values()):
            question.stop()
        self._questions.clear()


class OwnEngineService(EngineService):
    """Client with an exclusive engine, which ends with it."""

    def __init__(self, parent: QObject, engine: OwnEngine) -> None:
        super().__init__(parent, engine)
        self.engine = engine

    def close(self) -> None:
        """Cancel all requests and end the engine; its last thread is waited for on another."""
        super().close()
        end_engine(self.engine)
        self.deleteLater()


def end_engine(engine: OwnEngine) -> None:
    """End an engine at once, without waiting for the thread that writes to it."""
    engine.kill()
    threading.Thread(target=engine.close, name="end of an engine", daemon=True).start()


def _raise(failure: WorkerFailure) -> None:
    if not isinstance(failure.error, EngineDiedError):
        raise failure.error


class EngineTask(QObject):
    """One request to the engine with the interface of `ui.task.BackgroundTask`.

    `cancel` emits `ended(None)` at once; the handler is cancelled, and its answer is dropped.
    """

    ended = Signal(object)

    def __init__(self, engine: EngineService, request: Request[Any]) -> None:
        super().__init__(engine)
        self._engine, self._request, self._key = engine, request, f"work {id(self)}"
        self.progress, self.cancelled = "", False

    def begin(self) -> None:
        self._engine.ask(
            self._key,
            self._request,
            on_answer=self._end,
            on_error=self._end,
            on_progress=self._report,
        )

    def _report(self, progress: str) -> None:
        self.progress = progress

    def cancel(self) -> None:
        if not self.cancelled:
            self.cancelled = True
            self._engine.forget(self._key)
            self._end(None)

    def _end(self, answer: Any) -> None:
        self.ended.emit(answer)
        self.deleteLater()
