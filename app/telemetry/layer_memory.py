"""Memory of a training step by layer: parameters, gradients, optimizer state, activations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from app.telemetry.layer_bytes import LayerBytes, StepBytes
from app.util import module_tree

if TYPE_CHECKING:
    from torch import Tensor, nn


def step_bytes(
    model: nn.Module, state: Mapping[Any, Any], batch: int, forward: Callable[[], Any]
) -> StepBytes:
    """Count the bytes of a step. `state` is that of the optimizer by parameter; `forward` runs net and loss once.

    Gradients are counted for every trainable parameter, as they are there before the optimizer's step; parameters
    and buffers once, where they are shared by layers at the first of them.
    """
    counted: dict[str, list[int]] = {}
    for name, tensor in (
        *module_tree.named_parameters(model),
        *module_tree.named_buffers(model),
    ):
        row = counted.setdefault(name.rpartition(".")[0], [0, 0, 0, 0])
        row[0] += _bytes(tensor)
        if tensor.requires_grad:
            row[1] += _bytes(tensor)
        row[2] += sum(
            _bytes(value)
            for value in state.get(tensor, {}).values()
            if _is_tensor(value)
        )
    with saved(model) as activations:
        output = forward()
        for layer, size in activations.values():
            counted.setdefault(layer, [0, 0, 0, 0])[3] += size
        del output
    order = {
        path: index for index, (path, _) in enumerate(module_tree.named_modules(model))
    }
    rows = sorted(counted.items(), key=lambda item: order.get(item[0], len(order)))
    return StepBytes(
        tuple(LayerBytes(path, *row) for path, row in rows if any(row)), batch
    )


@contextmanager
def saved(model: nn.Module) -> Iterator[dict[int, tuple[str, int]]]:
    """Record the storages that autograd saves for backward, once each, with the layer that saved them first.

    Parameters and buffers are no activations. The dict holds ids of storages that live as long as the graph does.
    """
    model_storages = {
        _storage(tensor)
        for tensor in (*module_tree.parameters(model), *module_tree.buffers(model))
    }
    running: list[str] = [""]
    activations: dict[int, tuple[str, int]] = {}
    alive: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        key = _storage(tensor)
        if key not in model_storages and key not in activations:
            activations[key] = (running[-1], tensor.untyped_storage().nbytes())
            alive.append(tensor.detach())
        return tensor

    def leave(*_: Any) -> None:
        running.pop()

    handles = []
    for path, module in module_tree.named_modules(model):
        handles.append(
            module_tree.before_call(
                module, lambda _module, _inputs, path=path: running.append(path)
            )
        )
        handles.append(module_tree.on_call(module, leave, always_call=True))
    try:
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            yield activations
    finally:
        for handle in handles:
            handle.remove()


def _storage(tensor: Tensor) -> int:
    # Not the address of the data, which meta tensors do not have.
    return tensor.untyped_storage()._cdata


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)
