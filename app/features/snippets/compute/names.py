"""Collect the named tensors of a snippet at its end, with their owners and values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from msgspec import Struct
from torch import Tensor, nn

from app.autograd.walk import short_name
from app.features.snippets.values import NamedTensor
from app.util import module_tree
from tapedeck import devices, norms

FEW = 8  # values that are shown, and members of a list that are inspected
MOST = 400  # rows


class ScopeNames(Struct):
    """Tensors and modules by name, in the order of first binding; a name comes before its members."""

    tensors: dict[str, Tensor] = {}
    modules: dict[str, nn.Module] = {}

    def add(self, scope: Mapping[str, Any]) -> None:
        """Add the tensors and modules bound in a scope, including members of lists and tuples."""
        for name, value in scope.items():
            if name.startswith("__"):
                continue
            self._put(name, value)
            if isinstance(value, (list, tuple)):
                for index, member in enumerate(value[:FEW]):
                    self._put(f"{name}[{index}]", member)
            elif isinstance(value, dict):
                for key, member in list(value.items())[:FEW]:
                    self._put(f"{name}[{key!r}]", member)

    def _put(self, name: str, value: Any) -> None:
        if isinstance(value, Tensor):
            self.tensors.setdefault(name, value)
        elif isinstance(value, nn.Module):
            self.modules.setdefault(name, value)

    def parameters(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the parameters of all modules, tied ones by all their names."""
        for prefix, module in self.modules.items():
            yield from module_tree.named_parameters(
                module, prefix, remove_duplicate=False
            )

    def buffers(self) -> Iterator[tuple[str, Tensor]]:
        for prefix, module in self.modules.items():
            yield from module_tree.named_buffers(module, prefix)

    def paths(self) -> dict[nn.Module, str]:
        """Return the path of each module, such as `model.layer1.0`."""
        paths: dict[nn.Module, str] = {}
        for prefix, module in self.modules.items():
            for path, submodule in module_tree.named_modules(module, prefix=prefix):
                paths.setdefault(submodule, path)
        return paths

    def of_tensors(self) -> dict[int, tuple[str, ...]]:
        """Map the `id` of a tensor to its names; parameters of modules by path, after their variable names."""
        return _gathered(
            (id(tensor), name)
            for name, tensor in (*self.tensors.items(), *self.parameters())
        )

    def of_results(self) -> dict[Any, tuple[str, ...]]:
        """Autograd node -> names of the tensors that it made."""
        node_names = (
            (tensor.grad_fn, name)
            for name, tensor in self.tensors.items()
            if "[" not in name
        )
        return _gathered((node, name) for node, name in node_names if node is not None)

    def rows(self) -> tuple[NamedTensor, ...]:
        """Return a row for every tensor; parameters of modules last."""
        every = {**dict(self.parameters()), **self.tensors}
        order = [*self.tensors, *(name for name in every if name not in self.tensors)]
        return tuple(row_of(name, every[name]) for name in order[:MOST])


def _gathered(pairs: Iterable[tuple[Any, str]]) -> dict[Any, tuple[str, ...]]:
    names: dict[Any, tuple[str, ...]] = {}
    for key, name in pairs:
        names[key] = (*names.get(key, ()), name)
    return names


def row_of(name: str, tensor: Tensor) -> NamedTensor:
    """Describe a tensor as plain data, partly if it cannot be read (a lazy parameter, one within vmap)."""
    try:
        return _row(name, tensor)
    except (RuntimeError, NotImplementedError, AttributeError, TypeError) as error:
        dtype, why = (
            str(tensor.dtype).removeprefix("torch."),
            str(error).partition("\n")[0],
        )
        return NamedTensor(
            name,
            (),
            dtype,
            tensor.requires_grad,
            tensor.is_leaf,
            values=f"cannot be read: {why}",
        )


def _row(name: str, tensor: Tensor) -> NamedTensor:
    # Accessing .grad of a non-leaf makes torch warn, unless it retains grad.
    grad = tensor.grad if tensor.is_leaf or tensor.retains_grad else None
    norm = None
    if grad is not None:
        norm = float(norms.norm_of(devices.doubled(norms.values_of(grad))))
    return NamedTensor(
        name,
        tuple(map(int, tensor.shape)),
        str(tensor.dtype).removeprefix("torch."),
        tensor.requires_grad,
        tensor.is_leaf,
        short_name(tensor.grad_fn) if tensor.grad_fn is not None else "",
        values_of(tensor),
        "" if grad is None else values_of(grad),
        norm,
        bool(tensor.retains_grad),
        None if tensor.is_inference() else int(tensor._version),
    )


def values_of(tensor: Tensor) -> str:
    """Format the first values, `[1.5, 2, …]`; "" if they cannot be read.

    >>> values_of(torch.tensor([[1.0, 2.5]])), values_of(torch.tensor(3)), values_of(torch.arange(20))
    ('[1, 2.5]', '3', '[0, 1, 2, 3, 4, 5, 6, 7, …]')
    """
    if tensor.is_meta or tensor.layout is not torch.strided or not tensor.numel():
        return ""
    plain = tensor.dequantize() if tensor.is_quantized else tensor
    flat = plain.detach().reshape(-1)[:FEW].tolist()
    if tensor.dim() == 0:
        return _number(flat[0])
    rest = ["…"] if tensor.numel() > FEW else []
    return f"[{', '.join([*map(_number, flat), *rest])}]"


def _number(value: Any) -> str:
    return (
        f"{value:.5g}"
        if isinstance(value, float) and math.isfinite(value)
        else str(value)
    )
