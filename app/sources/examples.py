"""Example inputs: tensors of a described shape, and proposals from the names that a forward takes."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor, nn

from app.sources.spec import InputSpec

_TEXT = ("input_ids", "ids", "tokens", "token_ids", "decoder_input_ids")


def example(one: InputSpec) -> Tensor:
    """Return a tensor of this shape on the current default device: normal numbers, or of integers zeros and ones, which
    are indices of anything that has two entries. The generator is left as it was."""
    dtype = getattr(torch, one.dtype)
    if torch.get_default_device().type == "meta":
        return torch.empty(one.shape, dtype=dtype)
    generator = torch.Generator().manual_seed(0)
    if dtype.is_floating_point or dtype.is_complex:
        wide = dtype if dtype.itemsize >= 4 else torch.float32
        return torch.randn(one.shape, dtype=wide, generator=generator).to(dtype)
    return torch.randint(0, 2, one.shape, generator=generator).to(dtype)


def from_forward(model: nn.Module) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Propose inputs from the first layer that takes them, and the names of forward's required arguments."""
    try:
        parameters = [*inspect.signature(model.forward).parameters.values()]
    except (TypeError, ValueError):
        return (), {}
    plain = [
        one for one in parameters
        if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    ]  # fmt: skip
    needed, keywords = [one.name for one in plain], [one.kind is one.KEYWORD_ONLY for one in plain]
    if [name for name in needed if name not in _TEXT] in ([], needed[:1]):
        found = [InputSpec((1, 16), "int64") if name in _TEXT else _first_layer(model) for name in needed]
        if all(one is not None for one in found):
            made = [(example(one), name, keyword) for one, name, keyword in zip(found, needed, keywords, strict=True)
                    if one is not None]  # fmt: skip
            return (
                tuple(one for one, _, keyword in made if not keyword),
                {name: one for one, name, keyword in made if keyword},
            )
    return (), {}


def guess(model: nn.Module, name: str) -> InputSpec:
    """Return a description of an argument of forward to begin with, by its name and the model's first layer."""
    if name in _TEXT or name.endswith("_ids"):
        return InputSpec((1, 16), "int64", name)
    if "mask" in name:
        return InputSpec((1, 16), "bool", name)
    if name in ("t", "timestep", "timesteps", "time", "step", "labels", "class_labels", "y"):
        return InputSpec((1,), "int64", name)
    first = _first_layer(model) or InputSpec((1, 3, 32, 32))
    return InputSpec((1, *first.shape[1:]), first.dtype, name)


def _first_layer(model: nn.Module) -> InputSpec | None:
    """Return the input of the first layer with weights; None if its type does not determine one."""
    for layer in model.modules():
        if any(map(torch.nn.parameter.is_lazy, layer.parameters(recurse=False))):
            return None
        if isinstance(layer, nn.Linear):
            return InputSpec((2, layer.in_features))
        if isinstance(layer, nn.Embedding):
            return InputSpec((1, 16), "int64")
        if isinstance(layer, nn.Conv1d | nn.Conv2d | nn.Conv3d):
            return InputSpec((2, layer.in_channels, *((64,) * len(layer.kernel_size))))
        if isinstance(layer, nn.LSTM | nn.GRU | nn.RNN):
            return InputSpec((2, 16, layer.input_size))
    return None
