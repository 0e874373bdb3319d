"""A run on a thread of its own: a Job in, events out through a ring that the window polls.

A signal is sent for a change of state only, never for a step: a queued signal per step costs the run its speed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from PySide6.QtCore import QObject, QThread, Signal

from app.engine.dispatch import control_for, train
from app.engine.placement import OWN_PROCESS, RunPlacement
from app.telemetry.ring import Ring
from app.training.control import Result
from app.training.events import Event, Failed, Finished, Paused, Resumed, Started
from app.training.job import Job
from app.training.run_requests import RunRequest

if TYPE_CHECKING:
    from torch import Tensor

    from app.runs.recorder import Recorder

T = TypeVar("T")

_STATE_EVENTS = (Started, Paused, Resumed, Finished, Failed)


class TrainingThread(QThread):
    """One run; make a new one for the next. `start()` begins it, from the checkpoint `resume` on if there is one.

    The run has a process of its own, or is wherever `place` says; this thread listens to it. A `recorder` keeps what it
    tells, and gives it a folder for its checkpoints. `before` is called on this thread before all else.

    `state_changed` carries Started, Paused, Resumed, and at last Finished or Failed, which are in the ring too. Connect
    it to a bound method of a QObject, so that it arrives queued.
    """

    state_changed = Signal(object)

    def __init__(
        self,
        job: Job,
        parent: QObject | None = None,
        *,
        recorder: Recorder | None = None,
        resume: Path | None = None,
        place: RunPlacement = OWN_PROCESS,
        before: Callable[[], object] | None = None,
    ) -> None:
        super().__init__(parent)
        self.job, self.place = job, place
        self._before = before
        self._recorder, self._resume = recorder, resume
        self.control = control_for(place)
        self._ring: Ring[Event] = Ring()
        # What the window's thread was given, unless torch is still on its way; then the default it comes with.
        torch = sys.modules.get("torch")
        count = getattr(torch, "get_num_threads", None)
        self._threads: int | None = count() if count else None

    def run(self) -> None:
        recorder, folder = self._recorder, None
        if self._before is not None:
            self._before()
        if recorder is not None:
            recorder.threads = self.job.training.threads or self._threads or 0
            if not recorder.begin():
                folder = recorder.checkpoints
        try:
            events = train(
                self.job, self.control, self.place, threads=self._threads, folder=folder, resume=self._resume
            )
            for event in events:
                self._ring.append(event)
                if recorder is not None and (problem := recorder.take(event)) is not None:
                    self._ring.append(problem)
                if isinstance(event, _STATE_EVENTS):
                    self.state_changed.emit(event)
        finally:
            if recorder is not None:
                recorder.close()
                if (problem := recorder.unsaid()) is not None:
                    self._ring.append(problem)

    def drain(self) -> list[Event]:
        """The events since the last call, oldest first."""
        return self._ring.drain()

    def pause(self) -> None:
        self.control.pause()

    def resume(self) -> None:
        self.control.resume()

    def step(self) -> None:
        """Take one batch, then stand."""
        self.control.step()

    def stop(self) -> None:
        """End after the step under way; Finished follows."""
        self.control.stop()

    def stop_and_wait(self, milliseconds: int = 30_000) -> bool:
        """Stop, and wait for the thread; True if it has ended. For closing the window."""
        self.control.stop()
        return self.wait(milliseconds) if self.isRunning() else True

    def run_between_steps(self, request: RunRequest[T]) -> Future[T]:
        """Have a request answered between two steps; the run's numbers stay as they are.

        The future gets RunEndedError for a run that cannot be asked.
        """
        return self.control.call(request)

    def weights(self, timeout: float | None = None) -> Mapping[str, Tensor]:
        """A copy of the weights on the CPU, while the run goes on, stands, or has ended."""
        return self.control.weights(timeout)

    def write_weights(self, path: Path, timeout: float | None = None) -> None:
        """Leave that copy in a file, as `torch.save` writes it. Raises NoWeightsError, OSError."""
        self.control.write_weights(path, timeout)

    @property
    def leaves_room(self) -> bool:
        """Whether the window has a processor to itself."""
        taken = (self.job.training.threads or self._threads or 1) * self.place.processes
        return self.place.watched is not None or taken < (os.cpu_count() or 1)

    @property
    def result(self) -> Result | None:
        """What is left of the run; None until it has ended."""
        return self.control.result
