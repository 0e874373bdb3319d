"""Ask the engine from the window's thread: requests out, answers and failures back on the event loop."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from PySide6.QtCore import QObject, Qt, Signal, Slot

from app.engine.client import Engine, Question, shared, traceback_of
from app.engine.protocol import Handle, Request
from app.views.ui.background import Failure, Questions

A = TypeVar("A")


class EngineService(Questions):
    """Asks the engine; of several requests under one key only the newest is answered.

    `ended(words)` says how an engine ended that was not closed; the next question starts another.
    """

    ended = Signal(str)
    _said = Signal(int, object)

    def __init__(self, parent: QObject | None = None, engine: Engine | None = None) -> None:
        super().__init__(parent)
        self._engine = engine or shared()
        self._questions: dict[int, Question[Any]] = {}
        self._progress: dict[int, Callable[[Any], None]] = {}
        self._said.connect(self._hear, Qt.ConnectionType.QueuedConnection)
        self._engine.listen(self._tell_end)

    def warm(self) -> None:
        """Start the engine now, so that the first question does not wait for torch."""
        self._engine.warm()

    def ask(
        self,
        key: str,
        request: Request[A],
        *,
        on_answer: Callable[[A], None],
        on_error: Callable[[Failure], None] | None = None,
        on_progress: Callable[[Any], None] | None = None,
    ) -> Question[A] | None:
        """Send a request; answer, failure and progress come on this object's thread. None after `close`."""
        number = self._begin(key, on_answer, on_error)
        if number is None:
            return None
        if on_progress is not None:
            self._progress[number] = on_progress
        progress = partial(self._said.emit, number) if on_progress is not None else None
        question = self._questions[number] = self._engine.ask(request, progress)
        question.add_done_callback(partial(self._done, number))
        return question

    def release(self, handle: Handle) -> None:
        """Let go of what a handle names."""
        self._engine.release(handle)

    def _tell_end(self, words: str) -> None:
        with contextlib.suppress(RuntimeError):  # the window is gone
            self.ended.emit(words)

    def _done(self, number: int, question: Question[Any]) -> None:
        """On the thread that reads: hand the answer to the window's."""
        if question.cancelled():
            return
        error = question.exception()
        answer = question.result() if error is None else Failure(error, traceback_of(error))
        with contextlib.suppress(RuntimeError):  # the window is gone
            self.answered.emit(number, answer)

    @Slot(int, object)
    def _hear(self, number: int, value: Any) -> None:
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
        """Cancel what is asked; the engine itself is closed with the program."""
        super().close()
        self._engine.unlisten(self._tell_end)
        for question in list(self._questions.values()):
            question.stop()
        self._questions.clear()
