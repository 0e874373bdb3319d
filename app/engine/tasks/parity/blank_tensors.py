"""Models made without the time that random initialisation takes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


@contextlib.contextmanager
def blank() -> Iterator[None]:
    """Skip random initialisation in this thread: new tensors stay zero, without touching their pages."""
    init = torch.nn.init
    drawing = {
        torch.Tensor.uniform_,
        torch.Tensor.normal_,
        torch.Tensor.erfinv_,
        init.uniform_,
        init.normal_,
        init.kaiming_uniform_,
        init.kaiming_normal_,
    }

    class Zeros(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if func in drawing:
                return args[0] if args else (kwargs or {})["tensor"]
            replacement = (
                torch.zeros
                if func is torch.empty and "memory_format" not in (kwargs or {})
                else func
            )
            return replacement(*args, **(kwargs or {}))

    with Zeros():
        yield
