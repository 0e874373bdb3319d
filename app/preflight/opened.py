"""An opened model as the net of a project: the source that makes it for the project's data, and what prevents a run."""

from __future__ import annotations

import os
from collections.abc import Iterator

from msgspec.structs import replace

from app.builder.diagnostics import training_checks
from app.builder.diagnostics.problems import Problem
from app.builder.results import Analysis
from app.data.config import DataConfig
from app.data.sources import DataError, SourceSpec, spec_of
from app.data.spec import FieldInfo
from app.preflight import opened_losses, synthetic_data
from app.project import custom_layers
from app.project.project import Project
from app.source.generated import InputSpec, Source
from app.source.interface import LABELS, Argument
from app.sources import finding
from app.sources.code import source_of
from app.sources.opened import OpenedModel
from app.sources.spec import SourceError
from app.training.config import BY_DATA, INPUT, TrainingConfig
from app.training.inputs import InputError, chosen_fields, target_fields
from app.util.formatting import bytes_text, shape_text
from app.util.frozen import FrozenMap
from app.util.language import marked, tr

CHOOSE_DATA = marked(
    "Choose them under Training, Data: a file, a folder, or data that come with the program."
)
NOT_ON_THESE = "model-not-on-data"  # the code of the problem
SINGLE = 4  # bytes of a float32


def project_of(
    opened: OpenedModel, project: Project | None = None, own: bool = True
) -> Project:
    """Return a project with a model in place of a drawing, or `project` with it; without `own` its loss is kept.

    Where no losses are set, they are those that the model computes itself, which get the target if they need it, or
    the one that fits the data if these have been read; tensors within its arguments get the fields of their names.
    """
    project = project or Project(
        opened.source.name.rpartition(".")[2].rpartition("/")[2]
        or opened.interface.model
    )
    label = opened_losses.label_of(opened)
    fields = {
        argument.name: argument.name
        for argument in opened.interface.takes
        if argument.way and argument.way != "[*]" and argument != label
    }
    inputs = FrozenMap({**fields, **project.training.inputs})
    project = replace(
        project, opened=opened, training=replace(project.training, inputs=inputs)
    )
    project = opened_losses.with_own_losses(project) if own else project
    source = known_source(project.data)
    if own and source is not None:
        project = opened_losses.with_fitting_loss(project, source, chosen=False)
    return opened_losses.with_target_passed(project, source)


def with_data(project: Project, data: DataConfig) -> Project:
    """Return the project with other data, and with the loss that fits them if the loss was chosen for its data."""
    project = replace(project, data=data)
    training = project.training
    if project.opened is None or training.loss_by != BY_DATA:
        return project
    source = known_source(data)
    if source is None:
        return replace(project, training=training.changed(losses=()))
    plain = replace(
        project, training=training.changed(losses=(), loss=TrainingConfig().loss)
    )
    return opened_losses.with_fitting_loss(plain, source, chosen=False)


def known_source(data: DataConfig) -> SourceSpec | None:
    """Return what is known of data that have been read; None if they have not been, or cannot be."""
    try:
        source = spec_of(data)
    except DataError:
        return None
    return source if source.is_read else None


def analysis_of(project: Project) -> Analysis:
    """Return the analysis of a project with an opened model: the source that makes it, and its errors."""
    assert project.opened is not None
    opened, problems = project.opened, list[Problem]()
    try:
        source = model_source(project)
    except (SourceError, InputError) as error:
        source = Source("")
        problems.append(
            Problem(
                "error",
                None,
                tr("{model} cannot be trained on these data", model=opened.source),
                _sentence(error),
                code=NOT_ON_THESE,
            )
        )
    if refusal := opened.refusal or _too_large(opened):
        problems.insert(
            0,
            Problem(
                "error",
                None,
                tr("{model} cannot be trained", model=opened.source),
                refusal,
                code="model-not-trainable",
            ),
        )
    elif stale := changed(opened):
        problems.insert(
            0,
            Problem(
                "error",
                None,
                tr("{model} has changed since it was opened", model=opened.source),
                stale,
                code="model-changed",
            ),
        )
    elif custom_layers.waiting(project):
        reason = tr(
            "Open the model again to review its code: nothing of it runs before."
        )
        problems.insert(
            0,
            Problem(
                "error",
                None,
                tr("{model} is not trusted yet", model=opened.source),
                reason,
                code="model-not-trusted",
            ),
        )
    return Analysis(
        project.graph,
        source,
        problems=tuple(problems),
        live=frozenset({""}),
        parameters=FrozenMap({"": opened.interface.parameters}),
    )


