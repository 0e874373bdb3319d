"""The runs of one window: start, pause, step and stop them, and poll their events.

At most one run is active. Its thread is polled, not signalled per step. A run has ended when its thread has, so "done",
"stopped" and "failed" mean that nothing of it is running.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from time import thread_time
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct, field
from PySide6.QtCore import QObject, QTimer, Signal, Slot

from app.engine.placement import OWN_PROCESS, RunPlacement
from app.training.events import Cut, Event, Failed, Finished, Paused, Resumed, Started
from app.training.history import History
from app.training.job import Job
from app.training_thread import TrainingThread
from app.views.shown_run import Figures

if TYPE_CHECKING:
    from app.runs.recorder import Recorder
    from app.runs.store import Kept

POLL, SLOWEST = (
    83,
    1000,
)  # milliseconds between two polls: 12 times a second, at least one
SHARE = (
    0.01  # of a CPU core for polls and their painting: the run may need the same core
)
ROOMY = 3  # factor for time and rate of polls if the run leaves a core to the window
ETA_WINDOW = 30.0  # seconds of the run that the time left is judged by

ACTIVE = frozenset({"starting", "waiting", "running", "paused", "stopping"})


class Series(Struct, frozen=True):
    """The place of a run in a sweep: the `number`-th of `count`."""

    tag: str
    number: int
    count: int

    @property
    def place(self) -> str:
        """Return the place as text.

        >>> Series("sweep-1", 3, 12).place
        '3 of 12 of sweep-1'
        """
        return f"{self.number:,} of {self.count:,} of {self.tag}"


class RunUnderWay(RuntimeError):
    """A run was started while another one is active."""

    def __init__(self) -> None:
        super().__init__(
            "A run is in progress. Stop it first, or wait until it has ended."
        )


class Run(Struct):
    """One run of this window: its job in the stage that it is in, its history, and how it ended.

    `state` is "starting", "running", "paused", "stopping", "done", "stopped" or "failed"; of a run elsewhere "waiting"
    for its first step, and "left" when it is watched no longer, though it goes on.
    """

    number: int
    job: Job
    began: datetime
    history: History = field(default_factory=History)
    state: str = "starting"
    finished: Finished | None = None
    failed: Failed | None = None
    recorder: Recorder | None = None  # keeps it in a folder
    series: Series | None = None  # of a run of a sweep
    watched: Path | None = None  # the file of one that was started elsewhere

    @property
    def display_number(self) -> int:
        """The number under which the run is stored, or its number in this window if it is not."""
        return (
            self.recorder.kept.record.number
            if self.recorder is not None
            else self.number
        )

    @property
    def figures(self) -> Figures:
        """Return what the charts show of the run."""
        title, folder = (
            f"Run {self.display_number}",
            self.recorder.kept.folder if self.recorder is not None else None,
        )
        return Figures(
            self.history,
            title,
            self.job.source,
            self.job.training.loss_name,
            folder=folder,
        )

    @property
    def active(self) -> bool:
        return self.state in ACTIVE

    def continues(self, other: Run) -> bool:
        """Return whether this takes up the watching of what another watched, in whose place it is then."""
        return (
            self.watched is not None
            and other.state == "left"
            and other.watched == self.watched
        )


class RunProgress(Struct, frozen=True):
    """Values of the counter. `batch` counts within the epoch; unknown values are None. `eta` is an estimate.

    `batches` is 0 of a script that is watched: it tells steps alone, which `samples_per_second` counts then.
    """

    epoch: int
    epochs: int
    batch: int
    batches: int
    step: int
    loss: float | None = None
    samples_per_second: float | None = None
    eta: float | None = None


class RunSession(QObject):
    """Owns the thread of the active run, and the previous runs."""

    stateChanged = Signal(str)
    runStarted = Signal(object)  # the Run
    runEnded = Signal(object)  # the Run
    progressed = Signal()  # the history of the current run has grown
    told = Signal(object)  # the events of a poll, as a list
    failed = Signal(object)  # Failed
    finished = Signal(object)  # Finished
    commandsChanged = (
        Signal()
    )  # whether the run can be commanded, or which ranks it has
    noted = Signal(str)  # a remark on the current run, for its console

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.runs: list[Run] = []
        self._place = OWN_PROCESS
        self._before_run: Callable[[], Callable[[], object]] | None = None
        self._count = 0
        self._thread: TrainingThread | None = None
        self._ending: Finished | Failed | None = None
        self._timer = QTimer(self, interval=POLL)
        self._timer.timeout.connect(self._poll_in_time)
        self._commanded: tuple[bool, int] = (
            False,
            0,
        )  # what was told of the commands and the ranks of the run
        self._used = 0.0  # seconds of the processor by this thread, up to the last poll

    def call_before_run(self, before: Callable[[], Callable[[], object]]) -> None:
        """Call `before` when a run of the project starts; the returned function is called on the run's thread, which
        waits for it."""
        self._before_run = before

    def run_next_at(self, placement: RunPlacement) -> None:
        """Carry out runs there from the next one on."""
        self._place = placement

    def note(self, remark: str) -> None:
        """Make a remark on the current run."""
        self.noted.emit(remark)

    @property
    def current(self) -> Run | None:
        """Return the newest run, active or ended."""
        return self.runs[-1] if self.runs else None

    @property
    def state(self) -> str:
        """The state of the newest run; "idle" before the first."""
        return self.runs[-1].state if self.runs else "idle"

    @property
    def active(self) -> bool:
        return self.state in ACTIVE

    @property
    def history(self) -> History | None:
        return self.runs[-1].history if self.runs else None

    @property
    def training_thread(self) -> TrainingThread | None:
        """The thread of the newest run; its `result` has the weights when it has ended."""
        return self._thread

    def takes_over(self, shown: Figures | None) -> bool:
        """Return whether the pages, which show other figures, show those of the newest run when it starts.

        A run of a sweep follows the one before it, and leaves alone who looks at another.
        """
        run = self.runs[-1]
        if shown is None or run.series is None or run.series.number == 1:
            return True
        before = [recent.history for recent in self.runs[-2:]]
        return not shown.beside and any(shown.history is history for history in before)

    @property
    def room(self) -> int:
        """The factor by which the window may exceed its usual CPU share to show the newest run."""
        return ROOMY if self._thread is not None and self._thread.leaves_room else 1

    @property
    def watches(self) -> bool:
        """Return whether the active run was started elsewhere and is watched through its file."""
        return self.active and self.watched_last

    @property
    def watched_last(self) -> bool:
        """Return whether the newest run executes elsewhere."""
        return self.watched_file is not None

    @property
    def owns(self) -> bool:
        """Return whether the newest run was started from here, wherever it executes."""
        place = self._thread.place if self._thread is not None else OWN_PROCESS
        return place.watched is None or place.owned

    @property
    def commands(self) -> bool:
        """Return whether the newest run can be paused and commanded from here."""
        return self._thread is not None and self._thread.control.commands

    @property
    def watched_file(self) -> Path | None:
        """The file through which the newest run is watched; None if it executes here."""
        return self._thread.place.watched if self._thread is not None else None

    @property
    def ranks(self) -> Mapping[int, Path]:
        """The files of all ranks of a watched script by rank; empty if it has one process."""
        return self._thread.control.ranks if self._thread is not None else {}

    def relocate(self, moved: Mapping[Path, Kept]) -> None:
        """Note that stored runs are in other folders now."""
        for run in self.runs:
            recorder = run.recorder
            if recorder is not None and recorder.kept.folder in moved:
                recorder.kept = moved[recorder.kept.folder]

    def start(
        self,
        job: Job,
        *,
        step: bool = False,
        recorder: Recorder | None = None,
        resume: Path | None = None,
        history: History | None = None,
        place: RunPlacement | None = None,
        stage: int = 1,
        series: Series | None = None,
    ) -> Run:
        """Start a run, at the place of `run_next_at` unless `place` is given; with `step`, run one batch and pause.

        Raises RunUnderWay.

        `resume` is the checkpoint of a run to resume, with the `history` until then, which is of `stage`.
        """

        if self.active:
            raise RunUnderWay
        self._count += 1
        run = Run(
            self._count,
            job.at_stage(stage),
            datetime.now(),
            history or History(),
            recorder=recorder,
        )
        place = self._place if place is None else place
        run.series = series
        # One of another program has nothing to do with the project.
        stored = place.watched is None or place.owned
        run.watched = None if stored else place.watched
        before = self._before_run() if stored and self._before_run is not None else None
        old, self._thread = (
            self._thread,
            TrainingThread(
                job, self, recorder=recorder, resume=resume, place=place, before=before
            ),
        )
        if old is not None:
            old.deleteLater()
        self._ending = None
        if self.runs and run.continues(self.runs[-1]):
            self.runs.pop()
        self.runs.append(run)
        self._thread.state_changed.connect(self._on_state_event)
        self._thread.finished.connect(self._on_thread_finished)
        if step:
            self._thread.step()
        self._timer.start()
        if place.watched is not None:
            run.state = "waiting"
        self.runStarted.emit(run)
        self.stateChanged.emit(run.state)
        self._thread.start()  # last: it would compete for the interpreter with the handlers of `runStarted`
        return run

    def pause(self) -> None:
        """Pause before the next batch. No effect on a run that is not running."""
        if self._thread is not None and self.state in (
            "starting",
            "waiting",
            "running",
        ):
            self._thread.pause()

    def resume(self) -> None:
        if self._thread is not None and self.state == "paused":
            self._thread.resume()

    def step(self) -> None:
        """Run one more batch, then pause; also pauses a running run."""
        if self._thread is not None and self.state in (
            "starting",
            "waiting",
            "running",
            "paused",
        ):
            self._thread.step()

    def stop(self) -> None:
        """Stop after the current batch; `runEnded` follows. One that others started goes on, and is watched no longer;
        so does one elsewhere that is stopping already.
        """
        if self._thread is not None and self.active:
            self._thread.stop()
            if self.owns:
                self._enter("stopping")

    def leave(self) -> None:
        """Stop, but for a run elsewhere, which goes on and is watched no longer."""
        if self._thread is not None and self.watches:
            self._thread.leave()
        else:
            self.stop()

    def close_and_wait(self, milliseconds: int = 30_000) -> bool:
        """Stop and wait until the thread has ended, for closing the window. False if a batch takes longer than that.

        A run elsewhere goes on.
        """
        if self._thread is None or not self.active:
            return True
        self.leave()
        if not self._thread.stop_and_wait(milliseconds):
            return False
        self._end()
        return True

    def progress(self) -> RunProgress | None:
        """Return the progress of the newest run; None before its setup."""
        history = self.history
        if history is None or history.started is None:
            return None
        return measure_progress(history)

    @Slot()
    def _poll_in_time(self) -> None:
        """Poll, and the later again the more the last one and its painting took."""
        used = thread_time()
        pause = 1000 * (used - self._used) / (SHARE * self.room)
        self._timer.setInterval(int(min(max(POLL, pause), SLOWEST / self.room)))
        self._used = used
        self.poll()

    @Slot()
    def poll(self) -> None:
        """Handle the events since the last poll."""
        if self._thread is not None and self.runs:
            self._handle_events(self._thread.drain())
        commanded = self.commands, len(self.ranks)
        if commanded != self._commanded:
            self._commanded = commanded
            self.commandsChanged.emit()

    @Slot(object)
    def _on_state_event(self, _event: object) -> None:
        self.poll()

    @Slot()
    def _on_thread_finished(self) -> None:
        if self.sender() is self._thread or self.sender() is None:
            self._end()

    def _handle_events(self, events: list[Event]) -> None:
        if not events:
            return
        run = self.runs[-1]
        run.history.extend(events)
        for event in events:
            match event:
                case Started() | Resumed() if run.state != "stopping":
                    self._enter("running")
                case Paused() if run.state != "stopping":
                    self._enter("paused")
                case Cut() if self._thread is not None:
                    run.job = self._thread.job.at_stage(event.stage)
                case Finished() | Failed():
                    self._ending = event
        self.told.emit(events)
        self.progressed.emit()

    def _enter(self, state: str) -> None:
        run = self.runs[-1]
        if state != run.state:
            run.state = state
            self.stateChanged.emit(state)

    def _end(self) -> None:
        """Handle the remaining events after the thread has ended, and report how the run ended; once per run."""
        run, thread = self.runs[-1], self._thread
        if thread is None or not run.active:
            return
        self._timer.stop()
        thread.wait()
        self.poll()
        ending = self._ending or _silent(run)
        if self._ending is None:
            self.told.emit([ending])
        if isinstance(ending, Failed):
            run.failed = ending
            self._enter("failed")
            self.failed.emit(ending)
        else:
            run.finished = ending
            self._enter(ending.reason)
            self.finished.emit(ending)
        self.runEnded.emit(run)


def measure_progress(history: History) -> RunProgress:
    """Return the counter's values from the history of a started run."""
    started = history.started
    assert started is not None
    batches, count = started.steps_per_epoch, len(history.steps)
    if not count:
        return RunProgress(1, started.epochs, 0, batches, 0)
    step, epoch = int(history.steps["step"][-1]), int(history.steps["epoch"][-1])
    loss = float(history.steps["loss"][-1])
    ended = history.epochs["step"][history.epochs["epoch"] < epoch]
    batch = step - (
        int(ended[-1]) if len(ended) else (epoch - 1) * batches
    )  # epochs may have other batches before
    left = (started.epochs - epoch) * batches + max(batches - batch, 0)
    eta = _seconds_a_step(history) if batches and started.timed else None
    return RunProgress(
        epoch,
        started.epochs,
        batch,
        batches,
        step,
        loss,
        history.samples_per_second(),
        None if eta is None else eta * left,
    )


def _seconds_a_step(history: History) -> float | None:
    """Over the last half minute, validation included, so that the time left counts it too."""
    seconds = history.steps["seconds"]
    if len(seconds) < 2:
        return None
    together = (
        int(np.searchsorted(seconds, seconds[0], "right")) - 1
    )  # those of a file that were read at once
    first = min(
        max(int(np.searchsorted(seconds, seconds[-1] - ETA_WINDOW)), together),
        len(seconds) - 2,
    )
    span = float(seconds[-1] - seconds[first])
    return span / (len(seconds) - 1 - first) if span > 0 else None


def _silent(run: Run) -> Failed:
    steps = run.history.steps
    step, epoch = (
        (int(steps["step"][-1]), int(steps["epoch"][-1])) if len(steps) else (0, 0)
    )
    message = "The training thread ended without saying why."
    cure = "The terminal that started the program may show more."
    return Failed("error", message, cure, "", None, epoch, step)
