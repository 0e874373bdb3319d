"""Boxes and groups of a scene that are made when somebody looks at them: most of a large graph is never seen near."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Generic, TypeVar

from app.layout import Rect

T = TypeVar("T")


class Parts(Mapping[str, T], Generic[T]):
    """Items by key; one that is asked for and not there yet is made. `made` are those that are."""

    def __init__(self, rects: Mapping[str, Rect], make: Callable[[str], T]) -> None:
        self.rects = rects
        self.made: dict[str, T] = {}
        self._make = make

    def __getitem__(self, key: str) -> T:
        item = self.made.get(key)
        if item is None:
            if key not in self.rects:
                raise KeyError(key)
            item = self.made[key] = self._make(key)
        return item

    def __contains__(self, key: object) -> bool:
        return key in self.rects

    def __iter__(self) -> Iterator[str]:
        return iter(self.rects)

    def __len__(self) -> int:
        return len(self.rects)
