"""Record the events of a run on a separate thread: the run itself only appends to a list.

Events before a checkpoint are written before the checkpoint is, so a resumed run has them all, however the previous one
ended.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, Protocol

import msgspec

from app.data.sources import DataError
from app.project import file as project_file
from app.project import file_lock
from app.project.project import Project
from app.runs import layer_tables, record, stages, store, tables
from app.runs.checkpoint_files import GoingOn
from app.runs.store import Kept
from app.training.events import (
    Cut,
    EpochDone,
    Event,
    Failed,
    Finished,
    GradientNorms,
    Hashing,
    LossParts,
    MemorySample,
    Paused,
    RateSet,
    Saved,
    Saving,
    Skipped,
    Started,
    StepDone,
    to_json,
)
from app.training.history import History
from app.training.surgery.values import Surgery
from app.util import atomic

EVERY = 1.0  # seconds between two writings
LOOK = 2.0  # seconds between two writings of the record

_STEPS = ("step", "epoch", "loss", "samples", "seconds", "rate")
_EPOCHS = (
    "epoch",
    "step",
    "train_loss",
    "train_accuracy",
    "val_loss",
    "val_accuracy",
    "seconds",
)
_EPOCH = attrgetter(*_EPOCHS)
_MEMORY = ("step", "seconds", "allocated", "reserved", "peak", "resident")


class EventSink(Protocol):
    """Receives all events of a run, in batches, on the recorder's thread."""

    def write(self, events: list[Event]) -> None: ...

    def close(self) -> None: ...


