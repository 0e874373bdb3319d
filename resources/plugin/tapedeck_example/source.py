"""A source of models: `tapedeck draw example:mlp --args '{"width": 32}' --trust --out net.svg`."""

from __future__ import annotations

from torch import Tensor, nn, ones


def make(name: str, width: int = 16) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Return the model of a name, and inputs to try it with."""
    layers = {"mlp": nn.ReLU, "smooth": nn.GELU}
    model = nn.Sequential(nn.Linear(8, width), layers[name](), nn.Linear(width, 2))
    return model, (ones(4, 8),)
