"""Results that are more than tensors: named tuples, dicts, dataclasses, and nested ones."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator
from typing import Any

import torch

from app.features.importing.compute.tracing.proxies import PROXIES


def is_record(result: Any) -> bool:
    """Return whether a result is more than a tensor or a tuple of tensors."""
    flat = (
        result
        if isinstance(result, tuple | list) and not hasattr(result, "_fields")
        else (result,)
    )
    return result is not None and not all(
        isinstance(leaf, torch.Tensor) for leaf in flat
    )


def without_values(leaf: Any) -> Any:
    """Return a copy of an object, such as a cache, with the tensors in it on meta; the object itself if it has none."""
    copies: dict[int, Any] = {}
    todo, visited = [leaf], set[int]()
    while todo:
        current = todo.pop()
        if isinstance(current, torch.Tensor):
            copies[id(current)] = current.detach().to("meta")
        elif id(current) not in visited and not isinstance(current, type):
            visited.add(id(current))
            todo += (
                current.values()
                if isinstance(current, dict)
                else current
                if isinstance(current, list | tuple | set)
                else ()
            )
            todo += (
                vars(current).values()
                if hasattr(current, "__dict__") and not callable(current)
                else ()
            )
    return copy.deepcopy(leaf, copies) if copies else leaf


def plain(result: Any) -> Any:
    """Named tuples, ordered dicts and dataclasses as tuples and dicts."""
    if type(result) in PROXIES:
        return result
    if isinstance(result, tuple):
        return tuple(map(plain, result))
    if isinstance(result, list):
        return [plain(item) for item in result]
    if isinstance(result, dict):
        return {key: plain(value) for key, value in result.items()}
    if _is_dataclass(result):
        return {name: plain(getattr(result, name)) for name in _fields(result)}
    return result


def refilled(result: Any, leaves: Iterator[Any]) -> Any:
    """Replace the leaves of nested values, in order."""
    if type(result) in PROXIES:
        return next(leaves)
    if isinstance(result, tuple):
        items = [refilled(item, leaves) for item in result]
        return type(result)(*items) if hasattr(result, "_fields") else tuple(items)
    if isinstance(result, list):
        return [refilled(item, leaves) for item in result]
    if isinstance(result, dict):
        changed = copy.copy(result)
        for key, value in result.items():
            changed[key] = refilled(value, leaves)
            if (
                isinstance(key, str) and getattr(result, key, None) is value
            ):  # a record that is a dict too
                object.__setattr__(changed, key, changed[key])
        return changed
    if _is_dataclass(result):
        record = copy.copy(result)
        for name in _fields(result):
            object.__setattr__(record, name, refilled(getattr(result, name), leaves))
        return record
    return next(leaves)


def _is_dataclass(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def _fields(record: Any) -> list[str]:
    return [
        field.name
        for field in dataclasses.fields(record)
        if getattr(record, field.name) is not None
    ]