class Recorder:
    """One per run. `begin`, `take` and `close` are called on the thread of the run.

    `problem` describes a failed write, "" if none; the run continues without recording.
    """

    def __init__(
        self,
        kept: Kept,
        project: Project,
        source: str,
        going_on: Callable[[], GoingOn] | None = None,
        watch: Callable[[Path], EventSink] | None = None,
    ) -> None:
        self.kept = kept
        self.problem = ""
        self.threads = 0  # CPU threads per operation, if set by the caller
        self.processes = 1  # that the run is split between, if set by the caller
        self._project, self._source, self._going_on, self._watch = (
            project,
            source,
            going_on,
            watch,
        )
        self._planned: list[tuple[Surgery, Project]] = []
        self._record = kept.record
        self._events: list[Event] = []
        self._history = History()
        self._writing = threading.Lock()
        self._wake = threading.Event()
        self._closing = self._is_started = False
        self._thread: threading.Thread | None = None
        self._lock: file_lock.Lock | None = None
        self._watcher: EventSink | None = None
        self._looked = 0
        self._told = False

    @property
    def project(self) -> Project:
        """The project of the stage that the run is in."""
        return self._project

    @property
    def checkpoints(self) -> Path:
        """Where the run puts its checkpoints."""
        return self.kept.checkpoints

    def plan(self, surgery: Surgery, project: Project) -> None:
        """Have the project of an edited net ready, for when the run continues with it."""
        self._planned.append((surgery, project))

    def begin(self) -> str:
        """Write the initial record; return the error message. A run that cannot be recorded continues."""
        with self._noting():
            folder = self.kept.folder
            self._lock = file_lock.Lock(folder / store.LOCK)
            if self._going_on is None:
                project_file.write(self._project, folder / store.PROJECT)
                atomic.write_text(folder / store.SOURCE, self._source)
            else:
                self._go_on(self._going_on())
            record.write(folder, self._record)
        unkept = self.problem
        if self._watch is not None and not unkept:
            try:
                self._watcher = self._watch(self.kept.folder)
            except (
                OSError,
                DataError,
                ValueError,
                RuntimeError,
            ) as error:  # also if TensorBoard is not installed
                self.problem = f"TensorBoard files cannot be written: {error}"
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)
        self._thread.start()
        return unkept

    def _go_on(self, there: GoingOn) -> None:
        folder = self.kept.folder
        project_file.write(
            self._project, folder / store.PROJECT
        )  # its epochs may be more than before
        atomic.write_text(folder / store.SOURCE, self._source)
        stages.go_back(folder, there.stage)
        self._drop_after(there.step)
        tables.keep(
            folder / store.EPOCHS, lambda columns: columns["epoch"] <= there.epochs
        )
        anew = {"rates_set": 0, "skipped": 0} if not there.step else {}
        continued = {"continued": (*self._record.continued, there.step)}
        self._record = msgspec.structs.replace(
            self._record,
            state="running",
            ending=None,
            stage=there.stage,
            **(anew or continued),
        )
        self.kept = Kept(folder, self._record)
        self._history = store.history_of(self.kept)

    def _drop_after(self, step: int) -> None:
        """Drop the measurements of the steps after a checkpoint, which are taken again."""
        for name in (
            store.STEPS,
            store.MEMORY,
            store.GRADIENTS,
            store.LOSSES,
            *layer_tables.files(),
        ):
            tables.keep(
                self.kept.folder / name, lambda columns: columns["step"] <= step
            )

    def _start_again(self, step: int) -> None:
        """Go back to the checkpoint from which the process of the run was started again, as a queue does."""
        self._write()
        with self._writing, self._noting():
            self._drop_after(step)
            tables.keep(
                self.kept.folder / store.EPOCHS,
                lambda columns: columns["step"] <= step,
            )

    def take(self, event: Event) -> Saved | None:
        """Record an event; return a message for the user, once."""
        if isinstance(event, Started) and self._is_started:
            self._start_again(event.resumed_at)
        self._events.append(event)
        if isinstance(event, Started):
            self._set_up(event)
        elif isinstance(event, Saving | Cut):
            self._write()
        elif isinstance(event, Paused):  # its steps may be recomputed now
            with self._noting():
                self._write()
                self._write_summary()
        return self.unsaid()

    def unsaid(self) -> Saved | None:
        """Return the message about failed writes, once."""
        if not self.problem or self._told:
            return None
        self._told = True
        return Saved(0, str(self.kept.folder), self.problem)

    def close(self) -> None:
        """Write the remaining events and the ending."""
        self._closing = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
        with self._noting():
            self._write()
            if self._record.state == "running":
                self._record = msgspec.structs.replace(
                    self._record, state="interrupted"
                )
            self._write_summary()
        self._tell_watcher(lambda watcher: watcher.close())
        if self._lock is not None:
            self._lock.release()
        self.kept = Kept(self.kept.folder, self._record)

    def _set_up(self, event: Started) -> None:
        self._is_started = True
        names = record.Beginning.__struct_fields__
        begun = record.Beginning(**{name: getattr(event, name) for name in names})
        where = record.environment(event, self.threads, self.processes)
        with self._writing:
            self._record = msgspec.structs.replace(
                self._record,
                beginning=begun,
                environment=where,
                device=event.device,
                epochs=event.epochs,
            )
        if event.stand_in and not event.resumed_at:
            with (
                self._noting()
            ):  # where names and tags are looked up, as the user may change them
                self._record = record.with_annotations(self._record, self.kept.folder)
                tags = tuple(dict.fromkeys((*self._record.tags, record.STAND_IN)))
                self._record = msgspec.structs.replace(self._record, tags=tags)
                record.write(self.kept.folder, self._record)

    def _run(self) -> None:
        while not self._closing:
            self._wake.wait(EVERY)
            self._write()
            self._looked += 1
            if self._looked * EVERY >= LOOK:
                self._looked = 0
                with self._noting():
                    self._write_summary()

    def _write(self) -> None:
        """Append the events since the last write."""
        with self._writing, self._noting():
            count = len(self._events)
            events = self._events[:count]
            del self._events[:count]
            if events:
                steps = [event for event in events if isinstance(event, StepDone)]
                others = [
                    event for event in events if isinstance(event, Started | EpochDone)
                ]
                self._history.extend(
                    [*others, *steps[-1:]]
                )  # the list shows the last step only
                self._note_rate(steps)
                for cut, together in groupby(events, _cut):
                    self._append(list(together))
                    if cut is not None:
                        self._begin_stage(cut)
                self._tell_watcher(lambda watcher: watcher.write(events))

    def _note_rate(self, steps: list[StepDone]) -> None:
        """Note the first learning rate of a run whose project leaves it to the optimizer's default."""
        settings = self._record.settings
        if (
            settings is not None
            and settings.lr is None
            and steps
            and steps[0].rate == steps[0].rate
        ):
            updated = msgspec.structs.replace(settings, lr=steps[0].rate)
            self._record = msgspec.structs.replace(self._record, settings=updated)

    def _begin_stage(self, event: Cut) -> None:
        """Keep the edited net, and the measurements of the layers before it."""
        planned = [
            plan for plan in self._planned if plan[0].source.filename == event.net
        ]
        if not planned:
            raise record.RunError(f"The project of stage {event.stage} is not known")
        surgery, project = planned[-1]
        self._project = stages.edited(project, surgery, self._project)
        begun = stages.begin(self.kept.folder, event, surgery, self._project)
        stage_records = (
            *self._record.stages[: event.stage - 2],
            begun,
            *self._record.stages[event.stage - 1 :],
        )
        saved, best = dict(self._record.saved), stages.best_file(event.stage - 1)
        if "best.pt" in saved:
            saved[best] = saved.pop("best.pt")
        self._record = msgspec.structs.replace(
            self._record, stages=stage_records, stage=event.stage, saved=saved
        )
        record.write(
            self.kept.folder, record.with_annotations(self._record, self.kept.folder)
        )

    def _tell_watcher(self, say: Callable[[EventSink], None]) -> None:
        if self._watcher is not None:
            try:
                say(self._watcher)
            except (OSError, RuntimeError) as error:
                self._watcher = None
                self.problem = (
                    self.problem or f"TensorBoard files are no longer written: {error}"
                )

    def _append(self, events: list[Event]) -> None:
        folder = self.kept.folder
        epochs = [event for event in events if isinstance(event, EpochDone)]
        for names, together in groupby(
            epochs, lambda event: tuple(name for name, _ in event.metrics)
        ):
            rows = [
                (*_EPOCH(event), *(value for _, value in event.metrics))
                for event in together
            ]
            tables.append(folder / store.EPOCHS, (*_EPOCHS, *names), rows)
        for name, columns, kind in (
            (store.STEPS, _STEPS, StepDone),
            (store.MEMORY, _MEMORY, MemorySample),
        ):
            rows = [
                *map(
                    attrgetter(*columns),
                    (event for event in events if isinstance(event, kind)),
                )
            ]
            if rows:
                tables.append(folder / name, columns, rows)
        layer_tables.append(folder, events)
        norms = [event for event in events if isinstance(event, GradientNorms)]
        if norms:
            values = [(event.step, *event.norms) for event in norms]
            tables.append(folder / store.GRADIENTS, ("step", *norms[0].layers), values)
        parts = [event for event in events if isinstance(event, LossParts)]
        if parts:
            rows = [(event.step, *event.losses) for event in parts]
            tables.append(
                folder / store.LOSSES,
                ("step", *(f"loss_{name}" for name in parts[0].outputs)),
                rows,
            )
        others = [
            event
            for event in events
            if not isinstance(event, StepDone | EpochDone | LossParts)
        ]
        lines = [line for line in map(to_json, others) if line is not None]
        if lines:
            with (folder / store.LOG).open("a", encoding="utf-8") as file:
                file.write("\n".join(lines) + "\n")
        for event in others:
            self._note(event)

    def _note(self, event: Event) -> None:
        changes: dict[str, Any] = {}
        match event:
            case Saved() if not event.problem:
                changes["saved"] = {
                    **self._record.saved,
                    Path(event.path).name: event.step,
                }
            case RateSet():
                changes["rates_set"] = self._record.rates_set + 1
            case Skipped() if event.nonfinite:
                changes["skipped"] = self._record.skipped + 1
            case Hashing():
                share = event.spent / event.seconds if event.seconds > 0 else 0.0
                changes["hashing"] = record.HashingCost(
                    event.steps, event.hashed, share
                )
            case Finished():
                changes = {
                    "state": event.reason,
                    "ending": record.Ending(
                        event.epoch, event.steps, event.reason_text
                    ),
                }
            case Failed():
                ending = record.Ending(
                    event.epoch,
                    event.step,
                    "",
                    event.kind,
                    event.message,
                    event.cure,
                    event.traceback,
                    event.node,
                )
                changes = {"state": "failed", "ending": ending}
        self._record = msgspec.structs.replace(self._record, **changes)

    def _write_summary(self) -> None:
        """Write the record with the list's figures. Name, note and tags given meanwhile are kept."""
        with self._writing:
            summary = record.summary_of(self._history)
            summed = msgspec.structs.replace(self._record, summary=summary)
            self._record = record.with_annotations(summed, self.kept.folder)
            record.write(self.kept.folder, self._record)

    def _noting(self) -> _Noting:
        return _Noting(self)


def _cut(event: Event) -> Cut | None:
    return event if isinstance(event, Cut) else None


class _Noting:
    """Stores a failed write as the recorder's problem."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool:
        expected_errors = (
            OSError,
            tables.TableError,
            record.RunError,
            project_file.ProjectFileError,
            file_lock.FileLockError,
        )
        if not isinstance(error, expected_errors):
            return False
        reason = getattr(error, "strerror", None) or str(error)
        if not self._recorder.problem:
            folder = self._recorder.kept.folder
            self._recorder.problem = f"{folder} cannot be written: {reason}. The run continues without being saved."
        return True
