"""Serialise frozen values for another process, sharing what was sent before.

Every value is plain msgpack data or a list that begins with a tag. Only frozen structs, enums and exceptions of the
program are instantiated, and nothing received is executed; a module is imported for it only if it is IMPORTABLE.
`Shared` values are sent by reference once the other end has them, and a long container as its differences from the
newest one like it: an edit sends only what changed, and an answer that contains the request's graph refers to that very
object.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar, Union

import msgspec
import numpy as np
from msgspec import Struct

from app.builder.catalog import custom
from app.builder.catalog.catalog import Catalog, OpSpec, catalog
from app.builder.literals import AUTO
from app.builder.results import Analysis
from app.builder.results import known as known_values
from app.util import gc_pause
from app.util.errors import CodedError
from app.util.frozen import FrozenMap, Shared
from app.util.resources import PROGRAM

# Modules that may be imported because a message names them; none leads to torch. All others have been imported by who
# can ask for what they define.
IMPORTABLE = re.compile(
    r"engine\.requests\.[\w.]+|features\.\w+\.values|[\w.]+\.errors"
)
LONG = 32  # a container of as many entries is sent once and by reference afterwards, as `Shared` values are
FEW = 4  # one in this many entries may differ in a container that is sent as its differences from another
BULK = 1000  # structs of one class that are decoded in one go: longer would hold the window's thread
MOST = 500_000  # entries of the tables before both ends clear them
# A struct in a tuple of them, such as a node of a tape, has this weight: 2 kB, where other entries take a hundred
# bytes. One value never fills more than a tenth, or it would be sent again with every request.
STRUCT = 25
EVENTS = f"{PROGRAM}.training.events"

S = TypeVar("S")

_PLAIN = frozenset((bool, float, bytes, type(None)))
_KINDS = "fiubc"  # of numpy's dtypes that travel
_BIG = 1 << 63


class NotAValueError(CodedError, ValueError):
    """A value that cannot be sent, or data that is no value."""


@cache
def _class(name: str) -> type:
    """Return the class `module:Name` below `app`. Raises NotAValueError if it is not serialisable."""
    module, _, kind = name.partition(":")
    full_name = f"{PROGRAM}.{module}"
    if full_name not in sys.modules and IMPORTABLE.fullmatch(module):
        with contextlib.suppress(ImportError):
            import_module(full_name)
    value = getattr(sys.modules.get(full_name), kind, None)
    if isinstance(value, type) and value.__module__ == full_name and _travels(value):
        return value
    raise NotAValueError(f"{name!r} is not a message class")


def _is_loaded(name: str) -> bool:
    """Return whether this process has, or may import, the module of a class: else nobody here can look for it."""
    module = name.partition(":")[0]
    return f"{PROGRAM}.{module}" in sys.modules or bool(IMPORTABLE.fullmatch(module))


def _value_class(name: str) -> type:
    kind = _class(name)
    if issubclass(kind, Exception):
        raise NotAValueError(f"{name!r} is an exception, not a value")
    return kind


def _error_class(name: str) -> type[Exception]:
    kind = _class(name)
    if not issubclass(kind, Exception):
        raise NotAValueError(f"{name!r} is not an exception")
    return kind


def _travels(kind: type) -> bool:
    if issubclass(kind, Struct):
        return kind.__struct_config__.frozen
    return issubclass(kind, Enum | Exception)


@cache
def _name(kind: Any) -> str:
    """`module:Name` of a class. Raises NotAValueError for one that may not travel."""
    name = f"{kind.__module__.removeprefix(f'{PROGRAM}.')}:{kind.__qualname__}"
    if not kind.__module__.startswith(f"{PROGRAM}.") or _class(name) is not kind:
        raise NotAValueError(f"a {kind.__qualname__} cannot be sent to another process")
    return name


@cache
def _fields(kind: Any) -> tuple[str, ...]:
    names: tuple[str, ...] = kind.__struct_fields__
    return names


def _is_in_bulk(kind: Any) -> bool:
    """Return whether many values of a class travel together: those that are written as arrays."""
    return issubclass(kind, Struct) and bool(kind.__struct_config__.array_like)


class _Table:
    """Values that both ends have, by number and by identity. Every object in it is kept alive, so that no `id` is
    reused."""

    def __init__(self) -> None:
        self.numbers: dict[int, int] = {}
        self.objects: dict[int, Any] = {}
        self.newest: dict[
            tuple[Any, ...], int
        ] = {}  # of the long containers that were sent, by their likeness
        self.weight = 0

    def put(self, number: int, value: Any) -> None:
        self.objects[number] = value
        self.numbers[id(value)] = number
        self.weight += _weight(value)

    def drop(self, number: int) -> None:
        self.numbers.pop(id(self.objects.pop(number, None)), None)


def _weight(value: Any) -> int:
    """Return how many entries a remembered value counts as."""
    if type(value) not in _LONG_KINDS:
        return 1
    struct = type(value) is tuple and bool(value) and _is_in_bulk(type(value[0]))
    return (
        max(len(value), min(len(value) * STRUCT, MOST // 10)) if struct else len(value)
    )


def _is_sent_once(value: Any) -> bool:
    """Return whether a container is never sent again: events of a run."""
    return (
        type(value) is tuple
        and isinstance(value[0], Struct)
        and value[0].__module__ == EVENTS
    )


def _text(value: str) -> Any:
    """Return text as plain data: msgpack has no lone surrogates, which occur in file names that are not UTF-8."""
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return ["text", value.encode("utf-8", "surrogatepass")]
    return value


class Codec:
    """One end's tables of sent and received values. `first` is 0 at the client's end and 1 at the server's.

    `encode` may be called from any thread that holds `lock` until its result is sent; `decode` is for one thread.
    """

    def __init__(self, first: int) -> None:
        self._table, self._before = _Table(), _Table()
        self._counter = itertools.count(first, 2)
        self._asks = first == 0
        self.generation = 0
        self._analysis: Analysis | None = None  # the newest that was received
        self._fresh: list[int] = []
        self.lock = (
            threading.RLock()
        )  # of the sender: from encoding until the data is sent
        self._guard = (
            threading.RLock()
        )  # of the tables; never held while waiting for a pipe

    # -- sending

    def encode(self, value: Any) -> tuple[int, Any]:
        """Return the generation and plain data of a value. On NotAValueError the table is unchanged."""
        with self._guard:
            if self._asks and self.full:
                self._renew(self.generation + 1)
            self._fresh = []
            try:
                return self.generation, self._plain(value)
            except BaseException:
                self.take_back()
                raise

    def take_back(self) -> None:
        """Undo the last `encode`, whose data was not sent."""
        with self._guard:
            for number in self._fresh:
                self._table.drop(number)
            self._fresh = []

    @property
    def full(self) -> bool:
        """Return whether both ends should clear their tables. The client decides, at the latest with its next request;
        messages that are still under way refer to the previous tables."""
        return self._table.weight > MOST

    def renewed(self, generation: int | None = None) -> int:
        """Clear the tables of both ends; the client sends the new generation to the server."""
        with self._guard:
            if generation is None or generation > self.generation:
                self._renew(self.generation + 1 if generation is None else generation)
            return self.generation

    def _renew(self, generation: int) -> None:
        self._before, self._table, self.generation = self._table, _Table(), generation

    def _plain(self, value: Any) -> Any:
        kind: Any = type(value)
        if kind in _PLAIN:
            return value
        if kind is str:
            return value if value.isascii() else _text(value)
        if kind is int:
            return value if -_BIG <= value < _BIG else ["big", str(value)]
        number = self._table.numbers.get(id(value))
        if number is not None:
            return ["ref", number]
        encode = _ENCODE.get(kind)
        if encode is not None:
            shared = kind is Catalog or (
                kind in _LONG_KINDS and len(value) >= LONG and not _is_sent_once(value)
            )
            likeness = _likeness(kind, value) if shared else None
            data = self._differences(likeness, value) if likeness is not None else None
            if data is None:
                data = encode(self, value)
            elif data[0] == "ref":
                return data
        elif kind.__module__ == "numpy" and isinstance(value, np.ndarray):
            return self._array(value)
        elif value is AUTO:
            return ["auto"]
        elif value is Ellipsis:  # of an index
            return ["ellipsis"]
        elif isinstance(value, Enum):
            return ["enum", _name(kind), value.name]
        elif isinstance(value, Path):
            return ["path", self._plain(str(value))]
        elif isinstance(value, BaseException):
            return self._error(value)
        else:
            data, shared = self._object(kind, value), issubclass(kind, Shared)
        if not shared:
            return data
        number = next(self._counter)
        self._table.put(number, value)
        self._fresh.append(number)
        if encode is not None and likeness is not None:
            self._table.newest[likeness] = number
        return ["def", number, data]

    def _differences(self, likeness: tuple[Any, ...], value: Any) -> list[Any] | None:
        """Encode a long container as the number of a similar one and its differences; None if they differ much."""
        number = self._table.newest.get(likeness, -1)
        base, kind = self._table.objects.get(number), likeness[0]
        if base is None:
            return None
        parts: Iterator[tuple[Any, ...]]
        if kind is tuple:
            parts = (
                (index, new)
                for index, (old, new) in enumerate(zip(base, value, strict=True))
                if old is not new
            )
        elif kind is frozenset:
            parts = ((entry,) for entry in base ^ value)
        elif list(base) == list(value):
            parts = ((key, new) for key, new in value.items() if base[key] is not new)
        else:
            return None
        few = len(value) // FEW
        changed = list(itertools.islice(parts, few + 1))
        if len(changed) > few:
            return None
        if not changed and kind is not dict:  # a dict may be changed at the other end
            return ["ref", number]
        return [
            "like",
            number,
            *[
                self._plain(field_value)
                for difference in changed
                for field_value in difference
            ],
        ]

    def _object(self, kind: Any, value: Any) -> Any:
        if kind is OpSpec and value.key in catalog() and catalog()[value.key] is value:
            return ["op", value.key]
        if kind is OpSpec and (registration := custom.registered(value)) is not None:
            return [
                "custom",
                *map(self._plain, registration),
                *[self._plain(getattr(value, name)) for name in _fields(kind)],
            ]
        if kind is Analysis:
            return ["analysis", *(self._plain(getattr(value, name)) for name in _SENT)]
        return [
            "is",
            _name(kind),
            *[self._plain(getattr(value, name)) for name in _fields(kind)],
        ]

    def _error(self, error: BaseException) -> Any:
        """Return an exception of ours with its attributes; of any other, its class name and its text."""
        try:
            kind: Any = type(error)
            name = _name(kind)
        except NotAValueError:
            return ["raised", type(error).__name__, self._plain(str(error))]
        state = {}
        for key, value in vars(error).items():
            try:
                state[key] = self._plain(value)
            except NotAValueError:
                state[key] = None
        args = [
            self._plain(argument if type(argument) in _PLAIN else str(argument))
            for argument in error.args
        ]
        return ["error", name, args, state, self._plain(str(error))]

    def _sequence(self, value: tuple[Any, ...] | list[Any]) -> Any:
        kind: Any = type(value[0]) if value else None
        family = _family(kind)
        if (
            family
            and len(value) >= (LONG if len(family) == 1 else 1)
            and family.issuperset(map(type, value))
        ):
            parts = (
                value[start : start + BULK] for start in range(0, len(value), BULK)
            )
            with contextlib.suppress(
                UnicodeEncodeError
            ):  # text with a lone surrogate is encoded below
                return ["bulk", _name(kind), *map(packed, parts)]
        return [
            "tuple" if type(value) is tuple else "list",
            *[self._plain(entry) for entry in value],
        ]

    def _mapping(self, value: Mapping[Any, Any]) -> Any:
        data: list[Any] = ["map" if type(value) is FrozenMap else "dict"]
        for key, entry in value.items():
            data.append(self._plain(key))
            data.append(self._plain(entry))
        return data

    def _array(self, value: np.ndarray) -> Any:
        if value.dtype.kind not in _KINDS:
            raise NotAValueError(
                f"an array of {value.dtype} cannot be sent to another process"
            )
        return ["array", value.dtype.str, list(value.shape), value.tobytes()]

    def _catalog(self, value: Catalog) -> Any:
        base = catalog()
        return [
            "catalog",
            value.torch_version,
            [
                key if base.get(key) is spec else self._plain(spec)
                for key, spec in value.items()
            ],
        ]

    # -- receiving

    def decode(self, generation: int, data: Any) -> Any:
        """Return the value that `encode` serialised at the other end. Raises NotAValueError."""
        self.renewed(generation)
        table = self._table if generation == self.generation else self._before
        try:
            with gc_pause.put_off():
                return self._value(data, table)
        except NotAValueError:
            raise
        except (
            KeyError,
            IndexError,
            TypeError,
            ValueError,
            AttributeError,
            msgspec.DecodeError,
        ) as error:
            raise NotAValueError(f"{type(error).__name__}: {error}") from error

    def _value(self, data: Any, table: _Table) -> Any:
        if type(data) is not list:
            return data
        tag = data[0]
        if tag == "ref":
            return table.objects[data[1]]
        if tag == "def":
            value = self._value(data[2], table)
            with self._guard:
                table.put(data[1], value)
            return value
        if tag == "is":
            return _value_class(data[1])(
                *[self._value(field_data, table) for field_data in data[2:]]
            )
        if tag == "map":
            return FrozenMap(_pairs([self._value(entry, table) for entry in data[1:]]))
        if tag == "dict":
            return dict(_pairs([self._value(entry, table) for entry in data[1:]]))
        if tag == "like":
            return _changed(
                table.objects[data[1]],
                [self._value(entry, table) for entry in data[2:]],
            )
        make = _CONTAINERS.get(tag)
        if make is not None:
            return make([self._value(entry, table) for entry in data[1:]])
        return self._rare(tag, data, table)

    def _rare(self, tag: str, data: list[Any], table: _Table) -> Any:
        if tag == "op":
            return catalog()[data[1]]
        if tag == "custom":
            file, layer, *values = (self._value(entry, table) for entry in data[1:])
            spec = OpSpec(*values)
            custom.register(spec, file, layer)
            return spec
        if tag == "analysis":
            self._analysis = _analysis(
                self._analysis, *(self._value(entry, table) for entry in data[1:])
            )
            return self._analysis
        if tag == "catalog":
            base = catalog()
            specs = (
                base[spec_data]
                if type(spec_data) is str
                else self._value(spec_data, table)
                for spec_data in data[2]
            )
            return Catalog(tuple(specs), data[1])
        if tag == "bulk":
            return tuple(_bulk(_class(data[1]), data[2:]))
        if tag == "array":
            dtype = np.dtype(data[1])
            if dtype.kind not in _KINDS:
                raise NotAValueError(f"{data[1]!r} is not an array of numbers")
            return np.frombuffer(data[3], dtype).reshape(data[2]).copy()
        if tag == "auto":
            return AUTO
        if tag == "ellipsis":
            return Ellipsis
        if tag == "text":
            return data[1].decode("utf-8", "surrogatepass")
        if tag == "big":
            return int(data[1])
        if tag == "path":
            return Path(self._value(data[1], table))
        if tag == "enum":
            return _class(data[1])[data[2]]  # type: ignore[index]
        if tag == "error" and not _is_loaded(data[1]):
            return RemoteError(data[1].partition(":")[2], self._value(data[4], table))
        if tag == "error":
            args = tuple(self._value(argument, table) for argument in data[2])
            error: Any = _error_class(data[1]).__new__(_error_class(data[1]), *args)
            error.args = args
            error.__dict__.update(
                {
                    key: self._value(attribute, table)
                    for key, attribute in data[3].items()
                }
            )
            return error
        if tag == "raised":
            return RemoteError(data[1], self._value(data[2], table))
        raise NotAValueError(f"{tag!r} is not a kind of value")


class RemoteError(CodedError):
    """An exception that another library raised in an engine: the name of its class, `kind`, and its text."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


