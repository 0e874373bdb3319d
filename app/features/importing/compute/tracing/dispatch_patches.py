"""Patches for calls that torch does not dispatch: a proxy in their kernels ends the process.

These are functions that accept a number first, such as `torch.pow` and `torch.where`, factories, and transforms of
functions (`torch.vmap` and those of `torch.func`).
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import operator
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch._functorch import apis, eager_transforms
from torch.utils._device import _device_constructors
from torch.utils._pytree import tree_flatten, tree_map

from app.builder.catalog.ops_values import FACTS
from app.features.importing.compute.tracing.frames import DEPENDS, DataDependentError
from app.features.importing.compute.tracing.proxies import (
    FACTORIES,
    PROXIES,
    ValueProxy,
    dtype_source,
    float_fact,
)

if TYPE_CHECKING:
    from app.features.importing.compute.tracing.tracing import Tracer


NAMES = (
    "pow",
    "float_power",
    "remainder",
    "where",
    "isin",
    "xlogy",
    "result_type",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "bitwise_left_shift",
    "bitwise_right_shift",
)


@contextlib.contextmanager
def dispatch_first(
    following: Callable[[], bool], record_call: Callable[..., Any]
) -> Iterator[None]:
    """While `following`, calls of these functions with values of the graph come to `made(kind, function, args,
    kwargs)`."""

    def instead(function: Any) -> Callable[..., Any]:
        def called(*args: Any, **kwargs: Any) -> Any:
            if following() and any(
                type(value) in PROXIES for value in (*args, *kwargs.values())
            ):
                return record_call("call_function", function, args, kwargs)
            return function(*args, **kwargs)

        return called

    def facts(of: Any) -> Callable[..., Any]:
        """Patch `torch.finfo`/`iinfo` to accept the dtype of a traced value."""

        def type_info(*dtype: Any) -> Any:
            limits = of(
                *(
                    argument.known if type(argument) in PROXIES else argument
                    for argument in dtype
                )
            )
            source = dtype_source(dtype[0]) if following() and dtype else None
            return (
                limits
                if source is None or of is not torch_finfo
                else _Facts(limits, source)
            )

        return type_info

    torch_finfo = torch.finfo
    before = {name: getattr(torch, name) for name in (*NAMES, "finfo", "iinfo")}
    try:
        for name, function in before.items():
            setattr(
                torch, name, instead(function) if name in NAMES else facts(function)
            )
        yield
    finally:
        for name, function in before.items():
            setattr(torch, name, function)


class _Facts:
    """`torch.finfo(x.dtype)` of a traced x: its attributes follow the dtype of x."""

    def __init__(self, found: Any, source: Any) -> None:
        self._found, self._source = found, source

    def __getattr__(self, name: str) -> Any:
        name = {"smallest_normal": "tiny"}.get(name, name)
        if name not in FACTS:
            return getattr(self._found, name)
        return self._source.tracer.create_proxy(
            "call_function", float_fact, (self._source, name), {}
        )


# --- Factories


@contextlib.contextmanager
def sizes_seen(
    following: Callable[[], bool], record_call: Callable[..., Any]
) -> Iterator[None]:
    """Patch `torch.zeros` and the like to call `record_call` while `following`, since torch rejects traced sizes before
    dispatch."""
    factories = FACTORIES | {torch.normal}
    names = {
        function.__name__: getattr(torch, function.__name__) for function in factories
    }

    def instead(function: Any) -> Callable[..., Any]:
        def called(*args: Any, **kwargs: Any) -> Any:
            if following() and function in factories:
                return record_call("call_function", function, args, kwargs)
            return function(*args, **kwargs)

        return called

    _device_constructors()  # cached by torch at the first call: must be the originals, not the patches
    for name, function in names.items():
        setattr(torch, name, instead(function))
    try:
        yield
    finally:
        for name, function in names.items():
            setattr(torch, name, function)


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
