"""What a model of double precision creates and draws while it runs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn

from app.util import module_tree
from app.util.torch_calls import KernelCalls

_ATEN = torch.ops.aten
_NEW = (
    _ATEN.rand,
    _ATEN.randn,
    _ATEN.rand_like,
    _ATEN.randn_like,
    _ATEN.normal,
    _ATEN.bernoulli,
)
_IN_PLACE = (
    _ATEN.normal_,
    _ATEN.uniform_,
    _ATEN.exponential_,
    _ATEN.log_normal_,
    _ATEN.cauchy_,
)


class SingleDraws(KernelCalls):
    """Draws in single precision what is asked for in double: from one seed torch draws other numbers as doubles."""

    def visit(self, func: Any, args: Any, kwargs: Any, frame: FrameType) -> Any:
        drawn = func.overloadpacket
        if drawn in _IN_PLACE and args[0].dtype == torch.float64:
            return args[0].copy_(func(args[0].float(), *args[1:], **kwargs))
        if drawn not in _NEW:
            return func(*args, **kwargs)
        like = [arg.dtype for arg in args if isinstance(arg, Tensor)]
        if (
            kwargs.get("dtype") or (like[0] if like else torch.get_default_dtype())
        ) != torch.float64:
            return func(*args, **kwargs)
        if not like or "dtype" in kwargs:
            kwargs = {**kwargs, "dtype": torch.float32}
        return func(*[_single(arg) for arg in args], **kwargs).double()


def _single(value: Any) -> Any:
    return (
        value.float()
        if isinstance(value, Tensor) and value.dtype == torch.float64
        else value
    )


@contextlib.contextmanager
def default_precision(model: nn.Module, single_draws: bool = False) -> Iterator[None]:
    """Have what a model of double precision creates be of that precision; random numbers may be those of single."""
    floats = {
        parameter.dtype
        for parameter in module_tree.parameters(model)
        if parameter.is_floating_point()
    }
    before = torch.get_default_dtype()
    try:
        if floats == {torch.float64}:
            torch.set_default_dtype(torch.float64)
        with (
            SingleDraws()
            if single_draws and floats == {torch.float64}
            else contextlib.nullcontext()
        ):
            yield
    finally:
        torch.set_default_dtype(before)
