"""The record of a run, `run.json` in its folder, written atomically."""

from __future__ import annotations

import os
import platform
import sys
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from app import __version__
from app.project.project import Project
from app.training.config import TrainingConfig
from app.training.events import Cut, Started
from app.training.history import History
from app.training.surgery.values import Outcome
from app.util import atomic, regular_files
from app.util.errors import CodedError

VERSION = 1
FILE = "run.json"
State = Literal["running", "interrupted", "done", "stopped", "left", "failed"]
Name = Annotated[str, Meta(max_length=200)]
Note = Annotated[str, Meta(max_length=4000)]
Tag = Annotated[str, Meta(min_length=1, max_length=50)]
MOST_TAGS = 20
STAND_IN = "stand-in"  # the tag of a run on data that stand in for those of the project
TAGGED = (
    "\u2002#"  # between the name and a tag of a run; the first character is in neither
)


class RunError(CodedError, ValueError):
    """Raised for a stored run that cannot be read, started or changed; the message says why and how to fix it."""

    exit_code = 2


class Parent(Struct, frozen=True):
    """The checkpoint of a run whose weights this one began with."""

    run: str
    checkpoint: str
    step: int | None = None


class Changed(Struct, frozen=True):
    """Settings that a run has from the step after `step` on, where its parent has others: both values by name."""

    step: int
    settings: dict[str, tuple[str, str]]


class Ending(Struct, frozen=True):
    """How a run ended; of one that failed with its words and its traceback."""

    epoch: int
    step: int
    note: str = ""
    kind: str = ""
    message: str = ""
    cure: str = ""
    traceback: str = ""
    node: str | None = None


class Environment(Struct, frozen=True):
    """The environment of a run. `threads` is the number of CPU threads per operation, on each of its `processes`."""

    tapedeck: str
    python: str
    torch: str
    platform: str
    device: str
    device_name: str
    threads: int
    processes: int = 1


class Beginning(Struct, frozen=True):
    """The setup that a run reported at its start."""

    device: str
    epochs: int
    batch_size: int
    steps_per_epoch: int
    seed: int
    parameters: int
    layers: tuple[str, ...]
    train_count: int
    validation_count: int
    device_note: str | None = None
    loss: str = ""


class Summary(Struct, frozen=True):
    """Figures for the list of runs; None if not measured."""

    epochs: int = 0
    steps: int = 0
    seconds: float = 0.0
    train_loss: float | None = None
    val_loss: float | None = None
    best_loss: float | None = None
    train_accuracy: float | None = None
    val_accuracy: float | None = None
    best_accuracy: float | None = None


class HashingCost(Struct, frozen=True):
    """Of `steps`, `hashed` have hashes that they are verified by when recomputed, which took `share` of the time."""

    steps: int
    hashed: int
    share: float


class Hyperparameters(Struct, frozen=True):
    """Settings of a run for the list of runs. `lr` is that of the main parameter group; `schedule` is "" for none."""

    optimizer: str
    lr: float | None
    batch_size: int
    schedule: str
    seed: int


class StageRecord(Struct, frozen=True):
    """A stage that began with a surgery after `step`. `surgery` is the surgery without its net and settings, which are
    those of the stage's project; `layers` and `parameters` are as in `Beginning`.
    """

    epoch: int
    step: int
    description: str
    surgery: dict[str, Any]
    outcome: Outcome
    layers: tuple[str, ...]
    parameters: int


class Record(Struct, frozen=True):
    """`began` is a time in ISO form with its zone. `saved` has the step of each checkpoint by its file's name. `stages`
    are those after the first, and `stage` is the one that the run is in: later ones follow again in a resumed run.
    `name`, `note` and `tags` are the user's. `rates_set` counts how often the learning rate was set by hand, `skipped`
    the steps that were not taken because their loss was not finite; records of earlier versions have no `settings`.
    A run that resumes its `parent` with other settings has these in `changed`.
    """

    tapedeck_run: int
    number: int
    began: str
    optimizer: str
    loss: str
    device: str
    epochs: int
    project: str
    name: Name = ""
    state: State = "running"
    parent: Parent | None = None
    continued: tuple[int, ...] = ()
    beginning: Beginning | None = None
    environment: Environment | None = None
    summary: Summary = Summary()
    ending: Ending | None = None
    saved: dict[str, int] = {}
    hashing: HashingCost | None = None
    stages: tuple[StageRecord, ...] = ()
    stage: int = 1
    note: Note = ""
    tags: Annotated[tuple[Tag, ...], Meta(max_length=MOST_TAGS)] = ()
    settings: Hyperparameters | None = None
    rates_set: int = 0
    skipped: int = 0
    changed: Changed | None = None

    @property
    def title(self) -> str:
        """The display name."""
        return self.name or f"Run {self.number}"

    @property
    def label(self) -> str:
        """The display name with the tags, for legends."""
        return TAGGED.join((self.title, *self.tags))

    @property
    def cuts(self) -> tuple[Cut, ...]:
        """The surgeries of the run so far."""
        return tuple(
            Cut(
                stage.epoch,
                stage.step,
                number,
                stage.description,
                stage.outcome,
                stage.layers,
                stage.parameters,
            )
            for number, stage in enumerate(self.stages[: self.stage - 1], 2)
        )


