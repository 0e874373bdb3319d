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


def runs_unsaved(folder: Path, name: str) -> Path:
    """Return the run folder, in the user's data folder, of an unsaved project of that name."""
    return folder / f"{plain(name)}{SUFFIX}"


def plain(name: str) -> str:
    """Sanitise a name for a file or folder.

    >>> plain("../ResNet 18"), plain("..")
    ('ResNet-18', 'untitled')
    """
    return re.sub(r"[^\w.-]+", "-", name).strip(".-")[:60] or "untitled"


def listed(folder: Path) -> list[Kept]:
    """List the runs in a folder, newest first; unreadable records are skipped. Raises OSError."""
    found = []
    for inside in _numbered(folder):
        try:
            found.append(Kept(inside, records.read(inside)))
        except RunError:
            continue
    return sorted(
        found, key=lambda kept: (kept.record.number, kept.folder.name), reverse=True
    )


def find(folder: Path, name: str) -> Kept:
    """Find a run by number or name. Raises RunError."""
    runs = listed(folder)
    for kept in runs:
        if name in (kept.record.name, str(kept.record.number), kept.folder.name):
            return kept
    known = (
        ", ".join(kept.record.name or str(kept.record.number) for kept in runs)
        or "none"
    )
    raise RunError(f"There is no run “{name}” in {folder}; there are: {known}.")


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


def changed(kept: Kept, **changes: object) -> Kept:
    """Update fields of the record. Raises OSError."""
    record = msgspec.structs.replace(kept.record, **changes)
    records.write(kept.folder, record)
    return replace(kept, record=record)


def rename(kept: Kept, name: str) -> Kept:
    """Rename a run; an empty name restores its number. Raises OSError and RunError."""
    return annotate(kept, name=name)


def annotate(
    kept: Kept,
    *,
    name: str | None = None,
    note: str | None = None,
    tags: Iterable[str] | None = None,
) -> Kept:
    """Change the name, the note or the tags of a run; what is None stays. Raises OSError and RunError."""
    fresh, changes = Kept(kept.folder, records.read(kept.folder)), dict[str, object]()
    if name is not None:
        name = " ".join(name.split())
        if len(name) > MOST_NAME:
            raise RunError(f"A run's name has at most {MOST_NAME} characters.")
        changes["name"] = "" if name == f"Run {kept.record.number}" else name
    if note is not None:
        if len(note) > 4000:
            raise RunError("A run's note has at most 4,000 characters.")
        changes["note"] = note.strip()
    if tags is not None:
        found = tuple(
            dict.fromkeys(" ".join(tag.split()) for tag in tags if tag.strip())
        )
        if len(found) > records.MOST_TAGS or any(len(tag) > 50 for tag in found):
            raise RunError(
                f"A run has at most {records.MOST_TAGS} tags, each of at most 50 characters."
            )
        changes["tags"] = found
    return changed(fresh, **changes)


def delete(kept: Kept) -> None:
    """Delete a run and all its files. Raises RunError for a running one, and OSError."""
    if kept.goes_on:
        raise RunError(f"{kept.record.title} is running. Stop it first.")
    shutil.rmtree(kept.folder)


def move(kept: Kept, folder: Path) -> Kept:
    """Move a run to another folder of runs, with a new number if its own is taken. Raises OSError, RunError."""
    if kept.goes_on:
        raise RunError(f"{kept.record.title} is running. Stop it first.")
    folder.mkdir(parents=True, exist_ok=True)
    taken = {int(inside.name) for inside in _numbered(folder)}
    number = kept.record.number if kept.record.number not in taken else max(taken) + 1
    target = folder / f"{number:04}"
    shutil.move(kept.folder, target)
    moved = Kept(target, kept.record)
    return moved if number == kept.record.number else changed(moved, number=number)


