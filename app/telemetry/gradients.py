"""Gradient norms by layer."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from app.util import module_tree
from tapedeck.norms import norms_of

if TYPE_CHECKING:
    from torch import Tensor, nn


class LayerParameters:
    """A module's trainable parameters by the path of the owning module; one of the network itself by its name.

    `owners` are the layer of each of `parameters`, `layers` all of them, and `places` the index of each owner there.
    """

    def __init__(self, model: nn.Module) -> None:
        named = [
            (name, parameter)
            for name, parameter in module_tree.named_parameters(model)
            if parameter.requires_grad
        ]
        self.owners = [name.rpartition(".")[0] or name for name, _ in named]
        self.layers: tuple[str, ...] = tuple(dict.fromkeys(self.owners))
        self.parameters = [parameter for _, parameter in named]
        self.places = [self.layers.index(owner) for owner in self.owners]


class GradientSampler(LayerParameters):
    """Gradient norms by layer: `measure` returns a device tensor, which `by_layer` splits once it is on the CPU."""

    def measure(self) -> Tensor:
        """Return the 2-norm of each parameter's gradient, (parameters,) float32, on their device; NaN without one."""
        gradients = [parameter.grad for parameter in self.parameters]
        present = [gradient for gradient in gradients if gradient is not None]
        device = (present or self.parameters)[0].device
        missing = torch.full((), math.nan, device=device)
        norms = iter(norms_of(present))
        return torch.stack(
            [
                missing if gradient is None else next(norms).to(device, torch.float32)
                for gradient in gradients
            ]
        )

    def by_layer(self, norms: list[float]) -> tuple[float, ...]:
        """Return the 2-norm of each layer's gradients together, in the order of `layers`; NaN without gradients."""
        squares: list[float | None] = [None] * len(self.layers)
        for layer, norm in zip(self.places, norms, strict=True):
            if not math.isnan(norm):
                squares[layer] = (squares[layer] or 0.0) + norm * norm
        return tuple(
            math.nan if square is None else math.sqrt(square) for square in squares
        )
