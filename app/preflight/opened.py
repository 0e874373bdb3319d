"""An opened model as the net of a project: the source that makes it for the project's data, and what prevents a run."""

from __future__ import annotations

from collections.abc import Iterator

from app.builder.diagnostics.problems import Problem
from app.builder.results import Analysis
from app.data.sources import DataError, SourceSpec, spec_of
from app.data.spec import CLASSES, FieldInfo
from app.project.project import Project
from app.source.generated import InputSpec, Source
from app.source.interface import Argument
from app.sources import finding
from app.sources.code import source_of
from app.sources.opened import OpenedModel
from app.sources.spec import SourceError
from app.training.config import INPUT
from app.training.inputs import InputError, chosen_fields, target_fields
from app.util.formatting import shape_text
from app.util.frozen import FrozenMap


def analysis_of(project: Project) -> Analysis:
    """Return the analysis of a project with an opened model: the source that makes it, and errors of its own."""
    assert project.opened is not None
    opened, problems = project.opened, list[Problem]()
    try:
        source = model_source(project)
    except (SourceError, InputError) as error:
        source = Source("")
        problems.append(Problem("error", None, f"{opened.source} cannot be trained on these data", _sentence(error)))
    if opened.refusal:
        problems.insert(0, Problem("error", None, f"{opened.source} cannot be trained", opened.refusal))
    elif stale := changed(opened):
        problems.insert(0, Problem("error", None, f"{opened.source} has changed since it was opened", stale))
    return Analysis(
        project.graph, source, problems=tuple(problems), live=frozenset({""}),
        parameters=FrozenMap({"": opened.interface.parameters}),
    )  # fmt: skip


def _sentence(error: Exception) -> str:
    text = str(error)
    return f"{text[:1].upper()}{text[1:]}" + ("" if text.endswith(".") else ".")


def changed(opened: OpenedModel) -> str:
    """Say what to do about a file that was edited, or is gone, since its model was opened; "" if it is as it was."""
    if not opened.sha256:
        return ""
    now = finding.digest_of(opened.source, opened.folder)
    if now == opened.sha256:
        return ""
    return "Open it again: what it takes and returns may differ now." if now else "Its file cannot be read."


def model_source(project: Project) -> Source:
    """Return the source that makes the project's model for its data and losses. Raises SourceError and InputError."""
    opened = project.opened
    assert opened is not None
    try:
        data: SourceSpec | None = spec_of(project.data)
    except DataError:
        data = None
    outputs = [row.output for row in project.training.losses]
    if data is None or not data.is_read:
        return source_of(opened, map(_as_called, opened.given), outputs)
    names = [one.name for one in taken(project, opened, data)]
    fields = chosen_fields(names, project.training.inputs, data) or ("",)
    only = FieldInfo("", data.shape, data.dtype)
    known = {**target_fields(data), **{one.name: one for one in data.inputs or (only,)}}
    pairs = zip(names, fields, strict=True)
    inputs = [InputSpec(name, known[field].shape, known[field].dtype) for name, field in pairs]
    return source_of(opened, inputs, outputs)


def _as_called(argument: Argument) -> InputSpec:
    return InputSpec(argument.name, argument.shape[1:], argument.dtype or "float32")


def taken(project: Project, opened: OpenedModel, data: SourceSpec) -> tuple[Argument, ...]:
    """Return the arguments that get a field of the data, in forward's order: those that the project names, those called
    like a field, those without a default; of data with one input the first of its call. Raises InputError."""
    chosen, targets = project.training.inputs, target_fields(data)
    takes, given = opened.interface.takes, opened.given
    if not data.inputs:
        fed = [one for one in takes if chosen.get(one.name) in targets]
        free = [one for one in given if one not in fed]
        main = [one for one in takes if chosen.get(one.name) == INPUT] or free[:1]
        return tuple(one for one in takes if one in fed or one in main or (one.needed and one in free))
    fields = {one.name for one in data.inputs}
    found = tuple(one for one in takes if one.needed or one.name in fields or one.name in chosen)
    found = given if len(found) < len(fields) == len(given) else found
    if not found:
        names, provided = ", ".join(one.name for one in takes), ", ".join(one.name for one in data.inputs)
        raise InputError(
            f"{opened.interface.model.rpartition('.')[2]} takes {names}, and {data.label} provides {provided}. Choose "
            "a field for an argument (Training, Data)."
        )
    return found


def problems(project: Project, source: SourceSpec) -> Iterator[Problem]:
    """Report what the data give that an opened model does not take, as far as its call tells."""
    opened = project.opened
    assert opened is not None
    if len(source.known_targets) > 1 and not project.training.losses:
        reason = "Choose an output and a loss for each target under Training, Loss."
        yield Problem("error", None, f"{source.label} has {len(source.known_targets)} targets", reason)
    try:
        arguments = taken(project, opened, source)
        fields = chosen_fields([one.name for one in arguments], project.training.inputs, source) or ("",)
    except InputError:  # `analysis_of` reports it
        return
    only = FieldInfo("", source.shape, source.dtype)
    known = {**target_fields(source), **{one.name: one for one in source.inputs or (only,)}}
    for argument, field in zip(arguments, (known[name] for name in fields), strict=True):
        if argument.dtype and _kind(argument.dtype) != _kind(field.dtype):
            reason = (
                f"{field.name or source.label} is {field.dtype}, and {argument.name} was {argument.dtype} when the "
                "model was opened. Choose other data, or another field for it (Training, Data)."
            )
            yield Problem("error", None, f"{argument.name} does not match the data", reason)
    if not project.training.losses:
        yield from _few_classes(opened, source)


def _few_classes(opened: OpenedModel, source: SourceSpec) -> Iterator[Problem]:
    chief = opened.interface.chief
    classes = len(source.classes)
    if source.task == CLASSES and chief is not None and len(chief.shape) == 2 and chief.shape[1] < classes:
        reason = f"{source.label} has {classes} classes. Open it with other arguments, such as num_classes."
        yield Problem("error", None, f"{chief.name} is {shape_text(('N', *chief.shape[1:]))}", reason)


def _kind(dtype: str) -> str:
    """
    >>> _kind("bfloat16"), _kind("int64"), _kind("uint8"), _kind("bool")
    ('float', 'int', 'int', 'bool')
    """
    return dtype.removeprefix("b").removeprefix("u").rstrip("0123456789") if dtype != "bool" else dtype
