"""Layers whose results have the shape of what arrives, without asking torch, which computes them in many steps."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

_RANKS: dict[type[nn.Module], tuple[int, ...]] = {nn.BatchNorm1d: (2, 3), nn.BatchNorm2d: (4,), nn.BatchNorm3d: (5,)}


def normalised(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor | None:
    """What a batch normalization gives on meta tensors; None where torch has to be asked, or has something to say."""
    ranks = _RANKS.get(type(module))
    if ranks is None or len(args) != 1 or kwargs:
        return None
    (x,) = args
    if not isinstance(x, torch.Tensor) or x.dim() not in ranks or x.shape[1] != module.num_features:
        return None
    held: Any = module.weight if module.weight is not None else module.running_mean
    alone = x.shape[0] * math.prod(x.shape[2:]) == 1  # of which there are no statistics
    return None if alone or held is None or held.dtype != x.dtype else torch.empty_like(x)
