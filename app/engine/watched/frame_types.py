"""Decode frames by their declarations in `tapedeck.frames`, and find the files of frames of a script's ranks."""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from pathlib import Path
from types import UnionType
from typing import (
    Annotated,
    Any,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
from msgspec import Struct

from app.util import regular_files
from tapedeck import frames
from tapedeck.frames import FRAMES, MaxLength, Number, Script, Text

MOST_NAMES = 100  # fields of one prefix
LONGEST = 1 << 20  # bytes of a first line
KINDS: dict[str, type[Any]] = {frames.event_of(kind): kind for kind in frames.KINDS}


class _Kind(Struct):
    event: str


_kind_decoder = msgspec.json.Decoder(_Kind)
_fields_decoder = msgspec.json.Decoder(dict[str, Any])


def decode(line: bytes | str) -> Any:
    """Return the frame that a line is, None of an unknown kind.

    Raises ValueError, whose text quotes nothing of the line.
    """
    try:
        event = _kind_decoder.decode(line).event
        if event not in KINDS:
            return None
        record = _decoder(event).decode(line)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise ValueError(str(error)) from error
    kind = KINDS[event]
    return kind(*(getattr(record, name) for name in kind._fields))


def is_frame(line: bytes | str) -> bool:
    """Return whether a line names a known kind of frame, well-formed or not: another is a print of the script."""
    try:
        return _kind_decoder.decode(line).event in KINDS
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False


def first_frame(line: bytes) -> Script | None:
    """Return the first frame of a script, None of another line. Raises ValueError."""
    frame = decode(line)
    return frame if isinstance(frame, Script) else None


def numbers_named(
    line: bytes | str, prefix: str, without: tuple[str, ...] = ()
) -> dict[str, float | None]:
    """Return the fields of a line with a prefix, without it. Raises ValueError."""
    try:
        fields = _fields_decoder.decode(line)
        named = {
            name.removeprefix(prefix): value
            for name, value in fields.items()
            if name.startswith(prefix) and name not in without
        }
        return msgspec.convert(
            named,
            Annotated[
                dict[_bounded(Text), _bounded(Number)],  # type: ignore[misc]
                msgspec.Meta(max_length=MOST_NAMES),
            ],
        )
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise ValueError(str(error)) from error


@cache
def _decoder(event: str) -> msgspec.json.Decoder[Any]:
    kind = KINDS[event]
    hints = get_type_hints(kind, include_extras=True)
    defaults = kind._field_defaults
    fields = [
        (name, _bounded(hints[name]), *([defaults[name]] if name in defaults else []))
        for name in kind._fields
    ]
    return msgspec.json.Decoder(msgspec.defstruct(kind.__name__, fields))


def _bounded(hint: Any) -> Any:
    """Return a type with its bounds in msgspec's form."""
    if get_origin(hint) in (Union, UnionType):
        return Union[tuple(_bounded(argument) for argument in get_args(hint))]  # noqa: UP007  of a tuple
    if get_origin(hint) is list:
        return list[_bounded(get_args(hint)[0])]  # type: ignore[misc]
    if get_origin(hint) is not Annotated:
        return hint
    base, bounds = get_args(hint)
    if isinstance(bounds, MaxLength):
        return Annotated[_bounded(base), msgspec.Meta(max_length=bounds.most)]
    return Annotated[base, msgspec.Meta(ge=base(bounds.least), le=base(bounds.most))]


def script_of(path: Path) -> Script | None:
    """Return the first frame of the script whose own file of frames this is; None of any other file."""
    with suppress(OSError, ValueError):
        line, end, _ = regular_files.read_private(path, LONGEST).partition(b"\n")
        return first_frame(line) if end else None
    return None


def ranks_of(path: Path, script: Script) -> dict[int, Path]:
    """Return the frames of all ranks that are known by now, by rank; `script` is the first frame of `path`.

    Empty for a script that has one process.
    """
    if not script.job:
        return {}
    above = path.parent.parent
    ranks = {}
    for file in (
        *sorted(above.glob(f"*/{FRAMES}")),
        above / FRAMES,
        *path.parent.glob(f"*/{FRAMES}"),
        path,
    ):
        other = script_of(file)
        if other is not None and other.job == script.job:
            ranks[other.rank] = file
    return dict(sorted(ranks.items()))
