"""A bounded cache that evicts the least recently used value."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

V = TypeVar("V")


class LruCache(Generic[V]):
    """Cache the most recently used values, at most `maxsize` of them, or of that total `size`.

    Keys are compared by value; `Same` compares by identity. Thread-safe. None is no value.

    >>> squares: LruCache[int] = LruCache(2)
    >>> [squares.get_or_compute(n, lambda n=n: n * n) for n in (2, 3, 2, 4)]
    [4, 9, 4, 16]
    >>> squares.get(2), squares.get(3)
    (4, None)
    """

    def __init__(
        self, maxsize: float, size: Callable[[V], float] = lambda value: 1
    ) -> None:
        self._maxsize, self._size = maxsize, size
        self._kept: OrderedDict[Hashable, V] = OrderedDict()
        self._total = 0.0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: Hashable) -> V | None:
        """Return the value of a key, None if it is not cached."""
        with self._lock:
            value = self._kept.get(key)
            if value is not None:
                self._kept.move_to_end(key)
            return value

    def put(self, key: Hashable, value: V) -> None:
        """Cache a value, evicting the least recently used ones, but never the value itself."""
        with self._lock:
            self._put(key, value)

    def get_or_compute(self, key: Hashable, compute: Callable[[], V]) -> V:
        """Return the value of a key, computed if it is not cached. Concurrent threads get the same value."""
        value = self.get(key)
        if value is not None:
            return value
        value = compute()
        with self._lock:
            first = self._kept.get(key)
            if first is not None:
                return first
            self._put(key, value)
        return value

    def clear(self) -> None:
        """Forget all."""
        with self._lock:
            self._kept.clear()
            self._total = 0.0

    def _put(self, key: Hashable, value: V) -> None:
        before = self._kept.pop(key, None)
        self._total += self._size(value) - (
            self._size(before) if before is not None else 0
        )
        self._kept[key] = value
        while self._total > self._maxsize and len(self._kept) > 1:
            self._total -= self._size(self._kept.popitem(last=False)[1])


class Same:
    """A key that is equal for the same objects alone, and keeps them, so that no other takes their identity.

    >>> one = [1]
    >>> Same(one) == Same(one), Same(one) == Same([1])
    (True, False)
    """

    __slots__ = ("_objects", "_hash")

    def __init__(self, *objects: Any) -> None:
        self._objects = objects
        self._hash = hash(tuple(map(id, objects)))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Same)
            and len(self._objects) == len(other._objects)
            and all(
                mine is theirs
                for mine, theirs in zip(self._objects, other._objects, strict=True)
            )
        )
