"""Transforms of functions while tracing: `torch.vmap` and those of `torch.func`.

Their kernels unwrap tensors without dispatch, which ends the process if one is a proxy.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch._functorch import apis, eager_transforms
from torch.utils._pytree import tree_map

from app.builder.importer.tracing.proxies import PROXIES

if TYPE_CHECKING:
    from app.builder.importer.tracing.tracing import Tracer


@contextlib.contextmanager
def watched(tracer: Tracer) -> Iterator[None]:
    """While the tracer follows, draw `torch.vmap` of functions of indices, and refuse other transforms."""
    vmap, wrap = apis.vmap_impl, eager_transforms._wrap_for_grad
    levels = _Levels(tracer)

    def mapped(
        function: Any,
        in_dims: Any,
        out_dims: Any,
        randomness: str,
        chunks: Any,
        *args: Any,
        **named: Any,
    ) -> Any:
        if not tracer.following:
            return vmap(function, in_dims, out_dims, randomness, chunks, *args, **named)
        if out_dims != 0 or randomness != "error" or named:
            raise _refused(tracer, "torch.vmap")
        return levels.called(function, in_dims, args)

    def wrapped(tensor: Any, level: int) -> Any:
        if type(tensor) in PROXIES:
            raise _refused(tracer, "a transform of torch.func")
        return wrap(tensor, level)

    apis.vmap_impl, eager_transforms._wrap_for_grad = mapped, wrapped  # type: ignore[assignment]
    try:
        yield
    finally:
        apis.vmap_impl, eager_transforms._wrap_for_grad = vmap, wrap


def _refused(tracer: Tracer, name: str) -> Exception:
    return tracer.refused(f"it maps a function with {name}")


class _Levels:
    """Nested calls of `torch.vmap`, of functions that take one index of each: masks, mostly. An index is a tensor with
    the dimension of its level, and those of the levels around it behind, so that all of them broadcast."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._depth = 0

    def called(self, function: Any, in_dims: Any, args: tuple[Any, ...]) -> Any:
        """Call the function with all indices at once. Raises TraceError for other arguments than rows of indices."""
        dims = in_dims if isinstance(in_dims, tuple | list) else (in_dims,) * len(args)
        if len(dims) != len(args):
            raise _refused(self._tracer, "torch.vmap")
        rows = [arg for arg, dim in zip(args, dims, strict=True) if dim is not None]
        if not rows or any(
            not isinstance(row, torch.Tensor) or row.dim() != 1 for row in rows
        ):
            raise _refused(self._tracer, "torch.vmap")
        behind, count = (1,) * self._depth, rows[0].shape[0]
        indices = [
            arg if dim is None or not behind else arg.reshape(-1, *behind)
            for arg, dim in zip(args, dims, strict=True)
        ]
        self._depth += 1
        try:
            output = function(*indices)
        finally:
            self._depth -= 1
        return tree_map(lambda leaf: self._mapped(leaf, count), output)

    def _mapped(self, output: Any, count: Any) -> Any:
        """Return a result with the dimension of its level, at the outermost level with all of them in their order."""
        if not isinstance(output, torch.Tensor):
            raise _refused(self._tracer, "torch.vmap")
        level, rank = self._depth, _known(output.dim())
        if rank <= level:  # it does not depend on the indices of this level
            output, rank = output.expand(count, *(1,) * level), level + 1
        elif 1 in (_known(output.shape[-1 - level]), _known(count)):
            output = output.expand(*(-1,) * (rank - level - 1), count, *(-1,) * level)
        return (
            output.permute(*reversed(range(rank))) if rank > 1 and not level else output
        )


def _known(value: Any) -> Any:
    return value.known if type(value) in PROXIES else value
