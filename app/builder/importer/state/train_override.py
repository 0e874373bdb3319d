"""Modules that do not follow the mode of their model: an overridden `train()`, or `eval()` called in `forward`."""

from __future__ import annotations

import dis
from collections.abc import Iterator
from functools import cache
from types import CodeType, FrameType
from typing import Any

from torch import nn

from app.builder.importer.fallback_report import parent
from app.builder.importer.state import side_effects
from app.builder.importer.tracing import source_lines
from app.builder.importer.tracing.frames import TraceError
from app.builder.importer.tracing.proxies import Training
from app.util import module_tree
from app.util.torch_calls import FunctionCalls

# Calls that only read facts, and those of `@torch.no_grad()`.
_FACTS = frozenset(
    {"__get__", "dim", "size", "numel", "_set_grad_enabled", "set_grad_enabled"}
)


def set_mode(model: nn.Module, training: bool) -> Training:
    """Put a copied model into a mode by its own `train()`; return the flag that modules following the mode now hold.
    Raises TraceError if `train()` computes with tensors."""
    owners = [
        path for path, module in module_tree.named_modules(model) if overrides(module)
    ]
    flag = Training(training)
    if not owners:
        module_tree.set_mode(model, training)
        fixed_modes: dict[str, bool] = {}
    else:
        watch = _NothingComputed(
            owners[0], type(model.get_submodule(owners[0])).__name__
        )
        with watch:
            module_tree.set_mode(model, not training)
        other, before = _modes(model), side_effects.facts(model)
        with watch:
            module_tree.set_mode(model, training)
        flag.asked = bool(side_effects.differing(before, side_effects.facts(model)))
        fixed_modes = {
            path: on
            for path, on in _modes(model).items()
            if on is not training or other[path] is training
        }
    for path, module in module_tree.named_modules(model):
        if path not in fixed_modes:
            by_identity = any(
                map(_by_identity, source_lines.functions_of(type(module)))
            )
            flag.asked |= by_identity
            module.__dict__["training"] = training if by_identity else flag
    return flag


def overrides(module: nn.Module) -> bool:
    """Return whether a module overrides `train()`."""
    return type(module).train is not nn.Module.train or "train" in module.__dict__


def _modes(model: nn.Module) -> dict[str, bool]:
    return {path: module.training for path, module in module_tree.named_modules(model)}


class _NothingComputed(FunctionCalls):
    """Rejects tensor operations in `train()`, which no drawing would show."""

    def __init__(self, path: str, name: str) -> None:
        super().__init__()
        self._path, self._name = path, name

    def visit(self, func: Any, args: Any, kwargs: Any, frame: FrameType) -> Any:
        if getattr(func, "__name__", "") not in _FACTS:
            why = "its train() computes with tensors"
            raise TraceError(
                f"{self._path or self._name} cannot be followed: {why}",
                self._path,
                why,
                False,
            )
        return func(*args, **kwargs)


def _by_identity(function: Any) -> bool:
    """Return whether a function compares `self.training` by `is`, which bypasses a proxy flag."""
    return _compares(function.__code__)


@cache
def _compares(code: CodeType) -> bool:
    if "training" not in code.co_names:
        return False
    steps = list(dis.get_instructions(code))
    return any(
        instruction.opname == "LOAD_ATTR"
        and instruction.argval == "training"
        and third.opname == "IS_OP"
        for instruction, third in zip(steps, steps[2:], strict=False)
    )


def follows(module: nn.Module) -> bool:
    """Return whether a layer follows the mode of the model, or has none."""
    return all(
        type(submodule.__dict__.get("training")) is Training
        for submodule in module_tree.modules(module)
        if _has_modes(submodule)
    )


def _has_modes(module: nn.Module) -> bool:
    if isinstance(module, nn.modules.batchnorm._NormBase):
        return module.running_mean is not None
    if isinstance(module, nn.RReLU):
        return True
    chance = (
        getattr(module, "dropout", None)
        if isinstance(module, nn.MultiheadAttention | nn.RNNBase)
        else None
    )
    if (
        isinstance(module, nn.modules.dropout._DropoutNd)
        or type(module).__name__ == "StochasticDepth"
    ):
        chance = module.p
    return isinstance(chance, float | int) and chance > 0


def check_apart(model: nn.Module, path: str, training: bool) -> None:
    """Put an untraced part into its mode. Raises TraceError if the mode of a submodule is fixed from
    outside, so that the part alone would have another."""
    submodule = model.get_submodule(path)
    as_held = {
        name: _plain(module.training, training)
        for name, module in module_tree.named_modules(submodule)
    }
    for module in module_tree.modules(submodule):
        module.__dict__["training"] = training
    submodule.train(training)
    if as_held != {
        name: module.training for name, module in module_tree.named_modules(submodule)
    }:
        owner = next(
            (
                outer
                for outer in _upwards(path)
                if overrides(model.get_submodule(outer))
            ),
            "",
        )
        why = "its train() fixes the mode of its submodules"
        raise TraceError(
            f"{owner or type(model).__name__} cannot be followed: {why}",
            owner,
            why,
            False,
        )


def _plain(value: Any, training: bool) -> bool:
    return training if type(value) is Training else value


def _upwards(path: str) -> Iterator[str]:
    while path:
        path = parent(path)
        yield path
