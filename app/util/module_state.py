"""The state of a module that a forward pass changes, put back afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor, nn


@contextmanager
def temporary_mode(model: nn.Module, train: bool) -> Iterator[None]:
    """Switch to train or eval mode; restore modes, buffers and parameters whose `.data` was set afterwards.

    Restores all buffers, since kernels of batch norm write running statistics without raising the version counter.
    """
    import torch
    from torch.nn.parameter import is_lazy

    modes = [(module, module.training) for module in model.modules()]
    buffers = [(buffer, buffer.detach().clone()) for buffer in model.buffers() if not is_lazy(buffer)]
    data = [(parameter, parameter.data) for parameter in model.parameters() if _has_memory(parameter)]
    model.train(train)
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode
        with torch.no_grad():
            for buffer, before in buffers:
                buffer.copy_(before)
            for parameter, before in data:
                if parameter.data_ptr() != before.data_ptr() or parameter.shape != before.shape:
                    parameter.data = before


def _has_memory(parameter: Tensor) -> bool:
    """Return whether a parameter is an ordinary dense tensor with memory of its own."""
    import torch
    from torch.nn.parameter import is_lazy

    return not is_lazy(parameter) and parameter.layout is torch.strided and type(parameter.data) is torch.Tensor