# Of an analysis what cannot be worked out from the rest; see `results.known`.
_SENT = (
    "graph",
    "source",
    "walk",
    "results",
    "problems",
    "live",
    "assumed",
    "milliseconds",
    "partial",
    "path",
    "inside",
    "quiet",
    "cost",
)


def _analysis(
    before: Analysis | None,
    graph: Any,
    source: Any,
    walk: Any,
    results: Any,
    *rest: Any,
) -> Analysis:
    bare = (
        known_values(graph, walk, results, before)
        if walk is not None
        else Analysis(graph, source)
    )
    values = dict(zip(_SENT, (graph, source, walk, results, *rest), strict=True))
    return Analysis(
        values=bare.values, resolved=bare.resolved, parameters=bare.parameters, **values
    )


def _likeness(kind: Any, value: Any) -> tuple[Any, ...] | None:
    """Return what long containers have in common of which one is sent as its differences from the other; None for
    those that are sent whole."""
    if kind is Catalog or kind is frozenset:
        return (kind,) if kind is frozenset else None
    first = value[0] if kind is tuple else next(iter(value.values()))
    return (
        None if _is_in_bulk(type(first)) else (kind, len(value), type(first))
    )  # structs go in bulk


def _changed(base: Any, parts: list[Any]) -> Any:
    """Return a container of the kind of `base`, with places or keys and their new values, or a set's other entries."""
    if type(base) is frozenset:
        return base ^ frozenset(parts)
    changed: Any = list(base) if type(base) is tuple else dict(base)
    for key, value in _pairs(parts):
        changed[key] = value
    return changed if type(base) is dict else type(base)(changed)


