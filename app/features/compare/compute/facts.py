"""Facts of a model's modules that structure is compared by: class, settings and parameters, without values."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from app.features.compare.compute.structure import ModuleFacts
from app.util import module_tree
from app.util.user_frames import GENERATED

_LEFT_OUT = frozenset(("training", "call_super_init", "dump_patches", "T_destination"))
_PLAIN = (bool, int, float, complex, str, torch.dtype)
_LONGEST = 60  # letters of a setting


def facts_of(model: nn.Module) -> list[ModuleFacts]:
    """List the modules of a model, each after the one it is in."""
    names = {
        id(parameter): name for name, parameter in module_tree.named_parameters(model)
    }
    shared_settings: dict[object, tuple[tuple[str, str], ...]] = {}
    facts: list[ModuleFacts] = []
    visited: set[int] = set()
    waiting: list[tuple[str, nn.Module, int]] = [("", model, -1)]
    while waiting:
        path, module, parent = waiting.pop()
        if id(module) in visited:
            continue
        visited.add(id(module))
        kind = type(module)
        settings = _settings(module)
        tensors = _tensors(module, path, names)
        facts.append(
            ModuleFacts(
                path,
                _name(kind),
                parent,
                shared_settings.setdefault(settings, settings),
                tensors,
            )
        )
        at, prefix = len(facts) - 1, f"{path}." if path else ""
        children = [
            (f"{prefix}{name}", child, at)
            for name, child in module._modules.items()
            if child is not None
        ]
        waiting.extend(reversed(children))
    return facts


def _name(kind: type[nn.Module]) -> str:
    """Return the name of a class; without its module where that is named after the text that was generated."""
    of_text = kind.__module__.startswith(GENERATED)
    return kind.__qualname__ if of_text else f"{kind.__module__}.{kind.__qualname__}"


def _settings(module: nn.Module) -> tuple[tuple[str, str], ...]:
    """Return the public attributes other than tensors and modules, as text."""
    return tuple(
        [
            (name, text)
            for name, value in module.__dict__.items()
            if name[0] != "_"
            and name not in _LEFT_OUT
            and (text := _text(value)) is not None
        ]
    )


def _text(value: Any) -> str | None:
    if isinstance(value, _PLAIN):
        return str(value)[:_LONGEST]
    if value is None:
        return ""
    if type(value) in (tuple, list, torch.Size) and all(
        isinstance(element, _PLAIN) for element in value
    ):
        return str(tuple(value))[:_LONGEST]
    if (
        callable(value)
        and not isinstance(value, nn.Module)
        and (name := getattr(value, "__name__", None))
    ):
        return str(name)
    return None


def _tensors(
    module: nn.Module, path: str, names: dict[int, str]
) -> tuple[tuple[str, str], ...]:
    """Describe the module's own parameters and buffers: shape, dtype, what is tied or frozen."""
    if not module._parameters and not module._buffers:
        return ()
    descriptions: list[tuple[str, str]] = []
    for name, parameter in module._parameters.items():
        if parameter is None:
            descriptions.append((name, ""))
            continue
        parameter_path = f"{path}.{name}" if path else name
        first = names.get(id(parameter), parameter_path)
        text = _shape(parameter)
        text += f", tied to {first}" if first != parameter_path else ""
        descriptions.append(
            (name, text if parameter.requires_grad else f"{text}, frozen")
        )
    for name, buffer in module._buffers.items():
        if buffer is None or name in module._non_persistent_buffers_set:
            continue
        descriptions.append((name, _shape(buffer)))
    return tuple(descriptions)


def _shape(tensor: Tensor) -> str:
    return f"{'×'.join(map(str, tensor.shape)) or 'scalar'} {str(tensor.dtype).removeprefix('torch.')}"