# Made on import: msgspec makes its tables at the first use, and two threads that do so at once end the process.
_records = msgspec.json.Decoder(Record)


def new_record(
    project: Project, number: int, began: str, parent: Parent | None = None
) -> Record:
    """Create the record of a new run."""
    return record_of(project.training, project.name, number, began, parent)


def record_of(
    training: TrainingConfig,
    name: str,
    number: int,
    began: str,
    parent: Parent | None = None,
) -> Record:
    """Create the record of a run with these settings, of the project of a name."""
    options = ", ".join(
        f"{name}={value}" for name, value in training.optimizer.params.items()
    )
    optimizer = training.optimizer.name + (f", {options}" if options else "")
    return Record(
        VERSION,
        number,
        began,
        optimizer,
        training.loss_name,
        training.device,
        training.epochs,
        name,
        parent=parent,
        settings=hyperparameters(training),
    )


def hyperparameters(training: TrainingConfig) -> Hyperparameters:
    """Return the settings for the list of runs; a learning rate that is the optimizer's default is not known yet."""
    lr, schedule = training.optimizer.params.get("lr"), training.schedule
    warmup = (
        f", warmup {schedule.warmup}"
        if schedule is not None and schedule.warmup
        else ""
    )
    return Hyperparameters(
        training.optimizer.name,
        float(lr) if isinstance(lr, int | float) else None,
        training.batch_size,
        f"{schedule.choice.name}{warmup}" if schedule is not None else "",
        training.seed,
    )


def continuing(
    record: Record, parent: Record, changed: Changed | None = None
) -> Record:
    """Return the record of a run that continues another one, whose history it has, with what was `changed` there."""
    return msgspec.structs.replace(
        record,
        beginning=parent.beginning,
        stages=parent.stages,
        stage=parent.stage,
        changed=changed or parent.changed,
    )


def with_annotations(record: Record, folder: Path) -> Record:
    """Return the record with the name, note and tags that its file has: they may change while a run is recorded.
    Raises RunError.
    """
    there = read(folder)
    return msgspec.structs.replace(
        record, name=there.name, note=there.note, tags=there.tags
    )


def read(folder: Path) -> Record:
    """Read the record in a folder. Raises RunError."""
    path = folder / FILE
    try:
        regular_files.check(path)
        record = _records.decode(path.read_bytes())
    except FileNotFoundError as error:
        raise RunError(
            f"{folder} holds no run; it may have been deleted or moved"
        ) from error
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror or error}") from error
    except msgspec.DecodeError as error:
        raise RunError(f"{path} is not a run record: {error}") from error
    if record.tapedeck_run > VERSION:
        raise RunError(
            f"{path} is of version {record.tapedeck_run}, this program reads {VERSION}; update Tapedeck"
        )
    last = len(record.stages) + 1
    if not 1 <= record.stage <= last:
        raise RunError(
            f"{path} is not a run record: it is in stage {record.stage} of {last}"
        )
    return record


def write(folder: Path, record: Record, *, sync: bool = True) -> None:
    """Write the record of a run. Raises OSError."""
    data = msgspec.json.format(msgspec.json.encode(record), indent=1)
    atomic.write_bytes(folder / FILE, data, sync=sync)


def summary_of(history: History) -> Summary:
    """Summarise a run so far."""
    steps, epochs = history.steps, history.epochs

    def last(name: str) -> float | None:
        return _number(float(epochs[name][-1])) if len(epochs) else None

    def best(name: str, smallest: bool) -> float | None:
        values = [value for value in epochs[name].tolist() if value == value]
        return _number((min if smallest else max)(values)) if values else None

    return Summary(
        int(epochs["epoch"][-1]) if len(epochs) else 0,
        int(steps["step"][-1]) if len(steps) else 0,
        float(steps["seconds"][-1]) if len(steps) else 0.0,
        last("train_loss"),
        last("val_loss"),
        best("val_loss", True),
        last("train_accuracy"),
        last("val_accuracy"),
        best("val_accuracy", False),
    )


def _number(value: float) -> float | None:
    """Replace NaN and infinity, which JSON lacks, by None."""
    return value if value == value and abs(value) != float("inf") else None


def environment(started: Started, threads: int, processes: int = 1) -> Environment:
    """Return the environment that a run reported; `threads` is the number that was set, 0 if torch chose.

    Of another machine, its name, device and torch are known.
    """
    if started.host:
        return Environment(
            __version__,
            "",
            started.torch,
            started.host,
            started.device,
            started.device_name or started.device,
            started.threads,
            processes,
        )
    python = sys.version.partition(" ")[0]
    system = f"{platform.system()} {platform.release()}, {os.cpu_count()} cores"
    name = started.device_name or (
        platform.processor() or "CPU" if started.device == "cpu" else started.device
    )
    torch = started.torch or metadata.version("torch")
    return Environment(
        __version__,
        python,
        torch,
        system,
        started.device,
        name,
        threads or started.threads,
        processes,
    )
