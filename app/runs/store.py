"""Store of a project's runs: `<project>.runs/`, one numbered folder per run."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from app.project import file as project_file
from app.project import file_lock
from app.project.project import Project
from app.runs import layer_tables, tables
from app.runs import record as records
from app.runs.log_file import logged
from app.runs.record import Parent, Record, RunError
from app.training.columns import Columns
from app.training.events import Started
from app.training.history import History
from app.util import leftovers

SUFFIX = ".runs"
PROJECT, SOURCE, CHECKPOINTS, LOCK = "project.tape", "net.py", "checkpoints", ".lock"
STAGES = "stages"  # of a run whose net was edited, see `app.runs.stages`
STEPS, EPOCHS, MEMORY, GRADIENTS = (
    "steps.bin",
    "epochs.bin",
    "memory.bin",
    "gradients.bin",
)
LOSSES = "losses.bin"  # of several outputs
LOG = "log.jsonl"
MOST_NAME = 200  # characters of a run's name
_NUMBER = re.compile(r"\d{4,9}")


class Kept(Struct, frozen=True):
    """A run in its folder."""

    folder: Path
    record: Record

    @property
    def checkpoints(self) -> Path:
        return self.folder / CHECKPOINTS

    @property
    def begin(self) -> Path:
        """The checkpoint that the run begins with, if its settings were changed there; else the file is absent."""
        return self.checkpoints / "stage-01-start.pt"

    @property
    def goes_on(self) -> bool:
        """True while a process writes it: its lock is held."""
        return file_lock.is_held(self.folder / LOCK)

    @property
    def state(self) -> str:
        """The state of its record; "interrupted" if its process has ended."""
        state = self.record.state
        return "interrupted" if state == "running" and not self.goes_on else state


def runs_beside(project: Path) -> Path:
    """Return the run folder of a project file."""
    return project.with_name(project.stem + SUFFIX)


def runs_elsewhere(folder: Path, name: str) -> Path:
    """Return the run folder, in the user's data folder, of a project whose own folder cannot be written."""
    return folder / f"{plain(name)}{SUFFIX}"


def runs_unsaved(folder: Path, name: str) -> Path:
    """Return a new run folder, in the user's data folder, for an unsaved project: no other project has the same."""
    return folder / f"{plain(name)}-{uuid4().hex[:8]}{SUFFIX}"


def plain(name: str) -> str:
    """Sanitise a name for a file or folder.

    >>> plain("../ResNet 18"), plain("..")
    ('ResNet-18', 'untitled')
    """
    return re.sub(r"[^\w.-]+", "-", name).strip(".-")[:60] or "untitled"


def listed(folder: Path) -> list[Kept]:
    """List the runs in a folder, newest first; unreadable records are skipped. Raises OSError."""
    runs = []
    for inside in _numbered(folder):
        try:
            runs.append(Kept(inside, records.read(inside)))
        except RunError:
            continue
    return sorted(
        runs,
        key=lambda stored_run: (stored_run.record.number, stored_run.folder.name),
        reverse=True,
    )


def find(folder: Path, name: str) -> Kept:
    """Find a run by number or name. Raises RunError."""
    runs = listed(folder)
    for stored_run in runs:
        if name in (
            stored_run.record.name,
            str(stored_run.record.number),
            stored_run.folder.name,
        ):
            return stored_run
    names = (
        ", ".join(
            listed_run.record.name or str(listed_run.record.number)
            for listed_run in runs
        )
        or "none"
    )
    raise RunError(f"There is no run “{name}” in {folder}; there are: {names}.")


def _numbered(folder: Path) -> Iterator[Path]:
    if folder.is_dir():
        yield from (
            inside for inside in folder.iterdir() if _NUMBER.fullmatch(inside.name)
        )


def begin(
    folder: Path,
    project: Project,
    parent: Parent | None = None,
    name: str = "",
    tags: tuple[str, ...] = (),
) -> Kept:
    """Create the folder of a new run with the next number. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    number = max((int(inside.name) for inside in _numbered(folder)), default=0) + 1
    while True:
        try:
            (folder / f"{number:04}").mkdir()
            break
        except FileExistsError:  # another window took it just now
            number += 1
    return begin_in(folder / f"{number:04}", project, number, parent, name, tags)


def begin_in(
    folder: Path,
    project: Project,
    number: int,
    parent: Parent | None = None,
    name: str = "",
    tags: tuple[str, ...] = (),
) -> Kept:
    """Turn an existing folder into a run's folder. Raises OSError."""
    began = datetime.now().astimezone().isoformat(timespec="seconds")
    record = msgspec.structs.replace(
        records.new_record(project, number, began, parent), name=name, tags=tags
    )
    records.write(
        folder, record, sync=False
    )  # on the window's thread; that of the run writes it again at once
    return Kept(folder, record)


