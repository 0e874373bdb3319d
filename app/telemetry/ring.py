"""Lock-free queue between one writer and one reader that never blocks the writer.

The training thread appends at every step; the window drains it when it repaints.
"""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class Ring(Generic[T]):
    """The newest `capacity` items; `lost` counts older ones that were dropped unread."""

    def __init__(self, capacity: int = 1_000_000) -> None:
        # A deque's append and popleft are atomic.
        self._items: deque[T] = deque(maxlen=capacity)
        self.lost = 0

    def __len__(self) -> int:
        return len(self._items)

    def append(self, item: T) -> None:
        if len(self._items) == self._items.maxlen:
            self.lost += 1
        self._items.append(item)

    def drain(self) -> list[T]:
        """Remove and return the queued items, oldest first; items added meanwhile stay."""
        items: list[T] = []
        for _ in range(len(self._items)):
            try:
                items.append(self._items.popleft())
            except IndexError:
                # The ring overflowed meanwhile and dropped items that were counted.
                break
        return items
