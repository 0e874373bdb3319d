"""Find the models of an optimizer's parameters among all live modules, and norms of their gradients by layer."""

from __future__ import annotations

import gc
import math
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn

from tapedeck import devices
from tapedeck.norms import norms_of

_WRAPPERS = {
    "DistributedDataParallel": "module",
    "DataParallel": "module",
    "OptimizedModule": "_orig_mod",
}


def find_models(
    parameters: Iterable[Tensor], named_models: Mapping[str, nn.Module] | None = None
) -> dict[str, nn.Module]:
    """Return the outermost modules that hold `parameters`, by name: a variable of the script, else of the class.

    One pass over the live objects of the process, since a forward hook on every module would cost every call, and
    change what is compiled. The models in `named_models` come first, with their names.
    """
    remaining = {id(parameter) for parameter in parameters}
    models: dict[str, nn.Module] = {}
    for name, model in (named_models or {}).items():
        parameter_ids = {id(parameter) for parameter in model.parameters()}
        if parameter_ids & remaining:
            models[name] = model
            remaining -= parameter_ids
    if remaining:
        used_names = set(models)
        for model in _outermost(remaining):
            inner = unwrapped(model)
            name = free_name(
                variable_of(model) or variable_of(inner) or type(inner).__name__,
                used_names,
            )
            used_names.add(name)
            models[name] = model
    return models


def _outermost(parameter_ids: set[int]) -> list[nn.Module]:
    """Return the fewest modules without a parent that hold all of the wanted parameters that a module holds."""
    modules = [
        candidate
        for candidate in gc.get_objects()
        if issubclass(type(candidate), nn.Module)
    ]
    modules = [
        candidate
        for candidate in modules
        if "_parameters" in candidate.__dict__ and "_modules" in candidate.__dict__
    ]
    parents: dict[int, list[nn.Module]] = {}
    for module in modules:
        for child in module._modules.values():
            parents.setdefault(id(child), []).append(module)
    waiting = [
        candidate
        for candidate in modules
        if any(id(p) in parameter_ids for p in candidate._parameters.values())
    ]
    visited, tops = {id(candidate) for candidate in waiting}, []
    while waiting:
        module = waiting.pop()
        above = parents.get(id(module), [])
        if not above:
            tops.append(module)
        for parent in above:
            if id(parent) not in visited:
                visited.add(id(parent))
                waiting.append(parent)
    coverage = [
        ({id(p) for p in top.parameters()} & parameter_ids, top) for top in tops
    ]
    chosen = []
    while coverage:
        most, top = max(coverage, key=lambda pair: len(pair[0]))
        if not most:
            break
        chosen.append(top)
        coverage = [
            (left - most, other) for left, other in coverage if other is not top
        ]
    return chosen


def unwrapped(model: nn.Module) -> nn.Module:
    """Return the module inside the wrappers of torch.compile and of data parallelism."""
    while inner := getattr(model, _WRAPPERS.get(type(model).__name__, ""), None):
        model = inner
    return model


def wrappers_of(model: nn.Module) -> list[nn.Module]:
    """Return the modules that `unwrapped` takes off, outermost first."""
    wrappers = []
    while inner := getattr(model, _WRAPPERS.get(type(model).__name__, ""), None):
        wrappers.append(model)
        model = inner
    return wrappers


def is_averaged(model: nn.Module) -> bool:
    """Return whether DistributedDataParallel averages the gradients of a model, or of a part of it, over the ranks."""
    return any(
        type(module).__name__ == "DistributedDataParallel" for module in model.modules()
    )


def is_compiled(model: nn.Module) -> bool:
    """Return whether any part of a model is compiled, so that no hook may be put on it."""
    return any(
        type(module).__name__ == "OptimizedModule"
        or getattr(module, "_compiled_call_impl", None) is not None
        for module in model.modules()
    )


def variable_of(value: object) -> str:
    """Return the name of the variable that holds a value, in a function that is under way or in the script; "" if none
    does.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if not str(frame.f_globals.get("__name__", "")).startswith(
            ("torch", "tapedeck")
        ):
            for name, local_value in list(frame.f_locals.items()):
                if local_value is value and not name.startswith("_") and name != "self":
                    return name
        frame = frame.f_back
    script = vars(sys.modules["__main__"])
    return next(
        (
            name
            for name, candidate in list(script.items())
            if candidate is value and not name.startswith("_")
        ),
        "",
    )


def free_name(name: str, used_names: Collection[str]) -> str:
    """Return a name, with a number appended if it is taken."""
    number = 2
    free = name
    while free in used_names:
        free, number = f"{name} {number}", number + 1
    return free


def rate_of(group: Mapping[str, Any]) -> float:
    """Return the learning rate of a parameter group; NaN if it has none."""
    rate = group.get("lr", math.nan)
    return rate if type(rate) is float else float(rate)


class Layers:
    """The parameters of one optimizer by the layer that owns them, named with its model where there are several."""

    def __init__(
        self, optimizer: torch.optim.Optimizer, models: Mapping[str, nn.Module]
    ) -> None:
        several = len(models) > 1
        self.parameters: list[Tensor] = [
            tensor for group in optimizer.param_groups for tensor in group["params"]
        ]
        paths: dict[int, str] = {}
        for model_name, model in models.items():
            inner = unwrapped(model)
            for path, parameter in inner.named_parameters():
                plain_path = path.replace("_orig_mod.", "")
                owner = plain_path.rpartition(".")[0] or (
                    plain_path if inner._modules else ""
                )  # "" is a model of one layer
                name = (
                    f"{model_name}.{owner}".removesuffix(".")
                    if several
                    else owner or model_name
                )
                paths.setdefault(id(parameter), name)
        owners = [
            paths.get(id(tensor), f"parameter {number}")
            for number, tensor in enumerate(self.parameters)
        ]
        self.names = tuple(dict.fromkeys(owners))
        indices = {name: index for index, name in enumerate(self.names)}
        self._layer_of = [indices[owner] for owner in owners]

    def measure(self, scale: float = 1.0) -> list[float]:
        """Return the norm of each layer's gradients over `scale`; NaN for a layer that has none."""
        pairs = [
            (layer, parameter.grad)
            for layer, parameter in zip(self._layer_of, self.parameters, strict=True)
            if parameter.grad is not None
        ]
        norms = fetched(norms_of([gradient for _, gradient in pairs]))
        by_layer: list[list[float]] = [[] for _ in self.names]
        for (layer, _), norm in zip(pairs, norms, strict=True):
            by_layer[layer].append(norm)
        return [math.hypot(*norms) / scale if norms else math.nan for norms in by_layer]


def fetched(values: Sequence[Tensor]) -> list[float]:
    """Return the values of scalar tensors, with one transfer per device."""
    by_device: dict[torch.device, list[int]] = {}
    for index, value in enumerate(values):
        by_device.setdefault(value.device, []).append(index)
    numbers = [0.0] * len(values)
    for indices in by_device.values():
        dtype = devices.widest_float(values[indices[0]].device.type)
        together = torch.stack([values[position].to(dtype) for position in indices])
        for index, number in zip(indices, together.tolist(), strict=True):
            numbers[index] = number
    return numbers