def changed(stored_run: Kept, **changes: object) -> Kept:
    """Update fields of the record. Raises OSError."""
    record = msgspec.structs.replace(stored_run.record, **changes)
    records.write(stored_run.folder, record)
    return replace(stored_run, record=record)


def rename(stored_run: Kept, name: str) -> Kept:
    """Rename a run; an empty name restores its number. Raises OSError and RunError."""
    return annotate(stored_run, name=name)


def annotate(
    stored_run: Kept,
    *,
    name: str | None = None,
    note: str | None = None,
    tags: Iterable[str] | None = None,
) -> Kept:
    """Change the name, the note or the tags of a run; what is None stays. Raises OSError and RunError."""
    fresh, changes = (
        Kept(stored_run.folder, records.read(stored_run.folder)),
        dict[str, object](),
    )
    if name is not None:
        name = " ".join(name.split())
        if len(name) > MOST_NAME:
            raise RunError(f"A run's name has at most {MOST_NAME} characters.")
        changes["name"] = "" if name == f"Run {stored_run.record.number}" else name
    if note is not None:
        if len(note) > 4000:
            raise RunError("A run's note has at most 4,000 characters.")
        changes["note"] = note.strip()
    if tags is not None:
        unique_tags = tuple(
            dict.fromkeys(" ".join(tag.split()) for tag in tags if tag.strip())
        )
        if len(unique_tags) > records.MOST_TAGS or any(
            len(tag) > 50 for tag in unique_tags
        ):
            raise RunError(
                f"A run has at most {records.MOST_TAGS} tags, each of at most 50 characters."
            )
        changes["tags"] = unique_tags
    return changed(fresh, **changes)


def delete(stored_run: Kept) -> None:
    """Delete a run and all its files. Raises RunError for a running one, and OSError."""
    if stored_run.goes_on:
        raise RunError(f"{stored_run.record.title} is running. Stop it first.")
    shutil.rmtree(stored_run.folder)


def move(stored_run: Kept, folder: Path) -> Kept:
    """Move a run to another folder of runs, with a new number if its own is taken. Raises OSError, RunError."""
    if stored_run.goes_on:
        raise RunError(f"{stored_run.record.title} is running. Stop it first.")
    folder.mkdir(parents=True, exist_ok=True)
    used_numbers = {int(inside.name) for inside in _numbered(folder)}
    number = (
        stored_run.record.number
        if stored_run.record.number not in used_numbers
        else max(used_numbers) + 1
    )
    target = folder / f"{number:04}"
    shutil.move(stored_run.folder, target)
    moved = Kept(target, stored_run.record)
    return (
        moved if number == stored_run.record.number else changed(moved, number=number)
    )


def copy(stored_run: Kept, folder: Path) -> Kept | None:
    """Copy a run to another folder of runs atomically; return None if it is already there.

    Checkpoints, which are never modified in place, are hard links if the file system supports them. Raises RunError for
    an active run, and OSError.
    """
    if stored_run.goes_on:
        raise RunError(f"{stored_run.record.title} is running. Stop it first.")
    if any(_is_of(there.record, stored_run.record) for there in listed(folder)):
        return None
    folder.mkdir(parents=True, exist_ok=True)
    leftovers.sweep(folder)
    temporary = (
        folder / f"{leftovers.FOLDER}{leftovers.owner()}-{stored_run.folder.name}"
    )
    try:
        shutil.copytree(
            stored_run.folder,
            temporary,
            copy_function=_copied,
            ignore=shutil.ignore_patterns(LOCK),
        )
        return move(Kept(temporary, stored_run.record), folder)
    except shutil.Error as error:  # of several files, each with its reason
        raise OSError(str(error.args[0][0][2])) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _is_of(a: Record, b: Record) -> bool:
    """Return whether two records describe the same run, regardless of number, name, note and tags."""
    return (
        msgspec.structs.replace(
            a, number=b.number, name=b.name, note=b.note, tags=b.tags
        )
        == b
    )


