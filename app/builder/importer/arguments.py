"""Arguments of calls in a form that a graph can hold: numbers of numpy, lists that another call gave, and `len`."""

from __future__ import annotations

import builtins
import contextlib
import operator
from collections.abc import Callable, Iterator
from typing import Any

import torch

from app.builder.importer.values import PROXIES, ValueProxy


def plain_number(value: Any) -> Any:
    """A number of numpy as one of Python; everything else as it is."""
    return value.item() if type(value).__module__ == "numpy" and getattr(value, "shape", None) == () else value


def opened(kind: str, target: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arguments in which tensors that one call gave together stand one by one: `torch.stack(x.unbind(1))`."""
    if kind == "call_module" or target in (operator.getitem, getattr):
        return args
    return tuple(map(items_of, args))


def items_of(value: Any) -> Any:
    """The items of several tensors that one call gave; everything else as it is."""
    known = value.known if type(value) is ValueProxy else None
    if not isinstance(known, tuple | list) or isinstance(known, torch.Size):
        return value
    return tuple(value[number] for number in range(len(known)))


@contextlib.contextmanager
def lengths_seen(following: Callable[[], bool]) -> Iterator[None]:
    """While `following`, `len(x)` of a tensor is its first size, which Python would want to be a number at once."""
    plain = builtins.len

    def length(value: Any) -> Any:
        if type(value) in PROXIES and following() and isinstance(value.known, torch.Tensor) and value.known.dim():
            return value.size(0)
        return plain(value)

    builtins.len = length
    try:
        yield
    finally:
        builtins.len = plain
