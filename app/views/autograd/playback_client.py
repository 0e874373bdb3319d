"""Client of a backward pass played in an engine: sends commands, emits its events as signals."""

from __future__ import annotations

import contextlib
from collections import deque
from concurrent.futures import Future

from PySide6.QtCore import QObject, Signal

from app.autograd.playback.steps import StepRecord
from app.engine.client import Engine, traceback_of
from app.engine.protocol import EngineDiedError
from app.engine.requests.capture import HeldStep
from app.engine.requests.playback import (
    Back,
    Command,
    Event,
    Leave,
    Pause,
    Play,
    PlaybackRequest,
    Seek,
    SetSpeed,
    Steps,
    Trouble,
)

FREED = "The captured graph was freed"  # with its engine


class PlaybackClient(QObject):
    """Runs a batch and plays its backward pass. `event_received` carries the events but steps, from GraphHeld to
    GraphFreed; `ended` follows, also when the engine's process dies.

    Steps are queued; poll them with `drain`. Connect to bound methods of a QObject: signals arrive queued.
    """

    event_received = Signal(object)
    ended = Signal()

    def __init__(
        self, engine: Engine, request: PlaybackRequest, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._engine, self._request = engine, request
        self._turn = 0
        self._steps: deque[StepRecord | Back] = deque()

    def start(self) -> None:
        self._question = self._engine.ask(self._request, self._receive)
        self._question.add_done_callback(self._done)

    def _receive(self, event: Event) -> None:
        """On the thread that reads."""
        if isinstance(event, Steps):
            self._steps.extend(event.records)
        elif isinstance(event, Back):
            self._steps.append(event)
        else:
            self._emit(event)

    def _done(self, question: Future[None]) -> None:
        error = None if question.cancelled() else question.exception()
        if isinstance(error, EngineDiedError) and isinstance(
            self._request.batch, HeldStep
        ):
            pass  # the script has continued
        elif isinstance(error, EngineDiedError):
            self._emit(Trouble(FREED, f"{error} Capture one batch again."))
        elif error is not None:
            self._emit(
                Trouble(
                    "The backward pass cannot be played",
                    str(error),
                    traceback=traceback_of(error),
                )
            )
        with contextlib.suppress(RuntimeError):  # the window is gone
            self.ended.emit()

    def _emit(self, event: Event) -> None:
        with contextlib.suppress(RuntimeError):  # the window is gone
            self.event_received.emit(event)

    def send(self, command: Command) -> int:
        """Have something done; returns at once, with the number of the newest movement."""
        if isinstance(command, Seek | Play | Pause | Leave):
            self._turn += 1
        self._question.send(command)
        return self._turn

    def pause(self) -> None:
        """Pause after the current step."""
        self.send(Pause())

    def set_speed(self, speed: float | None) -> None:
        """Set the speed in steps a second, None for unlimited."""
        self.send(SetSpeed(speed))

    def leave(self) -> None:
        """Free the graph and end."""
        self.send(Leave())

    def drain(self) -> list[StepRecord | Back]:
        """Return the steps played since the last call, in order."""
        return [self._steps.popleft() for _ in range(len(self._steps))]
