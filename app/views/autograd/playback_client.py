"""A backward pass that is played elsewhere, as the window has it: commands go there, events come back as signals."""

from __future__ import annotations

import threading
from collections import deque

from PySide6.QtCore import QObject, Signal

from app.autograd.playback.steps import StepRecord
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
)


class PlaybackClient(QObject):
    """Has a batch run, kept and played. `told` carries Kept, Stood, Looked, Trouble and at last LetGo; `ended` follows.

    Steps wait in a queue that is polled with `drain`. Connect `told` to a bound method of a QObject: it arrives queued.
    """

    told = Signal(object)
    ended = Signal()

    def __init__(self, request: PlaybackRequest, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._turn = 0
        self._steps: deque[Steps | Back] = deque()
        from app.engine.tasks.playback import PlaybackSession

        self._session = PlaybackSession(request, self._take)
        self._thread = threading.Thread(target=self._run, name="playback", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        self._session.run()
        self.ended.emit()

    def _take(self, event: Event) -> None:
        if isinstance(event, Steps | Back):
            self._steps.append(event)
        else:
            self.told.emit(event)

    def ask(self, command: Command) -> int:
        """Have something done; returns at once, with the number of the newest movement."""
        if isinstance(command, Seek | Play | Pause | Leave):
            self._turn += 1
        self._session.ask(command)
        return self._turn

    def pause(self) -> None:
        """End the movement under way after the step that it is at."""
        self.ask(Pause())

    def set_speed(self, speed: float | None) -> None:
        """Steps a second, None for as many as it can."""
        self.ask(SetSpeed(speed))

    def leave(self) -> None:
        """Free the graph and end."""
        self.ask(Leave())

    def wait(self) -> None:
        """Wait until it has ended."""
        if self._thread.is_alive():
            self._thread.join()

    def drain(self) -> list[StepRecord | Back]:
        """What was played since the last call, in order."""
        found: list[StepRecord | Back] = []
        while self._steps:
            event = self._steps.popleft()
            found += [event] if isinstance(event, Back) else event.records
        return found
