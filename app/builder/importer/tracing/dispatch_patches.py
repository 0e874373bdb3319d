"""Patches for torch functions that accept a number as first argument, such as `torch.pow` and `torch.where`.

These read their first argument's storage before `__torch_function__` dispatch; a proxy there segfaults. So calls of
them are recorded before torch sees the arguments.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._device import _device_constructors

from app.builder.catalog.ops_values import FACTS
from app.builder.importer.tracing.proxies import (
    FACTORIES,
    PROXIES,
    dtype_source,
    float_fact,
)

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


def as_followed(function: Any) -> Any:
    """Return the patched form of a torch function that was looked up before tracing began."""
    name = getattr(function, "__name__", "")
    return (
        getattr(torch, name)
        if name in NAMES and type(function) is type(torch.relu)
        else function
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
