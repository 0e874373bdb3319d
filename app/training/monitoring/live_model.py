"""The model of a running run, and visits between two steps that do not change its numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import torch
from msgspec import Struct

from app.data.dataset import Dataset
from app.util import module_tree
from app.util.rng import borrowed

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.optim import Optimizer

    from app.training.stepper import Stepper

T = TypeVar("T")


class LiveRun(Struct):
    """The state of a run between two steps, for visitors. `epoch` and `step` are those of the last step taken, the
    `batch`-th of its epoch."""

    stepper: Stepper
    data: Dataset
    device: str
    epoch: int = 0
    step: int = 0
    batch: int = 0
    caught: tuple[Tensor, Tensor] | None = (
        None  # the batch that a watch point held at, inputs and labels
    )

    @property
    def model(self) -> nn.Module:
        """The live model, not a copy."""
        return self.stepper.model

    @property
    def optimizer(self) -> Optimizer:
        return self.stepper.optimizer

    @property
    def loss(self) -> nn.Module:
        return self.stepper.chief_loss

    def weights(self) -> dict[str, Tensor]:
        """Return a copy of the state_dict on the CPU, of the EMA weights if there are any."""
        state = self.stepper.validated.state_dict()
        return {
            name: value.detach().to("cpu", copy=True) for name, value in state.items()
        }

    def visit(self, function: Callable[[LiveRun], T]) -> T:
        """Run `function(self)`, then restore generators, buffers, train flags and gradients."""
        with borrowed(), preserved(self.model):
            return function(self)


@contextmanager
def preserved(model: nn.Module) -> Iterator[None]:
    """Restore buffers, gradients and train flags after a forward and backward pass."""
    buffers = [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
    flags = [(module, module.training) for module in module_tree.modules(model)]
    gradients = [(parameter, parameter.grad) for parameter in model.parameters()]
    # backward() adds to a gradient in place, so the old ones step aside.
    for parameter, _ in gradients:
        parameter.grad = None
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, value in buffers:
                buffer.copy_(value)
        for module, training in flags:
            module.training = training
        for parameter, gradient in gradients:
            parameter.grad = gradient
