"""Which input of the data each input of the network gets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from app.data.spec import DataInfo, FieldInfo, SourceSpec
from app.source.generated import InputSpec, Source
from app.util.errors import CodedError
from app.util.formatting import shape_text


class InputError(CodedError, ValueError):
    """Raised for a network and data whose inputs do not match; the message names both and the cure."""


def chosen_fields(names: Sequence[str], chosen: Mapping[str, str], data: DataInfo | SourceSpec) -> tuple[str, ...]:
    """Return the field of the data for each of the net's inputs `names`; empty for data with one input.

    It is the one `chosen` for the input, else that of its name, else that of its place if there are as many. Raises
    InputError.
    """
    fields = [one.name for one in data.inputs]
    if not fields:
        if len(names) > 1:
            raise InputError(
                f"The net has {len(names)} inputs ({', '.join(names)}), and {data.label} provides one. Remove the "
                "others, or choose data with several inputs."
            )
        return ()
    found = []
    for place, name in enumerate(names):
        field = chosen.get(name) or (name if name in fields else fields[place] if len(names) == len(fields) else "")
        if field not in fields:
            told = f"is set to “{field}”, which {data.label} does not have" if field else "has no field of that name"
            raise InputError(
                f"The input “{name}” {told}: it has {', '.join(fields)}. Choose one for it (Training, Data), or "
                "rename the input."
            )
        found.append(field)
    return tuple(found)


def check_inputs(
    source: Source, chosen: Mapping[str, str], data: DataInfo | SourceSpec, shape: tuple[int, ...]
) -> None:
    """Compare shapes and dtypes of the net's inputs with those of the data; `shape` is that of an only input.

    Raises InputError.
    """
    if not source.inputs:
        return
    fields = fields_of(source, chosen, data)
    known = {one.name: one for one in data.inputs}
    given = [known[name] for name in fields] or [FieldInfo("", shape, data.dtype)]
    for own, field in zip(source.inputs, given, strict=True):
        _check_one(own, field, f"“{field.name}” of {data.label}" if field.name else data.label)


def fields_of(source: Source, chosen: Mapping[str, str], data: DataInfo | SourceSpec) -> tuple[str, ...]:
    """Return the fields for the inputs of a net, see `chosen_fields`. Raises InputError."""
    return chosen_fields([given.name for given in source.inputs], chosen, data)


def _check_one(own: InputSpec, field: FieldInfo, label: str) -> None:
    if own.batch != 0:
        place = "no dimension" if own.batch is None else f"dimension {own.batch}"
        raise InputError(
            f"The batch is {place} of the input “{own.name}”, but the first dimension in {label}. Set batch to 0, and "
            "insert a torch.transpose after the input."
        )
    if own.shape != field.shape or own.dtype != field.dtype:
        raise InputError(
            f"The input “{own.name}” is {_shape(own.shape)} {own.dtype}, and {label} gives {_shape(field.shape)} "
            f"{field.dtype}. Set the input's shape to {field.shape} and its dtype to {field.dtype}, or choose other "
            "data."
        )


def _shape(shape: tuple[int, ...]) -> str:
    return shape_text(shape, "one number")


def arguments(inputs: Any, fields: Sequence[str]) -> tuple[Any, ...]:
    """Return the arguments of the net's forward: the inputs of a batch, or of several those of `fields`."""
    return tuple(inputs[name] for name in fields) if fields else (inputs,)
