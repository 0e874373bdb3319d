"""Differences between two values that share most of their content, compared by identity first. Qt-free."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

K = TypeVar("K")
T = TypeVar("T")

_ABSENT = object()


def differing(before: Mapping[K, Any], after: Mapping[K, Any]) -> set[K]:
    """Return the keys that were added, removed or changed.

    >>> sorted(differing({"a": 1, "b": 2, "c": 3}, {"b": 2, "c": 4, "d": 5}))
    ['a', 'c', 'd']
    """
    if before is after:
        return set()
    old = before.get
    changed = {
        key
        for key, value in after.items()
        if (was := old(key, _ABSENT)) is not value and was != value
    }
    if len(before) != len(after) or changed:
        changed.update(before.keys() - after.keys())
    return changed


def moved(before: tuple[T, ...], after: tuple[T, ...]) -> tuple[set[T], set[T]]:
    """Return removed and added items. Only the range between the first and the last difference is compared.

    >>> moved((1, 2, 3, 4), (1, 3, 5, 4))
    ({2}, {5})
    """
    if before is after:
        return set(), set()
    shorter = min(len(before), len(after))
    first = 0
    while first < shorter and before[first] is after[first]:
        first += 1
    last = 0
    while last < shorter - first and before[-1 - last] is after[-1 - last]:
        last += 1
    old, new = (
        set(before[first : len(before) - last]),
        set(after[first : len(after) - last]),
    )
    return old - new, new - old
