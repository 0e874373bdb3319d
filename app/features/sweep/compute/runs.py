"""What the trials of a sweep are, checked before the first begins: whether net and data take their values."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from app.builder.analysis import analyse
from app.builder.params import ParamError, check_param
from app.features.sweep.values import (
    FIELDS,
    OPTIMIZER,
    Search,
    SweepError,
    SweepSetting,
    Values,
    text_of,
)
from app.preflight import opened, preflight
from app.preflight.net_cost import with_cost
from app.project import custom_layers
from app.project.project import Project
from app.project.weights import start_weights
from app.source.generated import Source
from app.training.choices import OPTIMIZERS, ChoiceError, ChoiceParam
from app.training.config import Choice, TrainingConfig
from app.training.job import Job, JobError, check_numbers
from app.training.registry import check_optimizer, optimizer_params
from app.training.settings import PARAMS, of_config, of_field
from app.util.frozen import FrozenMap

if TYPE_CHECKING:
    from app.builder.diagnostics.problems import Problem
    from app.builder.results import Analysis

# Kinds of the drawing's parameters that a sweep can vary.
KINDS = ("int", "float", "number", "bool", "choice", "ints")


def check(project: Project, analysis: Analysis, search: Search) -> None:
    """Check all that can be checked before the first trial: each run of a grid, else each value. Raises SweepError.

    Whether the shapes of a changed drawing fit is seen by each trial.
    """
    search.check()
    constructed = set[Choice]()  # that torch has constructed
    started = start_weights.problems(project.training.start, analysis.source)
    for values in _checked(search):
        trained = with_values(project, values)
        _check(
            replace(project, training=trained.training),
            analysis,
            values,
            constructed,
            started,
        )


def _checked(search: Search) -> Iterator[Values]:
    """Return the values of each run of a grid; of another search each value beside the first ones of the others."""
    if search.sampler == "grid":
        names = [setting.name for setting in search.settings]
        grid = itertools.product(*(setting.values for setting in search.settings))
        yield from (FrozenMap(zip(names, values, strict=True)) for values in grid)
        return
    first = {setting.name: setting.extremes[0] for setting in search.settings}
    yield FrozenMap(first)
    for setting in search.settings:
        for value in setting.extremes[1:]:
            yield FrozenMap({**first, setting.name: value})


def analysis_of(project: Project) -> Analysis:
    """Return the analysis of the net of a project."""
    if project.opened is not None:
        return opened.analysis_of(project)
    ops = custom_layers.ops_of(project)
    return with_cost(analyse(project.graph, ops), ops)


def prepared(
    project: Project, analysis: Analysis, values: Values
) -> tuple[Project, Analysis]:
    """Return the project of a trial and its analysis. Raises SweepError for one that cannot run."""
    trial = with_values(project, values)
    if trial.graph is not project.graph:
        analysis = analysis_of(trial)
    problems = analysis.problems
    if analysis.runnable:
        started = start_weights.problems(trial.training.start, analysis.source)
        problems += preflight.problems(trial, analysis, started)
    _refuse(problems, trial, values)
    return trial, analysis


def _refuse(problems: Sequence[Problem], project: Project, values: Values) -> None:
    """Raise SweepError for the first error."""
    error = next((each for each in problems if each.severity == "error"), None)
    if error is not None:
        node = project.graph.nodes.get(error.node or "")
        where = f"{node.name}: " if node is not None else ""
        message = f"{where}{error.message}. {error.reason}".strip()
        raise SweepError(f"{text_of(values)}: {message}", _blamed(message, values))


def params_for(
    project: Project, settings: Sequence[SweepSetting]
) -> tuple[ChoiceParam, ...]:
    """Return the settings that every trial can have, with the present value as default: the parameters that all
    optimizers share, the optimizer, the settings of a run, and the numbers of the drawing.
    """
    training = project.training
    optimizer = training.optimizer
    optimizer_names = next(
        (setting.values for setting in settings if setting.name == OPTIMIZER),
        (optimizer.name,),
    )
    shared = [optimizer_params(name) for name in optimizer_names if name in OPTIMIZERS]
    names = [{param.name for param in params} for params in shared]
    shared_params = (
        [
            param
            for param in shared[0]
            if all(param.name in available for available in names)
        ]
        if shared
        else []
    )
    return (
        *(
            replace(param, default=optimizer.params.get(param.name, param.default))
            for param in shared_params
        ),
        ChoiceParam(OPTIMIZER, "choice", optimizer.name, choices=OPTIMIZERS),
        *(
            replace(
                PARAMS[name],
                default=of_field(name, getattr(training, name)),
            )
            for name in FIELDS
        ),
        *_drawn(project),
    )


def _drawn(project: Project) -> Iterator[ChoiceParam]:
    """Return the numbers of the drawing: the parameters of its nodes with a plain value."""
    ops = custom_layers.ops_of(project)
    for node in project.graph.nodes.values():
        spec = ops.get(node.op)
        for param in spec.params if spec is not None and not node.shares else ():
            value = node.params.get(param.name, param.default)
            if param.kind in KINDS and type(value) in (int, float, bool, str):
                name = f"{node.name}.{param.name}"
                yield ChoiceParam(name, param.kind, value, choices=param.choices)


def with_values(project: Project, values: Mapping[str, Any]) -> Project:
    """Return the project of one trial. Raises SweepError for a name that does not exist, and values of a node that it
    does not take.
    """
    drawn = {name: value for name, value in values.items() if "." in name}
    rest = {name: value for name, value in values.items() if "." not in name}
    graph, ops = project.graph, custom_layers.ops_of(project) if drawn else {}
    for name, value in drawn.items():
        stem, _, key = name.rpartition(".")
        node = next((node for node in graph.nodes.values() if node.name == stem), None)
        if node is None:
            names = ", ".join(node.name for node in graph.nodes.values()) or "none"
            raise SweepError(
                f"{name}: there is no node {stem}; there are {names}", name
            )
        spec = ops.get(node.op)
        param = spec.param(key) if spec is not None else None
        if param is None:
            names = ", ".join(each.name for each in spec.params) if spec else "none"
            raise SweepError(f"{name}: {stem} has no {key}; it has {names}", name)
        try:
            check_param(param, value)
        except ParamError as error:
            raise SweepError(f"{name}: {error}", name) from error
        graph = graph.with_param(node.id, key, value)
    training = _with_settings(project.training, rest)
    return replace(project, graph=graph, training=training)


def _with_settings(
    training: TrainingConfig, values: Mapping[str, Any]
) -> TrainingConfig:
    """Return the settings of one run. Raises SweepError for a name that does not exist."""
    optimizer = training.optimizer
    if (other := values.get(OPTIMIZER, optimizer.name)) != optimizer.name:
        if other not in OPTIMIZERS:
            raise SweepError(
                f"optimizer: there is no {other}; there are {', '.join(OPTIMIZERS)}",
                OPTIMIZER,
            )
        optimizer = Choice(
            other, FrozenMap({k: v for k, v in optimizer.params.items() if k == "lr"})
        )
    params = {
        name: value
        for name, value in values.items()
        if name not in (*FIELDS, OPTIMIZER)
    }
    names = [param.name for param in optimizer_params(optimizer.name)]
    if unknown := next((name for name in params if name not in names), ""):
        raise SweepError(
            f"{unknown} is no setting; there are optimizer, {', '.join(FIELDS)}, of {optimizer.name} "
            f"{', '.join(names)}, and NODE.PARAMETER of the drawing, as conv1.out_channels",
            unknown,
        )
    optimizer = replace(optimizer, params=FrozenMap({**optimizer.params, **params}))
    fields = {
        name: of_config(name, value) for name, value in values.items() if name in FIELDS
    }
    return replace(training, optimizer=optimizer, **fields)


def _check(
    project: Project,
    analysis: Analysis,
    values: Values,
    constructed: set[Choice],
    started: tuple[Problem, ...],
) -> None:
    """Check one run as it would be before it starts by itself. Raises SweepError, naming its settings."""
    name, training = text_of(values), project.training
    try:
        check_numbers(Job(Source(""), project.data, training))
        if training.optimizer not in constructed:
            check_optimizer(training.optimizer)
            constructed.add(training.optimizer)
    except JobError as error:
        raise SweepError(f"{name}: {error}", _blamed(str(error), values)) from error
    except ChoiceError as error:
        setting = error.param if error.param in values else _blamed(str(error), values)
        raise SweepError(f"{name}: {error}", setting or "") from error
    _refuse(preflight.problems(project, analysis, started), project, values)


def _blamed(message: str, values: Values) -> str:
    """Return the setting that a message is about, "" if it names none."""
    return next((name for name in values if name in message), "")