def without_data(
    project: Project, model_problems: tuple[Problem, ...], more: tuple[Problem, ...]
) -> tuple[Problem, ...] | None:
    """Return the problems of an opened model for which nobody has chosen data or settings: what does not fit those that
    a new project begins with is no mistake. None where some were chosen, or they fit.

    `model_problems` are those of `analysis_of`, `more` those between net, data and loss.
    """
    if project.opened is None:
        return None
    begun = project_of(project.opened)
    if project.data != begun.data or project.training != begun.training:
        return None
    of_model = tuple(
        problem for problem in model_problems if problem.code != NOT_ON_THESE
    )
    if len(of_model) == len(model_problems) and all(
        problem.severity == "info" for problem in more
    ):
        return None
    return (
        *of_model,
        Problem(
            "info",
            None,
            tr("No data are chosen to train {model}", model=project.opened.source),
            tr(CHOOSE_DATA),
            code="no-data",
        ),
    )


def _too_large(opened: OpenedModel) -> str:
    """Say that weights and gradients alone are larger than the memory of this machine; "" if they are not."""
    needed = 2 * SINGLE * opened.interface.parameters
    try:
        room = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not available on Windows
        return ""
    if needed <= room:
        return ""
    return tr(
        "Its weights and their gradients take {needed} in float32, and this machine has {memory}. Open it "
        "with arguments that make it smaller, such as fewer layers.",
        needed=bytes_text(needed),
        memory=bytes_text(room),
    )


def _sentence(error: Exception) -> str:
    text = str(error)
    return f"{text[:1].upper()}{text[1:]}" + ("" if text.endswith(".") else ".")


def changed(opened: OpenedModel) -> str:
    """Say what to do about a file that was edited, or is gone, since its model was opened; "" if it is as it was."""
    if not opened.sha256:
        return ""
    files = finding.files_of(opened.source, opened.folder)
    if files is None:
        return tr("Its file cannot be read.")
    if files.is_version(opened.sha256):
        return ""
    return tr("Open it again: what it takes and returns may differ now.")


def model_source(project: Project) -> Source:
    """Return the source that makes the project's model for its data and losses. Raises SourceError and InputError."""
    opened = project.opened
    assert opened is not None
    data = known_source(project.data)
    outputs = [row.output for row in project.training.losses]
    if data is None:
        return source_of(opened, map(_as_called, opened.given), outputs)
    names = [argument.name for argument in taken(project, opened, data)]
    fields = chosen_fields(names, project.training.inputs, data) or ("",)
    only = FieldInfo("", data.shape, data.dtype)
    field_infos = {
        **target_fields(data),
        **{info.name: info for info in data.inputs or (only,)},
    }
    by_argument = {
        name: field_infos[field] for name, field in zip(names, fields, strict=True)
    }
    inputs = [
        InputSpec(name, field.shape, field.dtype) for name, field in by_argument.items()
    ]
    layouts = {
        name: layout.code
        for name, layout in opened_losses.layouts(project, data).items()
    }
    conversions = opened_losses.conversions(opened, by_argument, data)
    return source_of(opened, inputs, outputs, layouts, conversions)


def _as_called(argument: Argument) -> InputSpec:
    return InputSpec(argument.name, argument.shape[1:], argument.dtype or "float32")


def choices(
    project: Project, data: SourceSpec
) -> tuple[tuple[Argument, ...], tuple[FieldInfo, ...], dict[str, str]]:
    """Return the arguments that may get a field, the fields to choose from, and the field that each argument gets."""
    opened = project.opened
    assert opened is not None
    arguments = (*opened.given, *opened.optional)
    only = FieldInfo(INPUT, data.shape, data.dtype)
    fields = (*(data.inputs or (only,)), *target_fields(data).values())
    try:
        names = [argument.name for argument in taken(project, opened, data)]
        field_names = chosen_fields(names, project.training.inputs, data) or ("",)
    except InputError:
        return arguments, fields, dict(project.training.inputs)
    return (
        arguments,
        fields,
        {name: field or INPUT for name, field in zip(names, field_names, strict=True)},
    )


def taken(
    project: Project, opened: OpenedModel, data: SourceSpec
) -> tuple[Argument, ...]:
    """Return the arguments that get a field of the data, in forward's order: those that the project names, those called
    like a field, those without a default; of data with one input the first of its call. Raises InputError."""
    chosen, targets = project.training.inputs, target_fields(data)
    takes, call_arguments = opened.interface.takes, opened.given
    if not data.inputs:
        fed = [argument for argument in takes if chosen.get(argument.name) in targets]
        free = sorted(
            (argument for argument in call_arguments if argument not in fed),
            key=lambda argument: argument.name in LABELS,
        )
        main = [
            argument for argument in takes if chosen.get(argument.name) == INPUT
        ] or free[:1]
        return tuple(
            argument
            for argument in takes
            if argument in fed
            or argument in main
            or (argument.needed and argument in free)
        )
    fields = {field.name for field in data.inputs}
    selected = tuple(
        argument
        for argument in takes
        if argument.needed or argument.name in fields or argument.name in chosen
    )
    selected = (
        call_arguments
        if len(selected) < len(fields) == len(call_arguments)
        else selected
    )
    if not selected:
        names, provided = (
            ", ".join(argument.name for argument in takes),
            ", ".join(field.name for field in data.inputs),
        )
        raise InputError(
            f"{opened.interface.model.rpartition('.')[2]} takes {names}, and {data.label} provides {provided}. Choose "
            "a field for an argument (Training, Data)."
        )
    return selected


