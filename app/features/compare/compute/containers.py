"""Map over the tensors in the inputs and outputs of a module; containers are rebuilt with their types."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor, nn

DEEPEST = 12


def replace_tensors(
    value: Any, change: Callable[[Tensor], Tensor], depth: int = 0
) -> Any:
    """Return a value with every strided tensor replaced, in lists, tuples, mappings and dataclasses; the same object
    where none changed. Other objects are left as they are."""
    if isinstance(value, Tensor):
        return change(value) if _is_plain(value) else value
    if (
        depth > DEEPEST
        or value is None
        or isinstance(value, str | bytes | int | float | type | nn.Module)
    ):
        return value
    if isinstance(value, list | tuple):
        parts = [replace_tensors(element, change, depth + 1) for element in value]
        if all(element is other for element, other in zip(parts, value, strict=True)):
            return value
        if isinstance(value, list):
            return parts
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if isinstance(value, Mapping):
        changed = {
            key: replace_tensors(element, change, depth + 1)
            for key, element in value.items()
        }
        if all(changed[key] is value[key] for key in changed):
            return value
        if type(value) is dict:
            return changed
        fresh: Any = copy.copy(
            value
        )  # a subclass, such as the ModelOutput of transformers
        for key, child in changed.items():
            fresh[key] = child
        return fresh
    if is_dataclass(value) and not isinstance(value, type):
        attributes = {
            field.name: getattr(value, field.name, None) for field in fields(value)
        }
        changed = {
            name: replace_tensors(attribute, change, depth + 1)
            for name, attribute in attributes.items()
        }
        if all(changed[name] is attributes[name] for name in changed):
            return value
        fresh = copy.copy(value)
        for name, child in changed.items():
            object.__setattr__(fresh, name, child)
        return fresh
    return value


def in_order(
    module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> list[str]:
    """Return the names of keyword arguments in the order in which forward declares them."""
    if len(kwargs) < 2:
        return [*kwargs]
    try:
        declared = [*inspect.signature(module.forward).parameters]
    except (TypeError, ValueError):
        declared = []
    return sorted(
        kwargs,
        key=lambda name: declared.index(name) if name in declared else len(declared),
    )


def _is_plain(tensor: Tensor) -> bool:
    return (
        tensor.layout is torch.strided
        and not tensor.is_nested
        and not tensor.is_quantized
    )
