"""Models made without the time that random initialisation takes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import FrameType
from typing import Any

import torch

from app.util.torch_calls import FunctionCalls


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

    def called(func: Any, args: Any, kwargs: Any, _frame: FrameType) -> Any:
        if func in drawing:
            return args[0] if args else kwargs["tensor"]
        is_plain = func is torch.empty and "memory_format" not in kwargs
        return (torch.zeros if is_plain else func)(*args, **kwargs)

    with FunctionCalls(called):
        yield
