"""Which input of the data each input of the network gets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from app.data.spec import VALUES, DataInfo, FieldInfo, SourceSpec
from app.source.generated import InputSpec, Source
from app.training.config import TARGET
from app.util.errors import CodedError
from app.util.formatting import shape_text


class InputError(CodedError, ValueError):
    """Raised for a network and data whose inputs do not match; the message names both and the cure."""


def chosen_fields(
    names: Sequence[str], chosen: Mapping[str, str], data: DataInfo | SourceSpec
) -> tuple[str, ...]:
    """Return the field of the data for each of the net's inputs `names`; empty for data with one input, unless a target
    goes into the net too: then the field "" is that input.

    It is the one `chosen` for the input, else that of its name, else that of its place if there are as many. Raises
    InputError.
    """
    fields = [info.name for info in data.inputs]
    targets = target_fields(data)
    if not fields:
        others = [name for name in names if chosen.get(name) not in targets]
        if len(others) > 1:
            raise InputError(
                f"The net has {len(others)} inputs ({', '.join(others)}), and {data.label} provides one. Remove the "
                "others, or choose data with several inputs."
            )
        return (
            tuple("" if name in others else chosen[name] for name in names)
            if len(others) < len(names)
            else ()
        )
    selected = []
    for index, name in enumerate(names):
        field = chosen.get(name) or (
            name
            if name in fields
            else fields[index]
            if len(names) == len(fields)
            else ""
        )
        if field not in fields and field not in targets:
            problem = (
                f"is set to “{field}”, which {data.label} does not have"
                if field
                else "has no field of that name"
            )
            raise InputError(
                f"The input “{name}” {problem}: it has {', '.join(fields)}. Choose one for it (Training, Data), or "
                "rename the input."
            )
        selected.append(field)
    return tuple(selected)


def target_fields(data: DataInfo | SourceSpec) -> dict[str, FieldInfo]:
    """Return the targets of the data as fields that may go into the net, by name; those whose name an input has not."""
    input_names = {field.name for field in data.inputs}
    return {
        target.name or TARGET: FieldInfo(
            target.name or TARGET,
            target.label_shape,
            "float32" if target.task == VALUES else "int64",
        )
        for target in data.known_targets
        if target.name not in input_names
    }


def check_inputs(
    source: Source,
    chosen: Mapping[str, str],
    data: DataInfo | SourceSpec,
    shape: tuple[int, ...],
) -> None:
    """Compare shapes and dtypes of the net's inputs with those of the data; `shape` is that of an only input.

    Raises InputError.
    """
    if not source.inputs:
        return
    fields = fields_of(source, chosen, data)
    only = FieldInfo("", shape, data.dtype)
    infos = {
        **target_fields(data),
        **{info.name: info for info in data.inputs or (only,)},
    }
    selected = [infos[name] for name in fields] or [only]
    for input_spec, field in zip(source.inputs, selected, strict=True):
        _check_one(
            input_spec,
            field,
            f"“{field.name}” of {data.label}" if field.name else data.label,
        )


def fields_of(
    source: Source, chosen: Mapping[str, str], data: DataInfo | SourceSpec
) -> tuple[str, ...]:
    """Return the fields for the inputs of a net, see `chosen_fields`. Raises InputError."""
    return chosen_fields([spec.name for spec in source.inputs], chosen, data)


def _check_one(spec: InputSpec, field: FieldInfo, label: str) -> None:
    if spec.batch != 0:
        dimension = "no dimension" if spec.batch is None else f"dimension {spec.batch}"
        raise InputError(
            f"The batch is {dimension} of the input “{spec.name}”, but the first dimension in {label}. "
            "Set batch to 0, and "
            "insert a torch.transpose after the input."
        )
    if spec.shape != field.shape or spec.dtype != field.dtype:
        raise InputError(
            f"The input “{spec.name}” is {_shape(spec.shape)} {spec.dtype}, and {label} gives {_shape(field.shape)} "
            f"{field.dtype}. Set the input's shape to {field.shape} and its dtype to {field.dtype}, or choose other "
            "data."
        )


def _shape(shape: tuple[int, ...]) -> str:
    return shape_text(shape, "one number")


def arguments(inputs: Any, fields: Sequence[str]) -> tuple[Any, ...]:
    """Return the arguments of the net's forward: the inputs of a batch, or of several those of `fields`."""
    return tuple(inputs[name] for name in fields) if fields else (inputs,)