def copy_history(before: Kept, stored_run: Kept) -> None:
    """Copy the history of a run to the one that resumes it. Raises OSError."""
    measurements = (
        STEPS,
        EPOCHS,
        MEMORY,
        GRADIENTS,
        LOSSES,
        LOG,
        *layer_tables.files(),
    )
    if (before.folder / STAGES).is_dir():
        shutil.copytree(
            before.folder / STAGES, stored_run.folder / STAGES, dirs_exist_ok=True
        )
    for name in (*measurements, PROJECT, SOURCE):
        if (before.folder / name).exists():
            shutil.copyfile(before.folder / name, stored_run.folder / name)
    if before.begin.exists():
        keep_begin(before.begin, stored_run)


def keep_begin(checkpoint: Path, stored_run: Kept) -> None:
    """Keep the checkpoint that a run begins with in its folder. Raises OSError."""
    stored_run.checkpoints.mkdir(parents=True, exist_ok=True)
    _copied(str(checkpoint), str(stored_run.begin))


def _copied(file: str, target: str) -> str:
    if Path(file).suffix == ".pt":
        with suppress(OSError):
            os.link(file, target)
            return target
    return str(shutil.copy2(file, target))


def stage_folder(folder: Path, number: int) -> Path:
    """Return the folder of a stage in that of a run."""
    return folder / STAGES / f"{number:02}"


def measured(stored_run: Kept) -> tuple[Path, ...]:
    """Return the folders with the measurements by layer: those of the ended stages, then that of the run."""
    return *(
        stage_folder(stored_run.folder, number)
        for number in range(1, stored_run.record.stage)
    ), stored_run.folder


def project_of(stored_run: Kept) -> Project:
    """Read the project of a run: the one that it was started with, or of the stage that it is in. Raises RunError."""
    try:
        return project_file.read(stored_run.folder / PROJECT)
    except (OSError, project_file.ProjectFileError) as error:
        raise RunError(
            f"The project of {stored_run.record.title} cannot be read: {error}"
        ) from error


def history_of(stored_run: Kept) -> History:
    """Read the complete history of a run. Raises RunError."""
    history = History()
    begun = stored_run.record.beginning
    try:
        parts = {
            name: tables.read(stored_run.folder / name)[1]
            for name in (STEPS, EPOCHS, MEMORY)
        }
        metrics = tables.read(stored_run.folder / EPOCHS)[0][
            len(history.epochs.names) :
        ]
        gradients = [tables.read(folder / GRADIENTS) for folder in measured(stored_run)]
        outputs, losses = tables.read(stored_run.folder / LOSSES)
        events = [
            event
            for folder in measured(stored_run)
            for event in layer_tables.read_events(folder)
        ]
        marked = logged(stored_run.folder / LOG, "caught", "skipped", "failed")
    except (OSError, tables.TableError) as error:
        raise RunError(
            f"The measurements of {stored_run.record.title} cannot be read: {error}"
        ) from error
    if begun is not None:
        history.add(_started(begun))
    for columns, name in (
        (history.steps, STEPS),
        (history.epochs, EPOCHS),
        (history.memory, MEMORY),
    ):
        if parts[name].size:
            if len(parts[name]) < len(columns.names):
                raise RunError(
                    f"The measurements of {stored_run.record.title} cannot be read: {name} lacks columns"
                )
            columns.extend(parts[name][: len(columns.names)])
    if metrics:
        history.scores = Columns("epoch", "step", "seconds", *metrics)
        history.scores.extend(parts[EPOCHS][[0, 1, 6, *range(7, 7 + len(metrics))]])
    history.extend(events)
    if losses.size:
        if "step" not in outputs:
            raise RunError(
                f"The measurements of {stored_run.record.title} cannot be read: {LOSSES} lacks columns"
            )
        history.parts = Columns(*outputs)
        history.parts.extend(losses)
    for stage, (layers, norms) in enumerate(gradients):
        history.extend(stored_run.record.cuts[stage - 1 : stage])
        if norms.size:
            history.add_gradients(tuple(layers[1:]), norms[0], norms[1:])
    _mark(history, marked)
    return history


def _mark(history: History, lines: list[dict[str, Any]]) -> None:
    """Mark the steps of a log's lines; one that was trained on after all, since the run was resumed, is none."""
    trained = set(history.steps["step"].tolist())
    for line in lines:
        failed = line["event"] == "failed"
        step = line["step"] + failed
        relevant = line["event"] == "caught" or step not in trained
        if relevant and (not failed or line.get("kind") == "not finite"):
            history.mark(step, str(line.get("message", "")))


def _started(begun: records.Beginning) -> Started:
    return Started(
        begun.device,
        begun.device_note,
        begun.epochs,
        begun.batch_size,
        begun.steps_per_epoch,
        begun.seed,
        begun.parameters,
        begun.layers,
        begun.train_count,
        begun.validation_count,
        loss=begun.loss,
    )