def _pairs(items: list[Any]) -> Iterator[tuple[Any, Any]]:
    return zip(items[::2], items[1::2], strict=True)


@cache
def _family(kind: Any) -> frozenset[type]:
    """Return the structs that are encoded together with those of a class: all of its module if they are tagged."""
    if kind is None or not _is_in_bulk(kind):
        return frozenset()
    if kind.__struct_config__.tag is None:
        return frozenset((kind,))
    classes = (
        value
        for value in vars(sys.modules[kind.__module__]).values()
        if isinstance(value, type)
    )
    return frozenset(
        struct
        for struct in classes
        if issubclass(struct, Struct)
        and struct.__struct_config__.tag
        and struct.__module__ == kind.__module__
    )


@cache
def _bulk_encoder() -> msgspec.msgpack.Encoder:
    return msgspec.msgpack.Encoder(enc_hook=_as_dict)


@cache
def _bulk_decoder(kind: Any) -> msgspec.msgpack.Decoder[tuple[Any, ...]]:
    structs: Any = Union[tuple(_family(kind))]  # noqa: UP007  known only here
    return msgspec.msgpack.Decoder(tuple[structs, ...], dec_hook=_from_dict)


def packed(structs: Sequence[Any]) -> bytes:
    """Encode structs of one class or family as bytes, for many that are sent once: no table remembers them."""
    return _bulk_encoder().encode(structs)


