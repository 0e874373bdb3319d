"""Run requests on a worker thread and deliver the answers on the thread of the window.

One worker, because the functions compete for the interpreter lock anyway. A newer request under the same key makes an
older one stale: it is removed from the queue, or its answer is dropped if it already runs.
"""

from __future__ import annotations

import itertools
import traceback
from collections import deque
from collections.abc import Callable
from threading import Condition
from typing import Any

from msgspec import Struct
from PySide6.QtCore import QObject, Qt, QThread, QTimer, Signal, Slot

from app.source import raised


class WorkerFailure(Struct, frozen=True):
    """What went wrong in a worker: the exception and its traceback as text."""

    error: BaseException
    traceback: str

    @property
    def message(self) -> str:
        """What it says to a person; of an error of other code also its class, and the line of the person's own file."""
        return raised.message_of(self.error)


class _Question(Struct, frozen=True):
    number: int
    key: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]


class _Worker(QThread):
    answered = Signal(int, object)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._waiting: deque[_Question] = deque()
        self._wake = Condition()
        self._leaving = False

    def put(self, question: _Question) -> None:
        with self._wake:
            self._drop(question.key)
            self._waiting.append(question)
            self._wake.notify()

    def drop(self, key: str) -> None:
        """Remove the request under `key` from the queue, unless it has begun."""
        with self._wake:
            self._drop(key)

    def _drop(self, key: str) -> None:
        self._waiting = deque(other for other in self._waiting if other.key != key)

    def leave(self) -> None:
        with self._wake:
            self._leaving = True
            self._waiting.clear()
            self._wake.notify()

    def run(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._waiting or self._leaving)
                if self._leaving:
                    return
                question = self._waiting.popleft()
            try:
                answer = question.function(*question.arguments)
            except (
                BaseException
            ) as error:  # reported to the caller; the worker continues
                answer = WorkerFailure(error, traceback.format_exc())
            self.answered.emit(question.number, answer)


class PendingRequests(QObject):
    """Pending requests, by key: only the newest of a key is answered, on the thread that this object lives in.

    Subclasses send a request with `_send` and put its answer, or a WorkerFailure, into `answered` from any thread.
    """

    busy_changed = Signal(bool)
    answered = Signal(int, object)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._numbers = itertools.count()
        self._open: dict[
            int,
            tuple[str, Callable[[Any], None], Callable[[WorkerFailure], None] | None],
        ] = {}
        self._newest: dict[str, int] = {}
        self._closed = False
        self._arrived: deque[tuple[int, Any]] = deque()
        self._next = QTimer(self, singleShot=True)
        self._next.timeout.connect(self._hand_over)
        self.answered.connect(self._deliver, Qt.ConnectionType.QueuedConnection)

    @property
    def busy(self) -> bool:
        return bool(self._newest)

    def _register(
        self,
        key: str,
        on_answer: Callable[[Any], None],
        on_error: Callable[[WorkerFailure], None] | None,
    ) -> int | None:
        """Return the number of a new request, which replaces the one under the same key; None after `close`."""
        if self._closed:
            return None
        number = next(self._numbers)
        was_busy = self.busy
        old = self._newest.get(key, -1)
        if self._open.pop(old, None) is not None:
            self._drop(key, old)
        self._newest[key] = number
        self._open[number] = (key, on_answer, on_error)
        if not was_busy:
            self.busy_changed.emit(True)
        return number

    def pending(self, key: str) -> bool:
        """Return whether a request under `key` is pending."""
        return key in self._newest

    def forget(self, key: str) -> None:
        """Drop the open question under `key`, if any: its answer is not delivered."""
        was_busy = self.busy
        number = self._newest.pop(key, -1)
        if self._open.pop(number, None) is not None:
            self._drop(key, number)
        if was_busy and not self.busy:
            self.busy_changed.emit(False)

    def _drop(self, key: str, number: int) -> None:
        """Cancel a request whose answer is no longer needed."""

    def close(self) -> None:
        """Refuse new requests and drop the answers of pending ones."""
        was_busy, self._closed = self.busy, True
        self._open.clear()
        self._newest.clear()
        if was_busy:
            self.busy_changed.emit(False)

    @Slot(int, object)
    def _deliver(self, number: int, answer: Any) -> None:
        """Queue an answer: one is delivered per turn of the event loop, so that several do not add up to a pause."""
        self._arrived.append((number, answer))
        self._next.start(0)

    def _hand_over(self) -> None:
        number, answer = self._arrived.popleft()
        if self._arrived:
            self._next.start(0)
        if number not in self._open:
            return
        key, on_answer, on_error = self._open.pop(number)
        self._newest.pop(key, None)
        if not self.busy:
            self.busy_changed.emit(False)
        if not isinstance(answer, WorkerFailure):
            on_answer(answer)
        elif on_error is not None:
            on_error(answer)
        else:
            raise answer.error


class Background(PendingRequests):
    """Runs functions on a worker thread of this process."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._worker = _Worker(self)
        self._worker.answered.connect(self._deliver, Qt.ConnectionType.QueuedConnection)
        self._worker.start()

    def ask(
        self,
        key: str,
        function: Callable[..., Any],
        *arguments: Any,
        on_answer: Callable[[Any], None],
        on_error: Callable[[WorkerFailure], None] | None = None,
    ) -> None:
        """Run `function(*arguments)` on the worker and pass its result to `on_answer`.

        Arguments and result must be immutable. Of several requests under one key only the newest is answered. Without
        `on_error` a failure is raised on this thread, where the window shows it. Does nothing after `close`.
        """
        number = self._register(key, on_answer, on_error)
        if number is not None:
            self._worker.put(_Question(number, key, function, arguments))

    def _drop(self, key: str, number: int) -> None:
        self._worker.drop(key)

    def close(self) -> None:
        """End the worker; a running request is finished first and its answer dropped."""
        super().close()
        self._worker.leave()
        self._worker.wait()
