"""Copy modules and tensors to double or single precision; a context in which code computes in double."""

from __future__ import annotations

from types import FrameType
from typing import Any

import torch
from msgspec.structs import replace
from torch import Tensor, nn

from app.autograd.capture import ReadyLoss
from app.util import module_tree
from app.util.torch_calls import FunctionCalls
from tapedeck import devices

_NARROW = frozenset((torch.float32, torch.float16, torch.bfloat16))
_NARROWING = frozenset(("float", "half", "bfloat16"))
_DRAWN_LIKE = frozenset(("rand_like", "randn_like"))
_DRAWN_INTO = frozenset(("normal_", "uniform_", "exponential_"))


class Wide(FunctionCalls):
    """Makes factories (`torch.zeros`) and casts (`.float()`) on this thread produce double precision.

    A cast is replaced before it runs, since lost digits would look like a wrong gradient. Random numbers are drawn in
    single precision as in the plain pass: torch draws different ones in double.
    """

    def visit(self, func: Any, args: Any, kwargs: Any, frame: FrameType) -> Any:
        name = getattr(func, "__name__", "")
        if name in _NARROWING and args:
            return args[0].double()
        if name in _DRAWN_INTO and args and args[0].dtype is torch.float64:
            return args[0].copy_(
                func(
                    torch.empty_like(args[0], dtype=torch.float32), *args[1:], **kwargs
                )
            )
        if name in _DRAWN_LIKE:
            kwargs = {"dtype": torch.float32, **kwargs}
        else:
            kwargs = {
                key: torch.float64 if _is_narrow(value) else value
                for key, value in kwargs.items()
            }
        args = tuple(torch.float64 if _is_narrow(value) else value for value in args)
        result = func(*args, **kwargs)
        if not isinstance(result, Tensor):
            return result
        if result.dtype in _NARROW:
            return result.double()
        return (
            result.to(torch.complex128) if result.dtype is torch.complex64 else result
        )


def _is_narrow(value: Any) -> bool:
    return isinstance(value, torch.dtype) and value in _NARROW


def in_precision(owned: Any, dtype: torch.dtype, train: bool) -> Any:
    """Copy a module or a loss to a precision and a mode; return anything else unchanged."""
    if isinstance(owned, nn.Module):
        return (
            module_tree.copied(owned)
            ._apply(lambda tensor: cast(tensor, dtype))
            .train(train)
        )
    if isinstance(owned, ReadyLoss):
        return replace(owned, loss=in_precision(owned.loss, dtype, train))
    return owned


def modules_in(owned: Any) -> list[nn.Module]:
    """Return the module in an owned part, as a list of at most one."""
    inner = owned.loss if isinstance(owned, ReadyLoss) else owned
    return [inner] if isinstance(inner, nn.Module) else []


def cast(value: Any, dtype: torch.dtype) -> Any:
    """Copy a tensor to a precision, complex ones to the matching one; return other values unchanged.

    Of a device without float64 every copy is on the CPU, so that the precisions are compared with the same operations.
    """
    if not isinstance(value, Tensor):
        return value
    complex_ = torch.complex128 if dtype is torch.float64 else torch.complex64
    kind = (
        dtype
        if value.is_floating_point()
        else complex_
        if value.is_complex()
        else value.dtype
    )
    copied = devices.for_double(value.detach()).to(kind, copy=True)
    return (
        copied.coalesce()
        if copied.layout is torch.sparse_coo
        else copied.resolve_conj()
    )
