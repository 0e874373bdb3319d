"""Find non-differentiable points and random operations of a function, by watching its operations."""

from __future__ import annotations

from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from app.autograd.place import OpLocation
from app.autograd.source_locations import SourceLocations
from app.util.torch_calls import FunctionCalls

_AT_ZERO = frozenset(
    "relu relu_ leaky_relu leaky_relu_ prelu abs abs_ absolute threshold threshold_ rrelu elu elu_ celu hardshrink "
    "sign sgn".split()
)
_WITH_BOUNDS = frozenset(
    "clamp clamp_ clip hardtanh hardtanh_ relu6 hardsigmoid hardswish clamp_min clamp_max".split()
)
_POOLS = {
    "max_pool1d": F.max_pool1d_with_indices,
    "max_pool2d": F.max_pool2d_with_indices,
    "max_pool3d": F.max_pool3d_with_indices,
}
_STEPS = frozenset(
    "round round_ floor floor_ ceil ceil_ trunc trunc_ heaviside".split()
)
_QUOTIENTS = frozenset(("fmod", "remainder", "frac"))
_EXTREMES = frozenset(
    "max min amax amin maximum minimum median kthvalue sort topk".split()
)
_DISTANCES = frozenset(
    "l1_loss smooth_l1_loss huber_loss hinge_embedding_loss margin_ranking_loss".split()
)
KINKED = (
    _AT_ZERO
    | _WITH_BOUNDS
    | frozenset(_POOLS)
    | _STEPS
    | _QUOTIENTS
    | _EXTREMES
    | _DISTANCES
)
RANDOM = frozenset(
    """dropout dropout_ dropout1d dropout2d dropout3d alpha_dropout feature_dropout feature_alpha_dropout native_dropout
    rand randn randint randperm rand_like randn_like randint_like bernoulli bernoulli_ multinomial normal normal_
    poisson uniform_ exponential_ rrelu rrelu_ gumbel_softmax fractional_max_pool2d fractional_max_pool3d""".split()
)


class KinkWatch(FunctionCalls):
    """Notes, call by call, on which side of its kinks each operation was, and which operations drew random numbers."""

    def __init__(self, places: SourceLocations) -> None:
        super().__init__()
        self._places = places
        self.sides: list[tuple[OpLocation, Tensor, int]] = []
        self.random: dict[OpLocation, None] = {}

    def visit(self, func: Any, args: Any, kwargs: Any, frame: FrameType) -> Any:
        name = getattr(func, "__name__", "")
        if name in KINKED and args and isinstance(args[0], Tensor):
            with (
                torch._C.DisableTorchFunction()
            ):  # in-place operations overwrite their input
                before = (args[0].detach().clone(), *args[1:])
        result = func(*args, **kwargs)
        if name in KINKED or name in RANDOM:
            with torch._C.DisableTorchFunction():
                here = self._places.here(frame, name)
                if name in RANDOM and not _is_off(name, args, kwargs):
                    self.random[here] = None
                if (
                    name in KINKED
                    and args
                    and isinstance(args[0], Tensor)
                    and args[0].is_floating_point()
                ):
                    self.sides.append((here, *_side(name, before, kwargs, result)))
        return result


def _is_off(name: str, args: Any, kwargs: Any) -> bool:
    """Return whether a dropout call drops nothing."""
    if "dropout" not in name:
        return False
    training = kwargs.get("training", args[2] if len(args) > 2 else True)
    return not training or kwargs.get("p", args[1] if len(args) > 1 else 0.5) == 0


def _side(name: str, args: Any, kwargs: Any, result: Any) -> tuple[Tensor, int]:
    """Return a tensor that changes when a kink is crossed, and how many inputs lie exactly on one."""
    x = args[0]
    if name in _POOLS:
        options = {
            key: value for key, value in kwargs.items() if key != "return_indices"
        }
        return _POOLS[name](x, *args[1:6], **options)[1], _pool_ties(
            name, x, *args[1:6], **options
        )
    if name in _AT_ZERO:
        return torch.sign(x), int((x == 0).sum())
    other = args[1].detach() if len(args) > 1 and isinstance(args[1], Tensor) else None
    if other is not None and (
        name in _DISTANCES or name in ("maximum", "minimum", "max", "min")
    ):
        return torch.sign(x - other), int((x == other).sum())
    if name in _WITH_BOUNDS:
        return result.detach() == x, 0
    if name in _QUOTIENTS:  # kinks where the integer quotient changes
        divisor = args[1] if len(args) > 1 else kwargs.get("other", 1)
        return ((x - result.detach()) / divisor).round(), int(
            (result.detach() == 0).sum()
        )
    if name in _STEPS:
        return result.detach(), int((result.detach() == x).sum())
    indices = getattr(result, "indices", None)
    if isinstance(indices, Tensor):
        return indices, 0
    scalar = isinstance(result, Tensor) and result.dim() == 0
    mask = x == result.detach() if scalar else torch.sign(x)
    return mask, int(mask.sum()) if scalar and int(mask.sum()) > 1 else 0


def _pool_ties(
    name: str,
    x: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> int:
    """Count the pooling windows with a tied maximum; 0 if not checked (3d, ceil_mode)."""
    if name == "max_pool3d" or ceil_mode:
        return 0
    flat = name == "max_pool1d"
    size, step, pad, spread = (
        _pair(value, flat, edge)
        for value, edge in (
            (kernel_size, 1),
            (stride or kernel_size, 1),
            (padding, 0),
            (dilation, 1),
        )
    )
    image = x.reshape(-1, 1, *((1, x.shape[-1]) if flat else x.shape[-2:]))
    padded = F.pad(image, (pad[1], pad[1], pad[0], pad[0]), value=-torch.inf)
    windows = F.unfold(padded, size, spread, 0, step)
    return int(((windows == windows.amax(1, keepdim=True)).sum(1) > 1).sum())


def _pair(value: Any, flat: bool, edge: int) -> tuple[int, int]:
    values = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    if flat:
        return edge, int(values[-1])
    return int(values[0]), int(values[-1])


def crossed(
    before: list[tuple[OpLocation, Tensor, int]],
    after: list[tuple[OpLocation, Tensor, int]],
) -> OpLocation | None:
    """Return the first operation on another side of a kink; None if all are on the same."""
    for (location, side, _), (_, other, _) in zip(before, after, strict=False):
        if side.shape != other.shape or not torch.equal(side, other):
            return location
    return None
