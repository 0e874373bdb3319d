"""Seeing the making of tensors out of numbers while a model is followed, also where a size is computed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from app.builder.importer.values import FACTORIES


@contextlib.contextmanager
def sizes_seen(following: Callable[[], bool], made: Callable[..., Any]) -> Iterator[None]:
    """While `following`, `torch.zeros(n, m)` comes to `made` also where a size is computed, which torch itself refuses
    before anybody is asked."""
    names = {name: getattr(torch, name) for name in ("zeros", "ones", "full", "arange", "linspace", "eye", "empty")}

    def instead(function: Any) -> Callable[..., Any]:
        def called(*args: Any, **kwargs: Any) -> Any:
            if following() and function in FACTORIES:
                return made("call_function", function, args, kwargs)
            return function(*args, **kwargs)

        return called

    for name, function in names.items():
        setattr(torch, name, instead(function))
    try:
        yield
    finally:
        for name, function in names.items():
            setattr(torch, name, function)


class Factories(TorchFunctionMode):
    """While `following`, the making of tensors out of numbers comes to `made`."""

    def __init__(self, following: Callable[[], bool], made: Callable[..., Any]) -> None:
        super().__init__()
        self._following, self._made = following, made

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in FACTORIES and self._following():
            return self._made("call_function", func, args, kwargs or {})
        return func(*args, **(kwargs or {}))
