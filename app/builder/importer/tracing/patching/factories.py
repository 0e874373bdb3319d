"""Seeing the making of tensors out of numbers while a model is followed, also where a size is computed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._device import _device_constructors

from app.builder.importer.tracing.proxies import FACTORIES


@contextlib.contextmanager
def sizes_seen(
    following: Callable[[], bool], made: Callable[..., Any]
) -> Iterator[None]:
    """Patch `torch.zeros` and the like to call `made` while `following`, since torch rejects traced sizes before
    dispatch."""
    seen = FACTORIES | {torch.normal}
    names = {function.__name__: getattr(torch, function.__name__) for function in seen}

    def instead(function: Any) -> Callable[..., Any]:
        def called(*args: Any, **kwargs: Any) -> Any:
            if following() and function in seen:
                return made("call_function", function, args, kwargs)
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