def problems(project: Project, source: SourceSpec) -> Iterator[Problem]:
    """Report what the data give that an opened model does not take, as far as its call tells."""
    opened = project.opened
    assert opened is not None
    if len(source.known_targets) > 1 and not project.training.losses:
        reason = tr("Choose an output and a loss for each target under Training, Loss.")
        yield Problem(
            "error",
            None,
            tr(
                "{label} has {count} targets",
                label=source.label,
                count=len(source.known_targets),
            ),
            reason,
            code="targets-without-losses",
        )
    try:
        arguments = taken(project, opened, source)
        fields = chosen_fields(
            [entry.name for entry in arguments], project.training.inputs, source
        ) or ("",)
    except InputError:  # `analysis_of` reports it
        return
    only = FieldInfo("", source.shape, source.dtype)
    field_infos = {
        **target_fields(source),
        **{info.name: info for info in source.inputs or (only,)},
    }
    for argument, field in zip(
        arguments, (field_infos[name] for name in fields), strict=True
    ):
        guessed = (
            argument.name in LABELS
        )  # a target of the kind that the call happened to take
        if (
            argument.dtype
            and not guessed
            and _kind(argument.dtype) != _kind(field.dtype)
        ):
            reason = tr(
                "{field} is {dtype}, and {name} was {argument_dtype} when the model was opened. Choose other data, or "
                "another field for it (Training, Data).",
                field=field.name or source.label,
                dtype=field.dtype,
                name=argument.name,
                argument_dtype=argument.dtype,
            )
            yield Problem(
                "error",
                None,
                tr("{name} does not match the data", name=argument.name),
                reason,
                code="input-does-not-match-data",
            )
    yield from opened_losses.problems(project, source)
    yield from _other_shape(project, arguments, field_infos, fields)


def single_samples(project: Project, samples: int | None) -> Iterator[Problem]:
    """Report batches of one sample if a batch norm had one value a channel for each sample when it was opened."""
    assert project.opened is not None
    if layer := project.opened.interface.one_value_norm:
        size = project.training.batch_size
        yield from training_checks.single_samples(layer, None, size, samples)


def _other_shape(
    project: Project,
    arguments: tuple[Argument, ...],
    field_infos: dict[str, FieldInfo],
    fields: tuple[str, ...],
) -> Iterator[Problem]:
    """Warn of samples with other channels, or more or fewer dimensions, than in the call: forward may take them too."""
    for argument, field in zip(
        arguments, (field_infos[name] for name in fields), strict=True
    ):
        called = argument.shape[1:]
        rows = argument.way.startswith(
            "[*]["
        )  # of which each sample has its own number
        if (
            argument.dtype
            and argument.name not in LABELS
            and (
                len(called) != len(field.shape)
                or (called[:1] != field.shape[:1] and not rows)
            )
        ):
            reason = tr(
                "It was called with {called} when it was opened, and the data have {shape}. A run shows whether "
                "forward accepts these too.",
                called=shape_text(("N", *called)),
                shape=shape_text(("N", *field.shape)),
            )
            message = tr("{name} had another shape", name=argument.name)
            cures = synthetic_data.cures(project, Analysis(project.graph, Source("")))
            yield Problem(
                "warning",
                None,
                message,
                reason,
                cures=cures,
                code="other-shape-than-called",
            )


def fit(project: Project, source: SourceSpec) -> tuple[str, str]:
    """Describe what the data give and what the model takes and returns."""
    opened = project.opened
    assert opened is not None
    data = [(field.name, field.shape, field.dtype) for field in source.inputs] or [
        ("", source.shape, source.dtype)
    ]
    targets = [
        f"{target.name or tr('a target')} {shape_text(('N', *target.label_shape))}"
        for target in source.known_targets
    ]
    gives = ", ".join(
        f"{name} {shape_text(('N', *shape))} {dtype}".strip()
        for name, shape, dtype in data
    )
    takes = ", ".join(
        f"{argument.name} {shape_text(('N', *argument.shape[1:]))} {argument.dtype}".strip()
        for argument in opened.given
    )
    chief = opened.interface.chief
    returns = (
        f"{chief.name} {shape_text(('N', *chief.shape[1:]))}"
        if chief is not None
        else tr("nothing that a loss takes")
    )
    return (
        tr("{inputs}, and {targets}.", inputs=gives, targets=", ".join(targets)),
        tr(
            "{takes}, and returned {returns}, when it was opened.",
            takes=takes,
            returns=returns,
        ),
    )


def _kind(dtype: str) -> str:
    """
    >>> _kind("bfloat16"), _kind("int64"), _kind("uint8"), _kind("bool")
    ('float', 'int', 'int', 'bool')
    """
    return (
        dtype.removeprefix("b").removeprefix("u").rstrip("0123456789")
        if dtype != "bool"
        else dtype
    )
