"""`tapedeck train --surgery STEP:EDITED`: a run whose net is edited after given steps."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from app.builder.analysis import analyse
from app.cli import console, nets
from app.preflight import preflight
from app.project import custom_layers
from app.project.surgery import surgery_between
from app.runs import stages
from app.runs.record import RunError
from app.training.job import Stage
from app.training.surgery.values import SurgeryError

if TYPE_CHECKING:
    from app.project.project import Project
    from app.runs.store import Kept
    from app.training.job import Job


def planned(
    options: argparse.Namespace, projects: tuple[Project, ...], job: Job
) -> tuple[tuple[Project, ...], Job]:
    """Return the project of every stage and the whole job, with the surgeries of the command after those that a stored
    run has. Raises CommandError.
    """
    for step, path in sorted(options.surgery, key=lambda entry: entry[0]):
        edited = _edited(path, projects[-1], options)
        analysis = nets.sound(edited)
        if any(
            stage.step == step and stage.surgery.source.text == analysis.source.text
            for stage in job.stages
        ):
            continue  # a resumed run has made it
        if job.stages and step < job.stages[-1].step:
            raise console.CommandError(
                f"--surgery {step}:{path}: the run has a surgery after step {job.stages[-1].step:,}; another one comes "
                "after it"
            )
        before, net = projects[-1], job.last
        if analysis.source.same_net(net.source) and (
            edited.training.groups,
            edited.training.recompute,
        ) == (net.training.groups, net.training.recompute):
            raise console.CommandError(
                f"--surgery {step}:{path}: its net equals that of the run at this step"
            )
        try:
            run_analysis = analyse(before.graph, custom_layers.ops_of(before))
            surgery = surgery_between(before, edited, run_analysis, analysis)
        except SurgeryError as error:
            raise console.CommandError(f"--surgery {step}:{path}: {error}") from error
        projects, job = (
            (*projects, edited),
            replace(job, stages=(*job.stages, Stage(step, surgery))),
        )
    return projects, job


def _edited(path: Path, before: Project, options: argparse.Namespace) -> Project:
    """Read an edited copy of a project; it takes the settings of the run. Raises CommandError."""

    namespace: dict[str, Any] = {
        **vars(options),
        "project": path,
        "args": "{}",
        "input": [],
    }
    project = nets.read(argparse.Namespace(**namespace))
    training = replace(
        before.training,
        groups=project.training.groups,
        recompute=project.training.recompute,
    )
    return replace(project, data=before.data, training=training)


def stored(
    stored_run: Kept | None, project: Project, job: Job, data: str | None
) -> tuple[tuple[Project, ...], Job]:
    """Return the project of every stage of a stored run that is resumed, and its whole job, with the settings of
    `project`, whose net is one of them; without a run, those of `project` alone. Raises RunError.
    """
    if stored_run is None or not stored_run.record.stages:
        return (project,), job

    def job_of(stage_project: Project) -> Job:
        return preflight.job(stage_project, nets.sound(stage_project), data)

    projects = stages.projects_of(stored_run, project)
    full_job = stages.whole_job(stored_run, projects, job_of)
    if job.source.text not in (
        full_job.source.text,
        *(stage.surgery.source.text for stage in full_job.stages),
    ):
        raise RunError(
            f"The net of {project.name} is not one of those of {stored_run.record.title}. Pass the project that it was "
            f"started "
            f"with; a copy is {stored_run.folder / 'stages' / '01' / 'project.tape'}."
        )
    return projects, full_job


def warn_of(stages: Sequence[Stage], steps: int, phrase: str) -> None:
    """Warn of surgeries after the end of a run."""

    for stage in stages:
        console.warn(
            f"--surgery {stage.step:,}: the run {phrase} {steps:,}, so its net is not edited then"
        )


def plan(
    recorder: Any, projects: tuple[Project, ...], stages: tuple[Stage, ...], begun: int
) -> None:
    """Pass a recorder the stages after the one in which the run starts."""
    for project, stage in zip(projects[begun:], stages[begun - 1 :], strict=True):
        recorder.plan(stage.surgery, project)