def copy(kept: Kept, folder: Path) -> Kept | None:
    """Copy a run to another folder of runs atomically; return None if it is already there.

    Checkpoints, which are never modified in place, are hard links if the file system supports them. Raises RunError for
    an active run, and OSError.
    """
    if kept.goes_on:
        raise RunError(f"{kept.record.title} is running. Stop it first.")
    if any(_is_of(there.record, kept.record) for there in listed(folder)):
        return None
    folder.mkdir(parents=True, exist_ok=True)
    leftovers.sweep(folder)
    temporary = folder / f"{leftovers.FOLDER}{leftovers.owner()}-{kept.folder.name}"
    try:
        shutil.copytree(
            kept.folder,
            temporary,
            copy_function=_copied,
            ignore=shutil.ignore_patterns(LOCK),
        )
        return move(Kept(temporary, kept.record), folder)
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


def copy_history(before: Kept, kept: Kept) -> None:
    """Copy the history of a run to the one that resumes it. Raises OSError."""
    told = (STEPS, EPOCHS, MEMORY, GRADIENTS, LOSSES, LOG, *layer_tables.files())
    if (before.folder / STAGES).is_dir():
        shutil.copytree(
            before.folder / STAGES, kept.folder / STAGES, dirs_exist_ok=True
        )
    for name in (*told, PROJECT, SOURCE):
        if (before.folder / name).exists():
            shutil.copyfile(before.folder / name, kept.folder / name)
    if before.begin.exists():
        keep_begin(before.begin, kept)


def keep_begin(checkpoint: Path, kept: Kept) -> None:
    """Keep the checkpoint that a run begins with in its folder. Raises OSError."""
    kept.checkpoints.mkdir(parents=True, exist_ok=True)
    _copied(str(checkpoint), str(kept.begin))


def _copied(file: str, target: str) -> str:
    if Path(file).suffix == ".pt":
        with suppress(OSError):
            os.link(file, target)
            return target
    return str(shutil.copy2(file, target))


def stage_folder(folder: Path, number: int) -> Path:
    """Return the folder of a stage in that of a run."""
    return folder / STAGES / f"{number:02}"


def measured(kept: Kept) -> tuple[Path, ...]:
    """Return the folders with the measurements by layer: those of the ended stages, then that of the run."""
    return *(
        stage_folder(kept.folder, number) for number in range(1, kept.record.stage)
    ), kept.folder


def project_of(kept: Kept) -> Project:
    """Read the project of a run: the one that it was started with, or of the stage that it is in. Raises RunError."""
    try:
        return project_file.read(kept.folder / PROJECT)
    except (OSError, project_file.ProjectFileError) as error:
        raise RunError(
            f"The project of {kept.record.title} cannot be read: {error}"
        ) from error


def history_of(kept: Kept) -> History:
    """Read the complete history of a run. Raises RunError."""
    history = History()
    begun = kept.record.beginning
    try:
        parts = {
            name: tables.read(kept.folder / name)[1] for name in (STEPS, EPOCHS, MEMORY)
        }
        metrics = tables.read(kept.folder / EPOCHS)[0][len(history.epochs.names) :]
        gradients = [tables.read(folder / GRADIENTS) for folder in measured(kept)]
        outputs, losses = tables.read(kept.folder / LOSSES)
        seen = [
            event
            for folder in measured(kept)
            for event in layer_tables.read_events(folder)
        ]
        marked = logged(kept.folder / LOG, "caught", "skipped", "failed")
    except (OSError, tables.TableError) as error:
        raise RunError(
            f"The measurements of {kept.record.title} cannot be read: {error}"
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
                    f"The measurements of {kept.record.title} cannot be read: {name} lacks columns"
                )
            columns.extend(parts[name][: len(columns.names)])
    if metrics:
        history.scores = Columns("epoch", "step", "seconds", *metrics)
        history.scores.extend(parts[EPOCHS][[0, 1, 6, *range(7, 7 + len(metrics))]])
    history.extend(seen)
    if losses.size:
        if "step" not in outputs:
            raise RunError(
                f"The measurements of {kept.record.title} cannot be read: {LOSSES} lacks columns"
            )
        history.parts = Columns(*outputs)
        history.parts.extend(losses)
    for stage, (layers, norms) in enumerate(gradients):
        history.extend(kept.record.cuts[stage - 1 : stage])
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
        known = line["event"] == "caught" or step not in trained
        if known and (not failed or line.get("kind") == "not finite"):
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
