"""Bytes of a training step by layer, as values."""

from __future__ import annotations

from msgspec import Struct


class LayerBytes(Struct, frozen=True):
    """`optimizer` is the optimizer's state of the parameters, `activations` what backward holds of the forward."""

    layer: str
    parameters: int = 0
    gradients: int = 0
    optimizer: int = 0
    activations: int = 0

    @property
    def total(self) -> int:
        return self.parameters + self.gradients + self.optimizer + self.activations


class StepBytes(Struct, frozen=True):
    """The layers in the order of the net; `batch` is the size of the batch that the activations are of."""

    layers: tuple[LayerBytes, ...]
    batch: int

    @property
    def total(self) -> LayerBytes:
        names = ("parameters", "gradients", "optimizer", "activations")
        return LayerBytes(
            "", *(sum(getattr(layer, name) for layer in self.layers) for name in names)
        )
