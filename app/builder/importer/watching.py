"""What is asked of torch while a model is followed, and what a call leaves behind in the model."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import fx, nn

from app.builder.importer.values import PROXIES
from app.builder.ops import COUNTED


@contextlib.contextmanager
def patched(
    following: Callable[[], bool],
    called: Callable[[nn.Module, Any, Any], Any],
    owned: Callable[[torch.Tensor], Any],
    applied: Callable[[type, Any], Any],
    changed: Callable[[nn.Module, str], Any],
) -> Iterator[None]:
    """While `following`, calls of modules, tensors read off modules and set on them, and calls of a Function come here
    first."""
    call, read, write = nn.Module.__call__, nn.Module.__getattr__, nn.Module.__setattr__
    apply = torch.autograd.Function.__dict__["apply"]

    def calling(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        return called(module, args, kwargs) if following() else call(module, *args, **kwargs)

    def attribute(module: nn.Module, name: str) -> Any:
        value = read(module, name)
        return owned(value) if following() and isinstance(value, torch.Tensor) else value

    def applying(function: type, *args: Any, **kwargs: Any) -> Any:
        if following():
            return applied(function, args)
        return apply.__get__(None, function)(*args, **kwargs)

    def setting(module: nn.Module, name: str, value: Any) -> None:
        if type(value) not in PROXIES:
            write(module, name, value)
        elif name in module._buffers or name in module._parameters:
            changed(module, name)
        else:
            module.__dict__[name] = value

    nn.Module.__call__, nn.Module.__getattr__ = calling, attribute  # type: ignore[method-assign]
    nn.Module.__setattr__ = setting  # type: ignore[method-assign,assignment]
    torch.autograd.Function.apply = classmethod(applying)  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        nn.Module.__call__, nn.Module.__getattr__ = call, read  # type: ignore[method-assign]
        nn.Module.__setattr__ = write  # type: ignore[method-assign]
        torch.autograd.Function.apply = apply  # type: ignore[method-assign]


# --- Hooks


def with_hooks(module: nn.Module, forward: Callable[..., Any]) -> Callable[..., Any]:
    """`forward`, which takes the module first, with the hooks that torch calls before and after it."""
    if not module._forward_pre_hooks and not module._forward_hooks:
        return forward

    def hooked(owner: nn.Module, *args: Any, **kwargs: Any) -> Any:
        for key, before in list(owner._forward_pre_hooks.items()):
            if key in owner._forward_pre_hooks_with_kwargs:
                changed = before(owner, args, kwargs)
                args, kwargs = changed if changed is not None else (args, kwargs)
            else:
                changed = before(owner, args)
                args = args if changed is None else changed if isinstance(changed, tuple) else (changed,)
        result = forward(owner, *args, **kwargs)
        for key, after in list(owner._forward_hooks.items()):
            named = key in owner._forward_hooks_with_kwargs
            changed = after(owner, args, kwargs, result) if named else after(owner, args, result)
            result = result if changed is None else changed
        return result

    return hooked


def gradient_hooks(model: nn.Module) -> Iterator[tuple[str, str]]:
    """Submodules whose gradients a hook may change, and the reason in words; innermost first."""
    for path, module in reversed(list(model.named_modules())):
        if module._backward_hooks or module._backward_pre_hooks:
            yield path, "it has a hook on its gradients, and a drawing has none"
        for name, parameter in module._parameters.items():
            if parameter is not None and getattr(parameter, "_backward_hooks", None):
                yield path, f"{name} has a hook on its gradient, and a drawing has none"


# --- State


Facts = dict[tuple[str, str], Any]


def counters(model: nn.Module) -> Facts:
    """Numbers that modules keep in attributes."""
    return {
        (path, name): value
        for path, module in model.named_modules()
        for name, value in module.__dict__.items() if type(value) in (int, float)
    }  # fmt: skip


def left_behind(model: nn.Module, before: Facts, became: dict[fx.Node, fx.Node]) -> tuple[str, str] | None:
    """The submodule that another call would find changed, and the reason in words; None if there is none."""
    buffers = {id(node): path for node in became if (path := _buffer(model, node))}
    for path in buffers.values():
        owner, _, name = path.rpartition(".")
        if name != COUNTED:  # a normalization in the drawing counts too
            return owner, f"it changes its buffer {name} at every call"
    for place, value in counters(model).items():
        if before.get(place, value) != value:
            return place[0], f"it changes its {place[1]} at every call"
    return None


def _buffer(model: nn.Module, node: fx.Node) -> str:
    if node.op != "get_attr":
        return ""
    owner, _, name = str(node.target).rpartition(".")
    try:
        return str(node.target) if name in model.get_submodule(owner)._buffers else ""
    except AttributeError:
        return ""


# --- Results


def plain(result: Any) -> Any:
    """Named tuples, ordered dicts and dataclasses as tuples and dicts."""
    if type(result) in PROXIES:
        return result
    if isinstance(result, tuple):
        return tuple(map(plain, result))
    if isinstance(result, list):
        return [plain(item) for item in result]
    if isinstance(result, dict):
        return {key: plain(value) for key, value in result.items()}
    if _is_record(result):
        return {name: plain(getattr(result, name)) for name in _fields(result)}
    return result


def refilled(result: Any, leaves: Iterator[Any]) -> Any:
    """The same nest of values with other leaves, in the order of the flattened `plain` one."""
    if type(result) in PROXIES:
        return next(leaves)
    if isinstance(result, tuple):
        items = [refilled(item, leaves) for item in result]
        return type(result)(*items) if hasattr(result, "_fields") else tuple(items)
    if isinstance(result, list):
        return [refilled(item, leaves) for item in result]
    if isinstance(result, dict):
        changed = copy.copy(result)
        for key, value in result.items():
            changed[key] = refilled(value, leaves)
        return changed
    if _is_record(result):
        record = copy.copy(result)
        for name in _fields(result):
            object.__setattr__(record, name, refilled(getattr(result, name), leaves))
        return record
    return next(leaves)


def _is_record(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def _fields(record: Any) -> list[str]:
    return [field.name for field in dataclasses.fields(record) if getattr(record, field.name) is not None]
