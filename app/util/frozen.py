"""Values that never change, so that every part of a project can be compared, hashed and shared."""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from typing import Any, TypeVar

from msgspec import Struct

K = TypeVar("K")
V = TypeVar("V")


class FrozenMap(Mapping[K, V]):
    """A mapping that never changes; edits return a new one and keep the insertion order.

    >>> a = FrozenMap({"x": 1})
    >>> a.set("y", 2)
    FrozenMap({'x': 1, 'y': 2})
    >>> a.without("x"), a["x"]
    (FrozenMap({}), 1)
    """

    __slots__ = ("_items", "_hash")

    def __init__(
        self, items: Mapping[K, V] | Iterable[tuple[K, V]] = (), **named: V
    ) -> None:
        self._items: dict[Any, Any] = dict(items, **named)
        self._hash: int | None = None

    def __getitem__(self, key: K) -> V:
        return self._items[key]

    def __iter__(self) -> Iterator[K]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, key: object) -> bool:
        return key in self._items

    # `Mapping` derives these from the methods above key by key; a dict is faster.

    def keys(self) -> KeysView[K]:
        return self._items.keys()

    def values(self) -> ValuesView[V]:
        return self._items.values()

    def items(self) -> ItemsView[K, V]:
        return self._items.items()

    def get(self, key: Any, default: Any = None) -> Any:
        return self._items.get(key, default)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, FrozenMap):
            return self is other or self._items == other._items
        return NotImplemented

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self._items.items()))
        return self._hash

    def __repr__(self) -> str:
        return f"FrozenMap({self._items!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (FrozenMap, (self._items,))

    def set(self, key: K, value: V) -> FrozenMap[K, V]:
        """Return the mapping with `key` set."""
        return FrozenMap({**self._items, key: value})

    def update(self, other: Mapping[K, V]) -> FrozenMap[K, V]:
        """Return the mapping with every key of `other` set."""
        return FrozenMap({**self._items, **other})

    def without(self, *keys: K) -> FrozenMap[K, V]:
        """Return the mapping without `keys`; absent keys are no error."""
        gone = set(keys)
        return FrozenMap({k: v for k, v in self._items.items() if k not in gone})


class Shared(Struct, frozen=True):
    """Base class of values that many others contain: another process gets each once, and a reference afterwards."""


def equal_in(names: Iterable[str], first: object, second: object) -> bool:
    """Return whether two values are of one class and equal in these fields."""
    return type(first) is type(second) and all(
        getattr(first, name) == getattr(second, name) for name in names
    )
