"""The stages of a stored run whose net was edited: `stages/01/`, `stages/02/` and so on in its folder.

Each has the project and the code of its stage; those in the folder of the run are of the stage that the run is in. The
measurements by layer of an ended stage are in its folder, since other layers follow.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from app.project import file as project_file
from app.project.project import Project
from app.runs import layer_tables, store
from app.runs.record import RunError, StageRecord
from app.runs.store import Kept
from app.training.events import Cut
from app.training.job import Job, Stage
from app.training.surgery.values import Surgery
from app.util import atomic

_OF_PROJECT = (
    "source",
    "groups",
    "recompute",
)  # of a Surgery: they come from the stage's project
_NUMBER = re.compile(r"\d{2,}")


def begin(folder: Path, event: Cut, surgery: Surgery, project: Project) -> StageRecord:
    """Begin a stage in the folder of a run, whose project is now `project`. Raises OSError."""
    ended, begun = (
        store.stage_folder(folder, event.stage - 1),
        store.stage_folder(folder, event.stage),
    )
    for directory in (ended, begun):
        directory.mkdir(parents=True, exist_ok=True)
    for name in (store.PROJECT, store.SOURCE):
        atomic.write_bytes(ended / name, (folder / name).read_bytes())
    project_file.write(project, begun / store.PROJECT)
    atomic.write_text(begun / store.SOURCE, surgery.source.text)
    _move_tables(folder, ended)
    project_file.write(project, folder / store.PROJECT)
    atomic.write_text(folder / store.SOURCE, surgery.source.text)
    surgery_fields: dict[str, Any] = msgspec.to_builtins(
        {
            name: getattr(surgery, name)
            for name in surgery.__struct_fields__
            if name not in _OF_PROJECT
        }
    )
    return StageRecord(
        event.epoch,
        event.step,
        event.description,
        surgery_fields,
        event.outcome,
        event.layers,
        event.parameters,
    )


def best_file(stage: int) -> str:
    """Return the name of the checkpoint of the best epoch of an ended stage."""
    return f"stage-{stage:02}-best.pt"


def edited(project: Project, surgery: Surgery, before: Project) -> Project:
    """Return the project of a stage: the edited net, with the settings of the run."""
    training = replace(
        before.training, groups=surgery.groups, recompute=surgery.recompute
    )
    return replace(project, data=before.data, training=training)


def go_back(folder: Path, stage: int) -> None:
    """Put the measurements of a stage, and of the ended ones after it, back; the later ones are dropped. Raises
    OSError."""
    inside = folder / store.STAGES
    names = [path.name for path in inside.iterdir()] if inside.is_dir() else []
    for number in sorted(
        (int(name) for name in names if _NUMBER.fullmatch(name)), reverse=True
    ):
        stage_folder = store.stage_folder(folder, number)
        if number >= stage and any(
            (stage_folder / name).exists() for name in _tables()
        ):
            for name in _tables():
                (folder / name).unlink(missing_ok=True)
            _move_tables(stage_folder, folder)


def _tables() -> tuple[str, ...]:
    return store.GRADIENTS, *layer_tables.files()


def _move_tables(source: Path, target: Path) -> None:
    for name in _tables():
        if (source / name).exists():
            (source / name).replace(target / name)


def projects_of(stored_run: Kept, now: Project | None = None) -> tuple[Project, ...]:
    """Return the project of every stage, with the settings of the run, or those of `now`. Raises RunError."""
    now = now or store.project_of(stored_run)
    if not stored_run.record.stages:
        return (now,)
    projects = []
    for number in range(1, len(stored_run.record.stages) + 2):
        path = store.stage_folder(stored_run.folder, number) / store.PROJECT
        try:
            project = project_file.read(path)
        except (OSError, project_file.ProjectFileError) as error:
            raise RunError(
                f"The project of stage {number} of {stored_run.record.title} cannot be read: {error}"
            ) from error
        training = replace(
            now.training,
            groups=project.training.groups,
            recompute=project.training.recompute,
            start=project.training.start,
        )
        projects.append(replace(project, data=now.data, training=training))
    return tuple(projects)


def whole_job(
    stored_run: Kept, projects: tuple[Project, ...], job_of: Callable[[Project], Job]
) -> Job:
    """Return the job of a run with all its stages; `job_of` returns that of a project. Raises RunError."""
    first = job_of(projects[0])
    stages = []
    for number, (stage_record, project) in enumerate(
        zip(stored_run.record.stages, projects[1:], strict=True), 2
    ):
        source = job_of(project).source
        path = store.stage_folder(stored_run.folder, number) / store.SOURCE
        try:
            written = path.read_text(encoding="utf-8")
        except OSError as error:
            raise RunError(
                f"{path} cannot be read: {error.strerror or error}"
            ) from error
        if written != source.text:
            raise RunError(
                f"The code of stage {number} of {stored_run.record.title} differs from what this version "
                "of Tapedeck writes "
                f"for its project: it cannot be resumed. Its code is {path}."
            )
        training = project.training
        surgery = Surgery(
            source,
            groups=training.groups,
            recompute=training.recompute,
            **_values(stage_record.surgery),
        )
        stages.append(Stage(stage_record.step, surgery))
    return replace(first, stages=tuple(stages))


def _values(plain: dict[str, Any]) -> dict[str, Any]:
    return {name: _tuples(value) for name, value in plain.items()}


def _tuples(value: Any) -> Any:
    """Return lists of JSON as the tuples that they were."""
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
