"""Tensors in whatever a call takes and gives, and the facts of each."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from app.observe.observation import TensorFacts

DEEPEST = 12  # containers within containers; a cache of caches is less
PLAIN = (
    str,
    bytes,
    int,
    float,
    complex,
    bool,
    type,
    torch.dtype,
    torch.device,
)  # hold none
LONGEST = 40  # letters of an argument that is no tensor


def tensors_in(value: Any, objects: bool = False) -> list[Tensor]:
    """List the tensors of a value in order: of lists, tuples, mappings and dataclasses, and with `objects` of others
    that hold some, such as a cache."""
    tensors: list[Tensor] = []
    _collect(value, tensors, 0, set(), objects)
    return tensors


def _collect(
    value: Any, tensors: list[Tensor], depth: int, visited: set[int], objects: bool
) -> None:
    if isinstance(value, Tensor):
        tensors.append(value)
        return
    if depth > DEEPEST or value is None or isinstance(value, PLAIN):
        return
    if isinstance(value, torch.nn.Module) or id(value) in visited:
        return
    visited.add(id(value))
    parts: Iterable[Any]
    if isinstance(value, list | tuple | set | frozenset):
        parts = [*value]
    elif isinstance(value, Mapping):
        parts = [*value.values()]
    elif is_dataclass(value):
        parts = [getattr(value, field.name, None) for field in fields(value)]
    elif type(value).__module__.partition(".")[0] in (
        "builtins",
        "numpy",
        "torch",
        "collections",
    ):
        return
    elif not objects:
        return
    else:
        parts = [*getattr(value, "__dict__", {}).values()]
    for child in parts:
        _collect(child, tensors, depth + 1, visited, objects)


def facts(tensor: Tensor) -> TensorFacts:
    """Describe a tensor; what it does not tell (a nested or functorch tensor's sizes) is left empty."""
    with contextlib.suppress(RuntimeError, TypeError):  # nested tensors, symbolic sizes
        return _facts(
            tensor.shape,
            tensor.dtype,
            tensor.device,
            tensor.layout,
            tensor.requires_grad,
        )
    return TensorFacts(
        (),
        str(tensor.dtype).removeprefix("torch."),
        str(tensor.device),
        str(tensor.layout).removeprefix("torch."),
        0,
        bool(tensor.requires_grad),
    )


@lru_cache(maxsize=4096)
def _facts(
    shape: torch.Size,
    dtype: torch.dtype,
    device: torch.device,
    layout: torch.layout,
    requires_grad: bool,
) -> TensorFacts:
    """Return the facts of all tensors of one kind, which are many: layers repeat."""
    return TensorFacts(
        tuple(map(int, shape)),
        str(dtype).removeprefix("torch."),
        str(device),
        str(layout).removeprefix("torch."),
        shape.numel() * dtype.itemsize,
        bool(requires_grad),
    )


def storage_of(tensor: Tensor) -> int | None:
    """Return what tells the memory of a tensor from that of others while both live; None if it has no storage."""
    try:
        return tensor.untyped_storage()._cdata
    except (
        RuntimeError,
        NotImplementedError,
        AttributeError,
    ):  # sparse, nested, wrapped by functorch
        return None


def version_of(tensor: Tensor) -> int:
    """Return the number of times a tensor was written to; 0 where torch does not count (inference tensors)."""
    try:
        return tensor._version
    except RuntimeError:
        return 0


def settings_of(args: Any, kwargs: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the arguments of an operation that are no tensors, as text: `("1", "keepdim=True")`."""
    plain = [_text(value) for value in args if _plain(value)]
    return (
        *plain,
        *(f"{name}={_text(value)}" for name, value in kwargs.items() if _plain(value)),
    )


def index_text(index: Any) -> str:
    """Return an index as Python writes it, a tensor in it as `tensor`.

    >>> index_text((slice(None), [-1], ..., None)), index_text(slice(1, None, 2))
    ('[:, [-1], ..., None]', '[1::2]')
    """
    parts = index if isinstance(index, tuple) else (index,)
    text = f"[{', '.join(map(_index_part, parts))}]"
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _index_part(index: Any) -> str:
    if isinstance(index, slice):
        start, stop, step = (
            "" if end is None else _index_part(end)
            for end in (index.start, index.stop, index.step)
        )
        return f"{start}:{stop}:{step}" if step else f"{start}:{stop}"
    if index is Ellipsis:
        return "..."
    return repr(index) if index is None or _plain(index) else "tensor"


def _plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_plain, value))
    return value is not None and isinstance(
        value, str | int | float | complex | bool | torch.dtype | torch.device | slice
    )


def _text(value: Any) -> str:
    text = (
        str(value).removeprefix("torch.")
        if isinstance(value, torch.dtype)
        else repr(value)
    )
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
