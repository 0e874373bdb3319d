"""Inputs of a pass over a model, and the gradients at its outputs."""

from __future__ import annotations

import torch
from torch import Tensor

LARGEST_BUFFER = 1 << 16  # elements; larger ones, such as masks, are constants


def as_input(tensor: Tensor) -> Tensor:
    """Return a copy of an input, which has a gradient where it can."""
    fresh = tensor.detach().clone()
    return (
        fresh.requires_grad_()
        if fresh.is_floating_point() or fresh.is_complex()
        else fresh
    )


def direction(output: Tensor, number: int) -> Tensor:
    """Return the gradient that backward starts with at an output: fixed pseudo-random numbers."""
    generator = torch.Generator().manual_seed(number)
    values = torch.randn(output.shape, dtype=torch.float64, generator=generator)
    return values.to(output.dtype).to(output.device)


def is_listening() -> bool:
    """Return False while backward runs: a checkpoint computes calls again."""
    return torch._C._current_graph_task_id() == -1
