"""Qualified names of the modules and tensors of a traced model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from app.builder.importer.fallback_report import inside
from app.util import module_tree


class QualifiedNames:
    """Paths of modules and tensors. `original` is the model that was copied: closures may still refer to it."""

    def __init__(self, model: nn.Module, original: nn.Module | None) -> None:
        self._paths: dict[nn.Module, list[str]] = {}
        self._owned: dict[int, list[str]] = {}
        for name, module in module_tree.named_modules(model, remove_duplicate=False):
            self._paths.setdefault(module, []).append(name)
        self._own(model)
        self._twins: dict[nn.Module, nn.Module] = {}
        self._copies: dict[int, torch.Tensor] = {}
        if original is not None:
            self._own(original)
            there = dict(module_tree.named_modules(model, remove_duplicate=False))
            self._twins = {
                twin: there[name]
                for name, twin in module_tree.named_modules(
                    original, remove_duplicate=False
                )
            }
            mine = dict(_tensors(model))
            self._copies = {
                id(tensor): mine[name] for name, tensor in _tensors(original)
            }

    def _own(self, model: nn.Module) -> None:
        for name, tensor in _tensors(model):
            self._owned.setdefault(id(tensor), []).append(name)

    def in_the_copy(self, module: nn.Module) -> nn.Module:
        """Map a module of the original to its copy; return others unchanged."""
        return self._twins.get(module, module)

    def copy_of(self, tensor: torch.Tensor) -> torch.Tensor:
        """Map a tensor of the original to its copy; return others unchanged."""
        return self._copies.get(id(tensor), tensor)

    def of_module(self, module: nn.Module, running: str) -> str | None:
        """Return the path of a module, preferably inside the running one; None without."""
        return _nearest(self._paths.get(module), running)

    def of_tensor(self, tensor: torch.Tensor, running: str) -> str | None:
        """Return the path of a tensor likewise."""
        return _nearest(self._owned.get(id(tensor)), running)

    def has(self, value: Any) -> bool:
        """Return whether a tensor belongs to the model."""
        return id(value) in self._owned


def _tensors(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    yield from module_tree.named_parameters(model, remove_duplicate=False)
    yield from module_tree.named_buffers(model, remove_duplicate=False)


def _nearest(names: list[str] | None, running: str) -> str | None:
    if not names or len(names) == 1:
        return names[0] if names else None
    return next((name for name in names if inside(name, running)), names[0])
