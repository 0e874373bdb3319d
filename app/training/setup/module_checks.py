"""Detect mistakes in custom modules that torch does not report, between two steps of a run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from msgspec import Struct

from app.util import module_tree

if TYPE_CHECKING:
    from torch import Tensor, nn


class Mistake(Struct, frozen=True):
    """A mistake in a module: `layer` is the path of the module with the attribute `name`; `text` explains it and the
    fix."""

    layer: str
    name: str
    text: str


def mistakes(model: nn.Module) -> tuple[Mistake, ...]:
    """Find tensors stored as plain attributes: with their autograd graph, or aliasing a weight."""
    owners = {
        _storage_of(p): name
        for name, p in (*model.named_parameters(), *model.named_buffers())
        if p.numel()
    }
    problems = []
    for path, module in module_tree.named_modules(model):
        where = f"{path}." if path else ""
        for name, tensor in _plain_tensors(module):
            if tensor.grad_fn is not None:
                text = (
                    f"{where}{name} is stored with its autograd graph, which keeps everything that it was computed "
                    f"from in memory. Store {name}.detach(), or the number {name}.item()."
                )
                problems.append(Mistake(path, name, text))
            elif tensor.numel() and _storage_of(tensor) in owners:
                text = (
                    f"{where}{name} is not a copy of {owners[_storage_of(tensor)]} but shares its memory: it changes "
                    f"with every step. Store {name}.clone()."
                )
                problems.append(Mistake(path, name, text))
    return tuple(problems)


def _plain_tensors(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    for name, value in vars(module).items():
        # spectral_norm and weight_norm store a weight there that is recomputed in every forward.
        computed = any(hasattr(module, name + end) for end in ("_orig", "_v"))
        if name.startswith("_") or computed or isinstance(value, torch.nn.Parameter):
            continue
        values: tuple[Any, ...] = (
            tuple(value[-1:]) if isinstance(value, list | tuple) else (value,)
        )
        for candidate in values:
            if isinstance(candidate, torch.Tensor):
                yield name, candidate


def _storage_of(tensor: Tensor) -> tuple[str, int]:
    return str(tensor.device), tensor.untyped_storage().data_ptr()
