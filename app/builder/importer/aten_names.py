"""ATen ops as the public functions that people call: `aten.view.default` is `x.view(size)`."""

from __future__ import annotations

from collections.abc import Callable
from types import BuiltinFunctionType
from typing import Any

import torch
from torch.nn import functional as F

from app.util.errors import CodedError


class UnknownAtenOpError(CodedError, ValueError):
    """An ATen function without an op in the catalog; the message names it."""


# Called with whether it is training as the third argument.
FLAGGED = frozenset({"aten.dropout.default", "aten.native_dropout.default"})


def _norm_of(v: Any, g: Any, dim: int = 0) -> Any:
    """Implement `torch._weight_norm`: g * v / |v|, the norm over all dimensions but one."""
    over = [other for other in range(len(v.shape)) if other != dim % len(v.shape)]
    return v * (g / torch.norm(v, 2.0, over, True))


def _sliced(
    x: Any, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1
) -> Any:
    end = None if isinstance(end, int) and end >= 2**62 else end
    leading = (slice(None),) * (dim % len(x.shape))
    return x[(*leading, slice(start, end, None if step == 1 else step))]


def _indexed(x: Any, indices: Any) -> Any:
    return x[tuple(slice(None) if index is None else index for index in indices)]


def _to(x: Any, dtype: Any = None, *_: Any, **named: Any) -> Any:
    target_dtype = dtype if isinstance(dtype, torch.dtype) else named.get("dtype")
    return x.to(target_dtype) if isinstance(target_dtype, torch.dtype) else x


def _as_it_is(x: Any, *_: Any, **__: Any) -> Any:
    return x


_FORMS: dict[str, Callable[..., Any]] = {
    "_weight_norm": _norm_of,
    "slice": _sliced,
    "index": _indexed,
    "to": _to,
    "_to_copy": _to,
    "view": lambda x, size: x.view(size),
    "_unsafe_view": lambda x, size: x.view(size),
    "expand": lambda x, size, **_: x.expand(size),
    "sym_size": lambda x, dim: x.size(dim),
    "repeat": lambda x, sizes: torch.tile(x, sizes),
    "t": lambda x: torch.transpose(x, 0, 1),
    "contiguous": lambda x, **_: x.contiguous(),
    "clone": lambda x, **_: torch.clone(x),
    "embedding": lambda weight, index, *_: F.embedding(index, weight),
    "linalg_vector_norm": lambda x, order=2, dim=None, keepdim=False, **_: torch.norm(
        x, float(order), dim, keepdim
    ),
    "addmm": lambda bias, x, y, **_: bias + torch.matmul(x, y),
    "mm": torch.matmul,
    "rsub": lambda x, other, **_: other - x,
    "_softmax": lambda x, dim, *_: F.softmax(x, dim),
    "_log_softmax": lambda x, dim, *_: F.log_softmax(x, dim),
    "scalar_tensor": lambda value, **_: value,
    "layer_norm": lambda x, shape, weight=None, bias=None, eps=1e-5, *_: F.layer_norm(
        x, shape, weight, bias, eps
    ),
    "group_norm": lambda x, groups, weight=None, bias=None, eps=1e-5, *_: F.group_norm(
        x, groups, weight, bias, eps
    ),
    "clamp": lambda x, low=None, high=None: torch.clamp(x, low, high),
    "lift_fresh_copy": _as_it_is,
    "lift_fresh": _as_it_is,
    "alias": _as_it_is,
    "detach_": _as_it_is,
    "split_with_sizes": torch.split,
    "dropout": lambda x, p, training: F.dropout(x, p, training),
    "native_dropout": lambda x, p, training: (F.dropout(x, p, training), None),
}
_FUNCTIONAL = frozenset(
    "linear relu relu6 leaky_relu elu selu gelu silu mish hardswish hardtanh softplus glu softmax log_softmax pad "
    "max_pool2d avg_pool2d adaptive_avg_pool2d pixel_shuffle pixel_unshuffle scaled_dot_product_attention one_hot "
    "conv1d conv2d conv3d".split()
)
_NEVER = frozenset(
    {"item", "_local_scalar_dense", "nonzero", "batch_norm", "native_batch_norm"}
)
# What stays whole where the rest is taken to pieces.
KEPT = frozenset(
    f"aten.{name}"
    for name in (
        *(
            f"{name}.default"
            for name in (
                *_FUNCTIONAL,
                "layer_norm",
                "group_norm",
                "dropout",
                "stack",
                "reshape",
                "flatten",
                "matmul",
                "_weight_norm",
                "square",
            )
        ),
        "softmax.int",
        "log_softmax.int",
        "conv2d.padding",
        "split.Tensor",
        "chunk.default",
        "unbind.int",
        "mean.dim",
        "std.dim",
        "var.dim",
        "flatten.using_ints",
        "transpose.int",
    )
)


def form_of(target: Any) -> Callable[..., Any]:
    """Return the public function for an ATen op, called with the same arguments. Raises UnknownAtenOpError."""
    if isinstance(target, BuiltinFunctionType) and target.__module__ in (
        "_operator",
        "operator",
    ):
        return target
    if getattr(target, "namespace", "") != "aten":
        raise UnknownAtenOpError(
            f"{getattr(target, '__name__', target)} is not a core function of torch"
        )
    name = str(target).split(".")[1]
    if name in _NEVER:
        raise UnknownAtenOpError(f"aten.{name} is not among the ops")
    if name in _FORMS:
        return _FORMS[name]
    if name in _FUNCTIONAL:
        return getattr(F, name)
    if name.endswith("_") and hasattr(torch.Tensor, name):
        return lambda x, *args, **named: getattr(x, name)(*args, **named)
    function = getattr(torch, name, None)
    if function is None and hasattr(torch.Tensor, name):
        return lambda x, *args, **named: getattr(x, name)(*args, **named)
    if function is None:
        raise UnknownAtenOpError(f"aten.{name} is not among the ops")
    return function
