"""The state that a forward pass of a step began with, to run that very step again."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch

from app.training.recomputing.hashes import bits_of
from app.training.stepper import StepInputs
from app.util import module_tree
from app.util.rng import Generators

if TYPE_CHECKING:
    from torch import Tensor, nn

    from app.training.stepper import Stepper


class Snapshot:
    """Weights, buffers, accumulated gradients, generators and batch right before a forward pass of a step."""

    def __init__(self, stepper: Stepper, given: StepInputs) -> None:
        model = stepper.model
        self.given = given
        self.scale = (
            float(stepper.scaler.get_scale()) if stepper.scaler is not None else 1.0
        )
        self._parameters = [
            (parameter, parameter.detach().clone()) for parameter in model.parameters()
        ]
        self._buffers = [
            (module, name, buffer, buffer.detach().clone())
            for module in module_tree.modules(model)
            for name, buffer in module._buffers.items()
            if buffer is not None
        ]
        self._gradients = [
            (
                parameter,
                parameter.grad.detach().clone() if parameter.grad is not None else None,
            )
            for parameter, _ in self._parameters
        ]
        self._modes = [
            (module, module.training) for module in module_tree.modules(model)
        ]
        self.generators = Generators()

    def restore(self) -> None:
        """Put weights, buffers, accumulated gradients, modes and generators back."""
        with torch.no_grad():
            for parameter, value in self._parameters:
                parameter.copy_(value)
            for module, name, buffer, value in self._buffers:
                module._buffers[name] = buffer
                buffer.copy_(value)
        for parameter, gradient in self._gradients:
            parameter.grad = gradient.clone() if gradient is not None else None
        for module, training in self._modes:
            module.training = training
        self.generators.restore()


def seconds_to_copy(stepper: Stepper) -> float:
    """Measure how long a snapshot takes: the second of two, since the first allocates."""
    seconds = 0.0
    for _ in range(2):
        began = perf_counter()
        Snapshot(stepper, StepInputs(None, None))
        seconds = perf_counter() - began
    return seconds


def gradients_of(model: nn.Module) -> list[Tensor | None]:
    """Return copies of the gradients of the parameters, in their order."""
    return [
        None if parameter.grad is None else parameter.grad.detach().clone()
        for parameter in model.parameters()
    ]


def same_bits(a: list[Any], b: list[Any]) -> bool:
    """Return whether two lists of tensors and None are equal bit for bit."""
    for left, other in zip(a, b, strict=True):
        if left is None or other is None:
            if left is not other:
                return False
            continue
        left, other = (
            tensor.to_dense() if tensor.layout != torch.strided else tensor
            for tensor in (left, other)
        )
        if (
            left.shape != other.shape
            or left.dtype != other.dtype
            or not torch.equal(bits_of(left), bits_of(other))
        ):
            return False
    return True
