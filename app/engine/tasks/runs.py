"""Handlers of `app.engine.requests.runs`: stored runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec.structs import replace

from app.builder.analysis import analyse
from app.engine.protocol import Handle
from app.engine.requests.runs import (
    BeginEventFiles,
    EndEventFiles,
    ExportEventFiles,
    FindResumable,
    GoOnFrom,
    Resumable,
    StartFrom,
    WriteEvents,
)
from app.engine.server import Context, handles
from app.preflight import opened, preflight
from app.preflight.net_cost import with_cost
from app.project import custom_layers
from app.project.file import ProjectFileError
from app.project.project import Project
from app.runs import record, resume, stages, store, tensorboard
from app.runs.checkpoint_files import GoingOn
from app.runs.record import Changed, RunError
from app.runs.store import Kept
from app.training.checkpoints.checkpoint import CheckpointError, stage_of, step_of
from app.training.config import StartWeights
from app.training.job import Job


@contextmanager
def _as_run_errors() -> Iterator[None]:
    """Convert file errors to an error class that is serialisable."""
    try:
        yield
    except (OSError, CheckpointError, ProjectFileError) as error:
        raise RunError(str(error)) from error


def _stored_run(folder: Path) -> Kept:
    return Kept(folder, record.read(folder))


def job_of(project: Project, data_root: str | None) -> Job:
    """Return the job of a stored project."""
    if project.opened is not None:
        return preflight.job(project, opened.analysis_of(project), data_root)
    ops = custom_layers.ops_of(project)
    return preflight.job(
        project, with_cost(analyse(project.graph, ops), ops), data_root
    )


def job_of_run(stored_run: Kept, project: Project, data_root: str | None) -> Job:
    """Return the job of a stored run with all its stages; `project` has its settings. Raises RunError for layer files
    that are not trusted."""
    if files := custom_layers.waiting(project):
        names = ", ".join(map(str, files))
        raise RunError(f"{names} is not trusted yet; restore the project to review it.")
    full_job = stages.whole_job(
        stored_run,
        stages.projects_of(stored_run, project),
        lambda stage_project: job_of(stage_project, data_root),
    )
    return resume.with_begin(full_job, stored_run)


def stored(folder: Path, data_root: str | None) -> tuple[Kept, Project, Job]:
    """Return a stored run with its project and job. Raises RunError."""
    stored_run = _stored_run(folder)
    project = store.project_of(stored_run)
    return stored_run, project, job_of_run(stored_run, project, data_root)


@handles(FindResumable)
def find_resumable(request: FindResumable, _context: Context) -> Resumable:
    with _as_run_errors():
        stored_run = _stored_run(request.run)
        if stored_run.goes_on:
            raise RunError(
                f"{stored_run.record.title} is already running in another window or on the command line."
            )
        before = store.project_of(stored_run)
        new_project = resume.with_settings(before, request.now)
        project = before
        if stored_run.record.state == "done":
            project = replace(
                before, training=resume.further(stored_run, request.now.training)
            )
        others, refusal, changed = resume.differing(project, new_project), "", None
        if others:
            try:
                resume.check_changes(stored_run, before, new_project)
            except RunError as error:
                refusal = str(error)
        if request.takes:
            if refusal:
                raise RunError(refusal)
            project, changes = new_project, resume.changes(before, new_project)
        passed_over: list[str] = []
        checkpoint = resume.newest(stored_run, passed_over.append)
        job = resume.as_before(
            job_of_run(stored_run, project, request.data_root), project, checkpoint
        )
        if request.takes:
            resume.check(job, checkpoint)
            changed = Changed(step_of(checkpoint)[0], changes) if changes else None
        projects = stages.projects_of(stored_run, project)
        return Resumable(
            projects,
            stage_of(checkpoint),
            job,
            checkpoint,
            tuple(passed_over),
            changed,
            others,
            refusal,
        )


@handles(GoOnFrom)
def go_on_from(request: GoOnFrom, _context: Context) -> GoingOn:
    with _as_run_errors():
        return resume.going_on(_stored_run(request.run), request.checkpoint)


@handles(StartFrom)
def start_from(request: StartFrom, _context: Context) -> StartWeights:
    with _as_run_errors():
        return resume.weights_of(request.checkpoint, request.name)


@handles(ExportEventFiles)
def export_event_files(request: ExportEventFiles, _context: Context) -> Path:
    with _as_run_errors():
        stored_run = _stored_run(request.run)
        return tensorboard.export(
            stored_run,
            job_of(store.project_of(stored_run), request.data_root),
            request.folder,
        )


@handles(BeginEventFiles)
def begin_event_files(request: BeginEventFiles, context: Context) -> Handle:
    with _as_run_errors():
        return context.keep(tensorboard.watch(request.run, request.job))


@handles(WriteEvents)
def write_events(request: WriteEvents, context: Context) -> None:
    with _as_run_errors():
        context.object_of(request.files).write(list(request.events))


@handles(EndEventFiles)
def end_event_files(request: EndEventFiles, context: Context) -> None:
    with _as_run_errors():
        context.object_of(request.files).close()
