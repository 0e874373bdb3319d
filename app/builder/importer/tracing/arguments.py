"""Arguments of calls in a form that a graph can hold: numbers of numpy, lists that another call gave, `len`, and
tensors of numbers that are computed."""

from __future__ import annotations

import builtins
import contextlib
import functools
import operator
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_flatten

from app.builder.importer.tracing.frames import DEPENDS, DataDependentError
from app.builder.importer.tracing.proxies import PROXIES, ValueProxy, dtype_source


def plain_number(value: Any) -> Any:
    """Convert a numpy scalar to a Python number; return other values unchanged."""
    return (
        value.item()
        if type(value).__module__ == "numpy" and getattr(value, "shape", None) == ()
        else value
    )


def opened(kind: str, target: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Expand arguments that are sequences returned by one call into their items: `torch.stack(x.unbind(1))`."""
    if kind == "call_module" or target in (operator.getitem, getattr):
        return args
    return tuple(map(items_of, args))


def items_of(value: Any) -> Any:
    """Expand a sequence that one call returned; return other values unchanged."""
    sequence = value.known if type(value) is ValueProxy else None
    if not isinstance(sequence, tuple | list) or isinstance(sequence, torch.Size):
        return value
    return tuple(value[number] for number in range(len(sequence)))


@contextlib.contextmanager
def lengths_seen(following: Callable[[], bool]) -> Iterator[None]:
    """Patch `len` so that `len(x)` of a traced tensor is its first size, which Python would force to an int."""
    plain = builtins.len

    def length(value: Any) -> Any:
        if (
            type(value) in PROXIES
            and following()
            and isinstance(value.known, torch.Tensor)
            and value.known.dim()
        ):
            return value.size(0)
        return plain(value)

    builtins.len = length
    try:
        yield
    finally:
        builtins.len = plain


@contextlib.contextmanager
def tensors_seen(following: Callable[[], bool]) -> Iterator[None]:
    """While `following`, `torch.tensor` of numbers of the graph makes a tensor in the graph, which torch cannot."""
    before = torch.tensor, torch.as_tensor

    def instead(plain: Callable[..., Any]) -> Callable[..., Any]:
        def tensor(
            data: Any, dtype: Any = None, device: Any = None, **rest: Any
        ) -> Any:
            if not following():
                return plain(data, dtype=dtype, device=device, **rest)
            like, plain_dtype = (
                dtype_source(dtype),
                dtype.known if type(dtype) in PROXIES else dtype,
            )
            if any(type(leaf) in PROXIES for leaf in tree_flatten(data)[0]):
                if isinstance(data, torch.Tensor) and plain is before[1]:
                    return data if plain_dtype is None else data.to(dtype)
                created = _tensor_of(data, plain_dtype)
            else:
                created = plain(
                    data,
                    dtype=plain_dtype,
                    device=None if type(device) in PROXIES else device,
                    **rest,
                )
            return created if like is None else created.type_as(like)

        return tensor

    torch.tensor, torch.as_tensor = map(instead, before)
    try:
        yield
    finally:
        torch.tensor, torch.as_tensor = before


def _tensor_of(data: Any, dtype: torch.dtype | None) -> Any:
    if isinstance(data, tuple | list):
        rows = [_tensor_of(item, dtype) for item in data]
        kinds = {
            row.dtype if type(row) not in PROXIES else row.known.dtype for row in rows
        }
        widest = functools.reduce(torch.promote_types, kinds)
        return torch.stack(
            [row if row.dtype == widest else row.to(widest) for row in rows]
        )
    if isinstance(data, torch.Tensor):
        raise DataDependentError(f"torch.tensor of a tensor {DEPENDS}")
    return torch.full((), data, dtype=dtype)
