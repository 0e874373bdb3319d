"""Records of an opened model (own code, no drawing) in a project file. They are data: nothing is run."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from app.project.sheet_records import ProjectFileError
from app.source.interface import Interface, Text, is_place, is_way
from app.sources.opened import OpenedModel
from app.sources.spec import InputSpec, SourceError, parse_source
from app.util.frozen import FrozenMap


class OpenedRecord(Struct, forbid_unknown_fields=True):
    """The fields of an OpenedModel, with the source as its text."""

    source: Text
    interface: Interface
    arguments: dict[str, Any] = {}
    inputs: Annotated[tuple[InputSpec, ...], Meta(max_length=1_000)] = ()
    folder: Annotated[str, Meta(max_length=4096)] = ""
    sha256: Annotated[str, Meta(pattern="^([0-9a-f]{64})?$")] = ""
    example: Annotated[str, Meta(max_length=4096)] = ""


def opened_record(opened: OpenedModel) -> dict[str, Any]:
    """Plain data of an OpenedModel."""
    values = {
        **msgspec.structs.asdict(opened),
        "source": str(opened.source),
        "arguments": dict(opened.arguments),
    }
    plain: dict[str, Any] = msgspec.to_builtins(OpenedRecord(**values))
    return plain


def opened_from(record: OpenedRecord) -> OpenedModel:
    """Convert a record to its value. Raises ProjectFileError."""
    try:
        source = parse_source(record.source)
    except SourceError as error:
        raise ProjectFileError(f"{error} - at `$.model.source`") from error
    for field, tensors, leads in (
        ("returns", record.interface.returns, is_way),
        ("takes", record.interface.takes, is_place),
    ):
        if bad := next((item.way for item in tensors if not leads(item.way)), None):
            raise ProjectFileError(
                f"{bad!r} does not lead to a tensor - at `$.model.interface.{field}`"
            )
    values = {
        **msgspec.structs.asdict(record),
        "source": source,
        "arguments": FrozenMap(record.arguments),
    }
    return OpenedModel(**values)


def anchored(opened: OpenedModel, folder: Path) -> OpenedModel:
    """Return a model whose paths, relative to a folder or absolute, are absolute."""
    return replace(
        opened, folder=os.path.abspath(folder / opened.folder) if opened.folder else ""
    )


def loosened(opened: OpenedModel, relocate: Callable[[str], str]) -> OpenedModel:
    """Return a model with its folder replaced by `relocate` of it."""
    return replace(opened, folder=relocate(opened.folder) if opened.folder else "")
