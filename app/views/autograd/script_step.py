"""The step of a watched script that is captured: requested, held while the script is paused before it, and released."""

from __future__ import annotations

import contextlib
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QObject, Signal, Slot

from app.engine.protocol import Handle
from app.engine.requests.capture import CapturedStep, HeldStep
from app.engine.watched.follow import WatchedRunControl
from app.engine.watched.script_engine import ScriptEngine
from app.views.engine_service import OwnEngineService, end_engine
from app.views.ui.background import WorkerFailure

if TYPE_CHECKING:
    from app.views.run.session import RunSession
    from app.views.ui.background import Background

STEP, START = "step of a script", "engine of a script"  # keys of questions
NONE, WAITING, HELD = "none", "waiting", "held"
HELD_HANDLE = 1  # the number of what the script's engine holds


class ScriptStep(QObject):
    """Captures steps of the script that a session watches, one at a time. `state` is NONE, WAITING for the next
    backward or HELD, while the script is paused.

    `captured(CapturedStep, HeldStep)` carries a step, `refused(words)` why there is none, `gone()` that the script has
    gone on.
    """

    changed = Signal(str)
    captured = Signal(object, object)
    refused = Signal(str)
    gone = Signal()
    _answered = Signal(int, object)

    def __init__(
        self, session: RunSession, background: Background, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._session, self._background = session, background
        self.state = NONE
        self.service: OwnEngineService | None = None
        self._turn = 0  # of the newest question: answers to earlier ones are stale
        self._answered.connect(self._on_answer)

    def _control(self) -> Any:
        thread = self._session.training_thread
        return thread.control if thread is not None else None

    def capture(self) -> None:
        """Have the next backward captured; a paused script continues first."""
        control = self._control()
        if not isinstance(control, WatchedRunControl):
            self.refused.emit("No script is watched.")
            return
        self._turn += 1
        future = control.ask("capture")  # before the script continues
        self._disconnect()
        self._enter(WAITING)
        future.add_done_callback(partial(self._tell, self._turn))

    def _tell(self, turn: int, answer: Future[dict[str, Any]]) -> None:
        """Pass an answer from the thread of the run to the window's."""
        error = answer.exception()
        with contextlib.suppress(RuntimeError):  # the window is gone
            self._answered.emit(turn, error if error is not None else answer.result())

    @Slot(int, object)
    def _on_answer(self, turn: int, answer: dict[str, Any] | Exception) -> None:
        if turn != self._turn:
            return
        if isinstance(answer, Exception):
            self._enter(NONE)
            self.refused.emit(str(answer))
            return
        step_handle = HeldStep(
            Handle(HELD_HANDLE, 1), str(answer["script"]), int(answer["step"])
        )
        connect, connected = (
            partial(ScriptEngine, self._control().folder),
            partial(self._connected, turn, step_handle),
        )
        self._background.ask(
            f"{START} {turn}", connect, on_answer=connected, on_error=self._failed
        )

    def _connected(
        self, turn: int, step_handle: HeldStep, engine: ScriptEngine
    ) -> None:
        if turn != self._turn:
            end_engine(engine)
            return
        self.service = OwnEngineService(self, engine)
        self.service.ended.connect(self._ended)
        self.service.ask(
            STEP,
            step_handle,
            on_answer=partial(self._described, step_handle),
            on_error=self._failed,
        )

    def _described(self, step_handle: HeldStep, step: CapturedStep) -> None:
        self._enter(HELD)
        self.captured.emit(step, step_handle)

    def _failed(self, failure: WorkerFailure) -> None:
        self.release()
        self.refused.emit(failure.message)

    def release(self) -> None:
        """Let the script continue, or stop waiting for its backward."""
        if self.state == NONE and self.service is None:
            return
        self._turn += 1
        control = self._control()
        if isinstance(control, WatchedRunControl):
            control.ask("release").add_done_callback(Future.exception)
        self._go()

    @Slot(str)
    def _ended(self, _words: str) -> None:
        """The script has continued by itself, or has ended."""
        if self.sender() is self.service:
            self._go()

    def _go(self) -> None:
        paused = self.state == HELD
        self._disconnect()
        self._enter(NONE)
        if paused:
            self.gone.emit()

    def _disconnect(self) -> None:
        service, self.service = self.service, None
        if service is not None:
            service.close()

    def close(self) -> None:
        """Let the script continue as the window closes."""
        self._turn += 1
        self._disconnect()

    def _enter(self, state: str) -> None:
        if state != self.state:
            self.state = state
            self.changed.emit(state)
