"""Calls of custom classes, on small real tensors if meta tensors are not supported, for example by numpy."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from msgspec import Struct

from app.builder.catalog import custom
from app.builder.catalog.catalog import OpSpec
from app.builder.catalog.custom_classes import LayerClass
from app.source import layer_modules
from app.source.layer_files import LayerFileError

BATCHES = (5, 7)
LARGEST = 1 << 20  # values that arrive, at the larger batch


def resolve(target: str) -> Callable[..., Any]:
    """Return the class of a custom op's target, or a callable that applies it if it is a Function.

    Raises layer_files.UntrustedError, and LayerFileError if the file fails.
    """
    file, layer = custom.usable(target)
    attribute = layer_modules.attribute(file, layer.name)
    if not inspect.isclass(attribute):
        raise LayerFileError(
            f"{layer.name} of {file.name} is not a class after the file has run"
        )
    return _Applied(attribute, layer) if layer.kind == "function" else attribute


class _Applied(Struct, frozen=True):
    """`Function.apply`, which takes positional arguments only, called with keywords."""

    function: Any
    layer: LayerClass

    def __call__(self, *tensors: Any, **named: Any) -> Any:
        ports = (port.name for port in self.layer.inputs if port.name not in named)
        arguments = {**dict(zip(ports, tensors, strict=False)), **named}
        return self.function.apply(
            *custom.row(self.layer, arguments, lambda param: param.default)
        )


def why_failed(spec: OpSpec, name: str, message: str) -> tuple[str, str] | None:
    """Explain why a call of a custom op fails, and what to do; None for other ops."""
    file = custom.file_of(spec)
    if file is None:
        return None
    if layer_modules.failure(file):
        return (
            message,
            "None of its classes can be used until it runs. Edit the file; it is reloaded.",
        )
    return (
        f"{name} fails: {message}",
        f"{spec.label} of {file.name} raised this for its input.",
    )


def run_small(call: Callable[[int], Any], values: int) -> tuple[Any, Any]:
    """Run `call(batch)` with both batch sizes; `values` is its input size. Raises ValueError if that is too large."""
    if values > LARGEST:
        raise ValueError(
            "it does not run on meta tensors, and its input is too large to try with real ones"
        )
    first, second = (call(batch) for batch in BATCHES)
    return first, second


def grown(first: Any, second: Any, batch: int) -> Any:
    """Extrapolate the results of two batch sizes to another: tensors on "meta".

    >>> grown(torch.zeros(5, 3), torch.zeros(7, 3), 1009).shape
    torch.Size([1009, 3])
    """
    if isinstance(first, tuple | list):
        return tuple(grown(a, b, batch) for a, b in zip(first, second, strict=True))
    if type(first) is int and type(second) is int:
        return _size(first, second, batch)
    if not isinstance(first, torch.Tensor):
        return first
    sizes = [_size(a, b, batch) for a, b in zip(first.shape, second.shape, strict=True)]
    return torch.empty(sizes, dtype=first.dtype, device="meta")


def _size(a: int, b: int, batch: int) -> int:
    step, rest = divmod(b - a, BATCHES[1] - BATCHES[0])
    if rest:
        sizes = f"{a} for {BATCHES[0]} samples, {b} for {BATCHES[1]}"
        raise ValueError(f"a size that is not proportional to the batch size: {sizes}")
    return a + step * (batch - BATCHES[0])
