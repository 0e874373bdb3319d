"""Fast path for layers whose output on meta tensors is plain, but takes torch many steps of Python there."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

_RANKS: dict[type[nn.Module], tuple[int, ...]] = {
    nn.BatchNorm1d: (2, 3),
    nn.BatchNorm2d: (4,),
    nn.BatchNorm3d: (5,),
}
_DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
_FUNCTIONS = (F.relu, F.gelu, torch.relu)


def meta_result(
    target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> torch.Tensor | None:
    """Return the result of a layer or function on one meta tensor; None if torch has to evaluate it, or would raise."""
    if (
        len(args) != 1
        or kwargs
        or type(args[0]) is not torch.Tensor
        or args[0].device.type != "meta"
    ):
        return None
    (x,) = args
    if isinstance(target, nn.Module):
        rule = _RULES.get(type(target))
        return rule(target, x) if rule is not None else None
    return torch.empty_like(x) if target in _FUNCTIONS and _is_plain(x) else None


def _is_plain(x: torch.Tensor) -> bool:
    return x.dtype in _DTYPES and x.is_contiguous()


def _batch_norm(module: Any, x: torch.Tensor) -> torch.Tensor | None:
    if x.dim() not in _RANKS[type(module)] or x.shape[1] != module.num_features:
        return None
    tensor = module.weight if module.weight is not None else module.running_mean
    alone = x.shape[0] * math.prod(x.shape[2:]) == 1  # too few values for statistics
    return (
        None
        if alone or tensor is None or tensor.dtype != x.dtype
        else torch.empty_like(x)
    )


def _layer_norm(module: Any, x: torch.Tensor) -> torch.Tensor | None:
    sizes = module.normalized_shape
    fits = (
        _is_plain(x) and x.shape[-len(sizes) :] == sizes and _has_dtype(module, x.dtype)
    )
    return torch.empty_like(x) if fits else None


def _linear(module: Any, x: torch.Tensor) -> torch.Tensor | None:
    fits = (
        _is_plain(x)
        and x.dim()
        and x.shape[-1] == module.in_features
        and _has_dtype(module, x.dtype)
    )
    return (
        x.new_empty((*x.shape[:-1], module.out_features))
        if fits and not torch._C._is_any_autocast_enabled()
        else None
    )


def _convolution(module: Any, x: torch.Tensor) -> torch.Tensor | None:
    """Formula: "Shape" in the documentation of `torch.nn.Conv2d`."""
    plain = (
        _is_plain(x)
        and module.padding_mode == "zeros"
        and not isinstance(module.padding, str)
    )
    if (
        not plain
        or min(
            *module.stride, *module.dilation, *module.kernel_size, module.out_channels
        )
        < 1
    ):
        return None
    if (
        min(module.padding) < 0
        or x.dim() != len(module.kernel_size) + 2
        or not x.numel()
        or x.shape[1] != module.in_channels
    ):
        return None
    fields = zip(
        x.shape[2:],
        module.kernel_size,
        module.stride,
        module.padding,
        module.dilation,
        strict=True,
    )
    sizes = [
        (size + 2 * pad - wide * (kernel - 1) - 1) // step + 1
        for size, kernel, step, pad, wide in fields
    ]
    fits = (
        min(sizes) > 0
        and _has_dtype(module, x.dtype)
        and not torch._C._is_any_autocast_enabled()
    )
    return x.new_empty((x.shape[0], module.out_channels, *sizes)) if fits else None


def _has_dtype(module: Any, dtype: torch.dtype) -> bool:
    return all(
        tensor is None or tensor.dtype == dtype
        for tensor in (module.weight, module.bias)
    )


def _relu(module: Any, x: torch.Tensor) -> torch.Tensor | None:
    return torch.empty_like(x) if _is_plain(x) and not module.inplace else None


def _gelu(module: Any, x: torch.Tensor) -> torch.Tensor | None:
    return (
        torch.empty_like(x)
        if _is_plain(x) and module.approximate in ("none", "tanh")
        else None
    )


_RULES: dict[type[nn.Module], Callable[[Any, torch.Tensor], torch.Tensor | None]] = {
    **dict.fromkeys(_RANKS, _batch_norm),
    nn.LayerNorm: _layer_norm,
    nn.Linear: _linear,
    nn.ReLU: _relu,
    nn.GELU: _gelu,
    **dict.fromkeys((nn.Conv1d, nn.Conv2d, nn.Conv3d), _convolution),
}