def unpacked(kind: type[S], data: bytes) -> tuple[S, ...]:
    """Decode the result of `packed`. Raises msgspec.DecodeError."""
    decoder: msgspec.msgpack.Decoder[tuple[S, ...]] = _bulk_decoder(kind)  # type: ignore[arg-type]
    return decoder.decode(data)


def _as_dict(value: Any) -> Any:
    if isinstance(value, FrozenMap):
        return dict(value)
    raise TypeError(f"a {type(value).__name__} cannot be sent to another process")


def _bulk(kind: type, parts: list[bytes]) -> Iterator[Any]:
    """Decode structs of one class or family; other threads of this process can run between two parts."""
    for chunk in parts:
        yield from unpacked(kind, chunk)
        time.sleep(0)


def _from_dict(kind: Any, raw: Any) -> Any:
    return FrozenMap({key: _frozen(entry) for key, entry in raw.items()})


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


_LONG_KINDS = (tuple, FrozenMap, dict, frozenset)
_CONTAINERS: dict[str, Callable[[list[Any]], Any]] = {
    "tuple": tuple,
    "list": list,
    "frozenset": frozenset,
    "set": set,
    "complex": lambda parts: complex(*parts),
}
_ENCODE: dict[type, Callable[[Codec, Any], Any]] = {
    tuple: Codec._sequence,
    list: Codec._sequence,
    frozenset: lambda codec, value: ["frozenset", *map(codec._plain, value)],
    set: lambda codec, value: ["set", *map(codec._plain, value)],
    complex: lambda _codec, value: ["complex", value.real, value.imag],
    FrozenMap: Codec._mapping,
    dict: Codec._mapping,
    Catalog: Codec._catalog,
}
