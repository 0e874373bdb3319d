"""The thread of a run: starts a Job, and returns its events through a ring buffer that the window polls.

Signals report changes of state only: a queued signal per step would slow the run down.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace
from PySide6.QtCore import QObject, QThread, Signal

from app.engine.dispatch import control_for, train
from app.engine.placement import OWN_PROCESS, RunPlacement
from app.telemetry.ring import Ring
from app.training.control import Result
from app.training.events import Cut, Event, Failed, Finished, Paused, Resumed, Started
from app.training.job import Job, Stage
from app.training.monitoring.watch_points import WatchPoints
from app.training.run_requests import Operate, RunRequest
from app.training.surgery.values import Outcome, Surgery
from app.util import processors

if TYPE_CHECKING:
    from torch import Tensor

    from app.project.project import Project
    from app.runs.recorder import Recorder

T = TypeVar("T")

_STATE_EVENTS = (Started, Paused, Resumed, Finished, Failed)


class TrainingThread(QThread):
    """One run; create a new thread for each. `start()` begins it, from the checkpoint `resume` if given.

    The run has its own process, or is on the target `place`; this thread reads its events. A `recorder` stores them and
    provides the folder for checkpoints. `before` is called on this thread first.

    `state_changed` carries Started, Paused, Resumed and finally Finished or Failed, which are in the ring too. Connect
    it to a bound method of a QObject, so that it is delivered by a queued connection.
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
        self._surgeries: list[Surgery] = []  # that were asked for
        self._before = before
        self._recorder, self._resume = recorder, resume
        self.control = control_for(place)
        self._ring: Ring[Event] = Ring()
        # The window's setting, or torch's default before torch is imported.
        torch = sys.modules.get("torch")
        count = getattr(torch, "get_num_threads", None)
        self._threads: int | None = count() if count else None

    def run(self) -> None:
        recorder, folder = self._recorder, None
        if self._before is not None:
            self._before()
        if recorder is not None:
            recorder.threads = self.job.training.threads or self._threads or 0
            recorder.processes = self.place.processes
            if not recorder.begin():
                folder = recorder.checkpoints
        try:
            events = train(
                self.job,
                self.control,
                self.place,
                threads=self._threads,
                folder=folder,
                resume=self._resume,
            )
            for event in events:
                if isinstance(event, Cut):
                    self._note_stage(event)
                problem = (
                    recorder.take(event) if recorder is not None else None
                )  # before the window sees it
                self._ring.append(event)
                if problem is not None:
                    self._ring.append(problem)
                if isinstance(event, _STATE_EVENTS):
                    self.state_changed.emit(event)
        finally:
            if recorder is not None:
                recorder.close()
                if (problem := recorder.unsaid()) is not None:
                    self._ring.append(problem)

    def drain(self) -> list[Event]:
        """Return the events since the last call, oldest first."""
        return self._ring.drain()

    def pause(self) -> None:
        self.control.pause()

    def resume(self) -> None:
        self.control.resume()

    def step(self) -> None:
        """Run one batch, then pause."""
        self.control.step()

    def stop(self) -> None:
        """Stop after the current step; Finished follows."""
        self.control.stop()

    def leave(self) -> None:
        """End the watching of a run elsewhere, which goes on."""
        self.control.leave()

    def pause_at(self, points: WatchPoints) -> None:
        """Set the conditions to pause at."""
        self.control.pause_at(points)

    def stop_and_wait(self, milliseconds: int = 30_000) -> bool:
        """Stop, and wait for the thread; True if it has ended. For closing the window."""
        self.control.stop()
        return self.wait(milliseconds) if self.isRunning() else True

    def run_between_steps(self, request: RunRequest[T]) -> Future[T]:
        """Run a request between two steps, without changing the run's numbers.

        The future gets RunEndedError if the run has ended.
        """
        return self.control.call(request)

    def operate(self, surgery: Surgery, project: Project) -> Future[Outcome]:
        """Put the net of an edited project in the place of the run's before the next step; Cut follows.

        The future gets RuntimeError with the reason if that is not possible; the run is as it was then.
        """
        if self._recorder is not None:
            self._recorder.plan(surgery, project)
        self._surgeries.append(surgery)
        return self.control.call(Operate(surgery))

    def _note_stage(self, event: Cut) -> None:
        """Add a stage to the job, unless it was planned."""
        known = self.job.stages[: event.stage - 1]
        made = [
            surgery
            for surgery in self._surgeries
            if surgery.source.filename == event.net
        ]
        if len(known) < event.stage - 1 and made:
            self.job = replace(self.job, stages=(*known, Stage(event.step, made[-1])))

    def weights(self, timeout: float | None = None) -> Mapping[str, Tensor]:
        """Return a copy of the weights on the CPU, of a running, paused or ended run."""
        return self.control.weights(timeout)

    def write_weights(self, path: Path, timeout: float | None = None) -> None:
        """Leave that copy in a file, as `torch.save` writes it. Raises NoWeightsError, OSError."""
        self.control.write_weights(path, timeout)

    @property
    def leaves_room(self) -> bool:
        """Return whether the run leaves at least one CPU core to the window."""
        taken = (
            self.job.training.threads or self._threads or processors.usual_threads()
        ) * self.place.processes
        return self.place.watched is not None or taken < processors.available()

    @property
    def result(self) -> Result | None:
        """Return the result of an ended run, else None."""
        return self.control.result
