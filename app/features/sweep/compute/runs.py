"""The runs of a sweep, checked before the first one begins: names, values, and whether net and data take them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from app.features.sweep.values import (
    FIELDS,
    OPTIMIZER,
    SweepError,
    SweepRun,
    SweepSetting,
    Values,
    combinations,
    names_of,
    text_of,
)
from app.preflight import preflight
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


def plan(
    project: Project,
    analysis: Analysis,
    settings: Sequence[SweepSetting],
    count: int | None,
    seed: int,
) -> tuple[SweepRun, ...]:
    """Return the runs of the grid, or of `count` random draws with a seed. Raises SweepError."""
    value_sets = combinations(settings, count, seed)
    chosen = [
        SweepRun(name, values, with_values(project.training, values))
        for name, values in zip(names_of(value_sets), value_sets, strict=True)
    ]
    constructed = set[Choice]()  # that torch has constructed
    started = start_weights.problems(project.training.start, analysis.source)
    for run in chosen:
        _check(project, analysis, run, constructed, started)
    return tuple(chosen)


def params_for(
    training: TrainingConfig, settings: Sequence[SweepSetting]
) -> tuple[ChoiceParam, ...]:
    """Return the settings that every run can have, with the present value as default: the parameters that all
    optimizers share, the optimizer, and the settings of a run.
    """
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
    )


def with_values(training: TrainingConfig, values: Values) -> TrainingConfig:
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
            f"{unknown} is no setting; there are optimizer, {', '.join(FIELDS)}, and of {optimizer.name} "
            f"{', '.join(names)}",
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
    run: SweepRun,
    constructed: set[Choice],
    started: tuple[Problem, ...],
) -> None:
    """Check one run as it would be before it starts by itself. Raises SweepError, naming its settings."""
    run_project, name = replace(project, training=run.training), text_of(run.values)
    try:
        check_numbers(Job(Source(""), run_project.data, run.training))
        if run.training.optimizer not in constructed:
            check_optimizer(run.training.optimizer)
            constructed.add(run.training.optimizer)
    except JobError as error:
        raise SweepError(f"{name}: {error}", _blamed(str(error), run.values)) from error
    except ChoiceError as error:
        setting = (
            error.param
            if error.param in run.values
            else _blamed(str(error), run.values)
        )
        raise SweepError(f"{name}: {error}", setting or "") from error
    errors = [
        problem
        for problem in preflight.problems(run_project, analysis, started)
        if problem.severity == "error"
    ]
    if errors:
        message = f"{errors[0].message}. {errors[0].reason}".strip()
        raise SweepError(f"{name}: {message}", _blamed(message, run.values))


def _blamed(message: str, values: Values) -> str:
    """Return the setting that a message is about, "" if it names none."""
    return next((name for name in values if name in message), "")
