"""Records of an opened model (own code, no drawing) in a project file. They are data: nothing is run."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec.structs import replace

from app.project.sheet_records import ProjectFileError, Text
from app.source.interface import Argument, Interface, Returned, is_place, is_way
from app.sources.opened import OpenedModel
from app.sources.spec import InputSpec, SourceError, parse_source
from app.util.frozen import FrozenMap

Shape = Annotated[
    list[Annotated[int, msgspec.Meta(ge=-1)]], msgspec.Meta(max_length=64)
]


class TensorRecord(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """An input of the call that the model was observed in."""

    shape: Shape
    dtype: Text = ""
    name: Text = ""
    values: Text = ""


class ArgumentRecord(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """An argument of forward."""

    name: Text
    shape: Shape = []
    dtype: Text = ""
    needed: bool = False
    other: Text = ""
    by_place: bool = False
    of: Text = ""
    way: Text = ""


class ReturnedRecord(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A tensor that forward returned."""

    way: Text
    shape: Shape = []
    dtype: Text = ""
    detached: bool = False


class InterfaceRecord(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What forward takes and returned."""

    model: Text
    takes: Annotated[list[ArgumentRecord], msgspec.Meta(max_length=1_000)] = []
    returns: Annotated[list[ReturnedRecord], msgspec.Meta(max_length=1_000)] = []
    modules: Annotated[list[Text], msgspec.Meta(max_length=200_000)] = []
    parameters: Annotated[int, msgspec.Meta(ge=0)] = 0
    losses_in_training: bool = False
    lazy: bool = False
    quantised: Text = ""
    one_value_norm: Text = ""


class OpenedRecord(msgspec.Struct, forbid_unknown_fields=True):
    """The source of the model."""

    source: Text
    interface: InterfaceRecord
    arguments: dict[str, Any] = {}
    inputs: Annotated[list[TensorRecord], msgspec.Meta(max_length=1_000)] = []
    folder: Annotated[str, msgspec.Meta(max_length=4096)] = ""
    sha256: Annotated[str, msgspec.Meta(pattern="^([0-9a-f]{64})?$")] = ""
    example: Annotated[str, msgspec.Meta(max_length=4096)] = ""


def opened_record(opened: OpenedModel) -> dict[str, Any]:
    """Plain data of an OpenedModel."""
    interface = opened.interface
    record = OpenedRecord(
        str(opened.source),
        InterfaceRecord(
            interface.model,
            [
                ArgumentRecord(
                    a.name,
                    [*a.shape],
                    a.dtype,
                    a.needed,
                    a.other,
                    a.by_place,
                    a.of,
                    a.way,
                )
                for a in interface.takes
            ],
            [
                ReturnedRecord(
                    returned.way, [*returned.shape], returned.dtype, returned.detached
                )
                for returned in interface.returns
            ],
            [*interface.modules],
            interface.parameters,
            interface.losses_in_training,
            interface.lazy,
            interface.quantised,
            interface.one_value_norm,
        ),
        dict(opened.arguments),
        [
            TensorRecord([*spec.shape], spec.dtype, spec.name, spec.values)
            for spec in opened.inputs
        ],
        opened.folder,
        opened.sha256,
        opened.example,
    )
    plain: dict[str, Any] = msgspec.to_builtins(record)
    return plain


def opened_from(record: OpenedRecord) -> OpenedModel:
    """Convert a record to its value. Raises ProjectFileError."""
    try:
        source = parse_source(record.source)
    except SourceError as error:
        raise ProjectFileError(f"{error} - at `$.model.source`") from error
    interface = record.interface
    if bad := next(
        (returned.way for returned in interface.returns if not is_way(returned.way)),
        None,
    ):
        raise ProjectFileError(
            f"{bad!r} does not lead to a tensor - at `$.model.interface.returns`"
        )
    if bad := next(
        (argument.way for argument in interface.takes if not is_place(argument.way)),
        None,
    ):
        raise ProjectFileError(
            f"{bad!r} does not lead to a tensor - at `$.model.interface.takes`"
        )
    return OpenedModel(
        source,
        FrozenMap(record.arguments),
        tuple(
            InputSpec(tuple(spec.shape), spec.dtype, spec.name, spec.values)
            for spec in record.inputs
        ),
        record.folder,
        record.sha256,
        Interface(
            interface.model,
            tuple(
                Argument(
                    a.name,
                    tuple(a.shape),
                    a.dtype,
                    a.needed,
                    a.other,
                    a.by_place,
                    a.of,
                    a.way,
                )
                for a in interface.takes
            ),
            tuple(
                Returned(
                    returned.way,
                    tuple(returned.shape),
                    returned.dtype,
                    returned.detached,
                )
                for returned in interface.returns
            ),
            tuple(interface.modules),
            interface.parameters,
            interface.losses_in_training,
            interface.lazy,
            interface.quantised,
            interface.one_value_norm,
        ),
        record.example,
    )


def anchored(opened: OpenedModel, folder: Path) -> OpenedModel:
    """Return a model whose paths, relative to a folder or absolute, are absolute."""
    return replace(
        opened, folder=os.path.abspath(folder / opened.folder) if opened.folder else ""
    )


def loosened(opened: OpenedModel, relocate: Callable[[str], str]) -> OpenedModel:
    """Return a model with its folder replaced by `relocate` of it."""
    return replace(opened, folder=relocate(opened.folder) if opened.folder else "")
