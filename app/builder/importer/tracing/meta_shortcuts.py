"""Fast path for layers whose output has the shape of the input, which torch evaluates in many steps on meta."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

_RANKS: dict[type[nn.Module], tuple[int, ...]] = {nn.BatchNorm1d: (2, 3), nn.BatchNorm2d: (4,), nn.BatchNorm3d: (5,)}


def normalised(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor | None:
    """Return a batch norm's result on meta tensors; None if torch has to evaluate it, or would raise."""
    ranks = _RANKS.get(type(module))
    if ranks is None or len(args) != 1 or kwargs:
        return None
    (x,) = args
    if not isinstance(x, torch.Tensor) or x.dim() not in ranks or x.shape[1] != module.num_features:
        return None
    held: Any = module.weight if module.weight is not None else module.running_mean
    alone = x.shape[0] * math.prod(x.shape[2:]) == 1  # too few values for statistics
    return None if alone or held is None or held.dtype != x.dtype else torch.empty_like(x)
