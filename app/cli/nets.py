"""The net that a command names, read from a project or opened as a model, checked, given weights, and drawn."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from app.builder.analysis import analyse
from app.builder.diagram import to_drawing
from app.cli import arguments, console, models, settings
from app.engine.requests.observe import opened_model
from app.engine.tasks import observe as task
from app.preflight import opened, preflight
from app.preflight.net_cost import with_cost
from app.project import custom_layers, file
from app.project.project import Project
from app.project.weights import start_weights, state_dicts
from app.runs import store
from app.runs.resume import find_checkpoint, newest_weights
from app.sources import finding
from app.training.evaluation.evaluator import Evaluator, checkpoint_weights

if TYPE_CHECKING:
    from app.builder.diagnostics.problems import Problem
    from app.builder.diagram import Unfolded
    from app.builder.results import Analysis
    from app.diagram.diagram import Drawing
    from app.sources.opened import OpenedModel


def read(options: argparse.Namespace) -> Project:
    """Read the project that a command names, or open a model where it takes one. Raises CommandError."""
    path: Path = options.project
    if path.suffix in (".pt2", ".onnx"):
        raise console.CommandError(
            f"{path} is a graph in one mode, which cannot be trained. Name the Python class that it was exported from: "
            "file.py:Class"
        )
    takes_settings = hasattr(options, "loss")
    takes_models = takes_settings and hasattr(options, "args")
    if (
        takes_models
        and not path.exists()
        and path.suffix != ".tape"
        and ":" in str(path)
    ):
        project = project_of(options)
    elif takes_models and (options.args != "{}" or options.input):
        raise console.CommandError(
            "--args and --input are for a model, and this is a project"
        )
    else:
        try:
            project = file.read(path)
        except OSError as error:
            raise console.CommandError(f"{path}: {error.strerror or error}") from error
        project = (
            settings.with_settings(project, options) if takes_settings else project
        )
    custom_layers.admit(project, options.trust)
    return settings.with_loss(project, options) if takes_settings else project


def analysed(
    project: Project, alone: bool = False
) -> tuple[Analysis, tuple[Problem, ...]]:
    if not alone:
        settings.read_data(project)
    if project.opened is not None:
        analysis = opened.analysis_of(project)
    else:
        ops = custom_layers.ops_of(project)
        analysis = with_cost(analyse(project.graph, ops), ops)
    problems = analysis.problems
    if not analysis.runnable:
        return analysis, problems
    started = start_weights.problems(project.training.start, analysis.source)
    return analysis, (
        *problems,
        *(started if alone else preflight.problems(project, analysis, started)),
    )


def sound(project: Project, alone: bool = False) -> Analysis:
    """Return the analysis of a project without errors; otherwise print the errors and exit with 1.

    With `alone` only the net and its start weights are checked, not its data and its loss.
    """
    if files := custom_layers.waiting(project):
        names = ", ".join(map(str, files))
        raise console.CommandError(
            f"{names} is not trusted yet and none of its code was run; review it, then pass --trust",
            1,
        )
    if not alone and (wrong := settings.read_data(project)):
        raise console.CommandError(f"{project.name} cannot run. {wrong}")
    analysis, problems = analysed(project, alone)
    errors = [problem for problem in problems if problem.severity == "error"]
    if len(errors) == 1:
        raise console.CommandError(
            f"{project.name} cannot run. {console.sentence(errors[0], project)}", 1
        )
    for problem in errors:
        console.warn(console.sentence(problem, project))
    if errors:
        raise console.CommandError(
            f"{project.name} cannot run: it has the {len(errors)} problems above", 1
        )
    return analysis


def evaluator(options: argparse.Namespace) -> tuple[Evaluator, str]:
    """Return the net of a command with its data and the weights of --checkpoint or --weights, and their name.

    Without either they are the newest of the project's runs, else start weights. Raises CommandError, RunError,
    WeightsError, CheckpointError.
    """
    project = read(options)
    if options.device is not None:
        project = replace(
            project,
            training=replace(project.training, device=settings.device(options.device)),
        )
    job = preflight.job(
        project, sound(project), str(options.data) if options.data else None
    )
    if options.checkpoint is not None:
        path = find_checkpoint(options.checkpoint, console.warn)
        return Evaluator(job, checkpoint_weights(path)), path.name
    if options.weights is not None:
        return Evaluator(
            job, state_dicts.read(options.weights).tensors
        ), options.weights.name
    newest = newest_weights(store.runs_beside(options.project), console.warn)
    if newest is not None:
        return Evaluator(job, checkpoint_weights(newest[0])), newest[1]
    return Evaluator(job), "start weights"


def drawing(project: Project, unfolded: Unfolded) -> Drawing:
    """Return the diagram of the network with known shapes."""
    ops = custom_layers.ops_of(project)
    return to_drawing(project, ops, analyse(project.graph, ops), unfolded, project.name)


def project_of(options: argparse.Namespace) -> Project:
    """Open the model that SOURCE names, as a project with the settings of the command. Raises CommandError."""
    project = settings.with_settings(
        Project(), options
    )  # first, so that invalid settings are reported before any code runs
    model = open_model(options, str(options.project))
    return opened.project_of(
        model, replace(project, name=name(model)), own=not settings.sets_loss(options)
    )


def name(opened: OpenedModel) -> str:
    """Return the name of a project with an opened model."""
    return (
        opened.source.name.rpartition(".")[2].rpartition("/")[2]
        or Path(opened.source.where).stem
    )


def open_model(options: argparse.Namespace, source: str) -> OpenedModel:
    """Construct a model and run one forward pass; user code runs in a separate process. Raises SourceError."""
    request = models.request_of(options, source)
    sha256 = finding.digest_of(request.source, request.folder)
    seconds = arguments.value_of(options, "--timeout")
    return opened_model(
        request, models.answer(request, request, seconds, task.answer), sha256
    )
