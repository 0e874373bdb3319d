"""Serialize frozen values as msgpack and decode them to a given class; no other class is ever constructed."""

from __future__ import annotations

from typing import Any, TypeVar, get_args, get_origin

import msgspec

from app.util.frozen import FrozenMap

T = TypeVar("T")


def packed(value: Any) -> bytes:
    """Encode a frozen dataclass as msgpack; floats keep every bit, inf and nan included."""
    return msgspec.msgpack.encode(value, enc_hook=_plain)


def unpacked(data: bytes, kind: type[T]) -> T:
    """Decode what `packed` gave, with tuples for lists. Raises ValueError for anything else."""
    return msgspec.msgpack.decode(data, type=kind, dec_hook=_made)


def _plain(value: Any) -> Any:
    if isinstance(value, FrozenMap):
        return dict(value)
    raise TypeError(f"{type(value).__name__} has no place here")


def _made(kind: Any, raw: Any) -> Any:
    if (get_origin(kind) or kind) is FrozenMap:
        made = {key: msgspec.convert(each, get_args(kind)[1]) for key, each in raw.items()}
        return FrozenMap({str(key): _frozen(each) for key, each in made.items()})
    raise TypeError(f"{kind} has no place here")


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
