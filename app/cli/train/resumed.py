"""`tapedeck train --resume`: the settings are those of the run that is resumed, with what the command changes."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from app.cli import console, settings
from app.cli.train import surgeries
from app.runs import compare, resume, store
from app.runs.record import Changed, Parent, RunError
from app.runs.recorder import Recorder
from app.training.checkpoints.checkpoint import CheckpointError, stage_of, step_of

if TYPE_CHECKING:
    from app.project.project import Project
    from app.runs.store import Kept
    from app.training.job import Job


class Resumed(Struct, frozen=True):
    """What a command resumes: a checkpoint, and the stored run that it is of.

    `run` is None for a checkpoint that lies elsewhere, `path` for the start of the run, before its first checkpoint.
    """

    run: Kept | None
    path: Path | None


def find(options: argparse.Namespace) -> Resumed | None:
    """Return what --resume names, with --leave-out from before the first of these steps. Raises CommandError."""
    if options.resume is None:
        return None
    try:
        path = resume.find_checkpoint(options.resume, console.warn)
        run = resume.run_of(path)
        if run is not None and run.goes_on:
            raise RunError(f"{run.folder} is in use by a running run. Stop it first.")
        if options.leave_out:
            return Resumed(
                run, _before(options.resume, path, run, min(options.leave_out))
            )
    except (RunError, CheckpointError) as error:
        raise console.CommandError(str(error)) from error
    return Resumed(run, path)


def _before(named: Path, path: Path, run: Kept | None, step: int) -> Path | None:
    """Return the checkpoint to resume from so that the batch of a step can be left out; None for the run's start.

    Raises CheckpointError and CommandError.
    """
    if named.is_file():
        if (at := step_of(path)[0]) >= step:
            raise console.CommandError(
                f"{path} is of step {at:,}; to leave out step {step:,} pass one before it"
            )
        return path
    nearest = resume.nearest(run, step - 1, console.warn) if run is not None else path
    if nearest is None and run is not None and run.record.changed is not None:
        raise console.CommandError(
            f"{run.record.title} has its settings since step {run.record.changed.step:,}; to leave out step {step:,} "
            f"resume {run.record.parent.run if run.record.parent is not None else 'the run before it'}"
        )
    return nearest


def with_settings_of(
    resumed: Resumed, project: Project, options: argparse.Namespace
) -> Project:
    """Return the project with the settings of the run, and on top those of --on and --set. Raises CommandError."""
    if resumed.run is None:
        console.warn(
            f"{resumed.path} is of no stored run: the settings are those of {options.project}"
        )
        return project
    record = resumed.run.record
    try:
        stored = store.project_of(resumed.run)
    except RunError as error:
        raise console.CommandError(str(error)) from error
    training = stored.training
    if record.beginning is not None:  # its first steps are recomputed with this seed
        training = replace(training, seed=record.beginning.seed)
    before = replace(project, training=training, data=stored.data)
    now = settings.with_settings(before, options)
    now = settings.with_loss(now, options) if options.loss is not None else now
    differences = compare.differences(now, project)
    named = {"epochs", "device", "seed", "save_every", "revisit_seconds", "leave_out"}
    if texts := [
        f"{name} {ours}, not {theirs}"
        for name, (ours, theirs) in differences.items()
        if name not in named
    ]:
        console.warn(
            f"the settings are those of {record.title}: {'; '.join(texts)} as in {options.project}; --set takes others"
        )
    return now


def open_store(
    resumed: Resumed, project: Project, job: Job, options: argparse.Namespace
) -> tuple[Recorder, Path | None, Job]:
    """Return the store of a resumed run, its checkpoint, and the job with the surgeries of the run and the command.

    It is that of the run itself if it lies in the output folder and nothing is changed, else a new one with this run as
    its parent. Raises CommandError.
    """
    run, path, runs = resumed.run, resumed.path, options.out / "runs"
    try:
        projects, job = surgeries.stored(
            run, project, job, str(options.data) if options.data else None
        )
        projects, job = surgeries.planned(options, projects, job)
        if path is None:
            recorder, job = _from_the_start(resumed, projects[0], job, options)
            surgeries.plan(recorder, projects, job.stages, 1)
            return recorder, None, job
        changed = _changed(resumed, project)
        resume.check(job, path)
        stage = stage_of(path)
        with console.writing(options.out):
            same = run is not None and run.folder.parent.resolve() == runs.resolve()
            if run is not None and same and changed is None and not options.leave_out:
                stored_run = run
            else:
                stored_run = store.begin(runs, project, _parent(run, path))
                if run is not None:
                    stored_run = resume.continued(stored_run, run, path, changed)
                else:
                    store.keep_begin(path, stored_run)
            position = resume.going_on(stored_run, path)
    except (RunError, CheckpointError) as error:
        raise console.CommandError(str(error)) from error
    if position.epochs >= job.training.epochs:
        console.warn(
            f"{path.name} is at epoch {position.epochs} of {job.training.epochs}: nothing is left to train; "
            "pass --epochs with more"
        )
    recorder = Recorder(
        stored_run,
        projects[stage - 1],
        job.at_stage(stage).source.text,
        lambda: position,
    )
    surgeries.plan(recorder, projects, job.stages, stage)
    return recorder, path, resume.with_begin(job, stored_run)


def _from_the_start(
    resumed: Resumed, project: Project, job: Job, options: argparse.Namespace
) -> tuple[Recorder, Job]:
    """Return the store of a run that repeats another one from its start, as it leaves out a batch before the first
    checkpoint.
    """
    run = resumed.run
    with console.writing(options.out):
        stored_run = store.begin(options.out / "runs", project, _parent(run, None))
    if run is not None:
        console.warn(
            f"{run.record.title} has no checkpoint before step {min(options.leave_out):,}: a new run repeats "
            "it from its start"
        )
    return Recorder(stored_run, project, job.source.text), job


def _parent(run: Kept | None, path: Path | None) -> Parent:
    """Return the record of what a run continues; `path` is None for the start of the other run."""
    step = step_of(path)[0] if path is not None else 0
    return Parent(
        run.record.title if run is not None else str(path),
        path.name if path is not None else "",
        step,
    )


def _changed(resumed: Resumed, project: Project) -> Changed | None:
    """Return the settings that the command changes, and say so; None without any. Raises RunError."""
    run, path = resumed.run, resumed.path
    if run is None or path is None:
        return None
    before = store.project_of(run)
    resume.check_changes(run, before, project)
    changes = resume.changes(before, project)
    if not changes:
        return None
    step = step_of(path)[0]
    texts = "; ".join(
        f"{name} is {now} (before: {old})" for name, (old, now) in changes.items()
    )
    console.warn(
        f"since step {step:,}: {texts}; this is a new run, with {run.record.title} as its parent"
    )
    return Changed(step, changes)
