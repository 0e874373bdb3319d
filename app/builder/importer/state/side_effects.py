"""Side effects of a call: attributes, lists, globals and random states that the next call would find changed."""

from __future__ import annotations

import collections
import random
import sys
from collections.abc import Collection, Iterator
from typing import Any

import torch
from torch import fx, nn

from app.builder.catalog.ops import COUNTED
from app.builder.importer.fallback_report import inside
from app.builder.importer.lowering.constructor_args import CONSTRUCTOR_ARGS
from app.builder.importer.tracing import source_lines
from app.builder.importer.tracing.proxies import PROXIES, Training
from app.util import module_tree
from app.util.user_frames import is_users

Where = tuple[str, str]  # the path of a module, and what in it
Facts = dict[Where, Any]

_PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device)
_SEQUENCES = (list, tuple, set, frozenset, collections.deque)
_TORCHS = frozenset(vars(nn.Module())) | {CONSTRUCTOR_ARGS}
_DEEPEST, _MOST = 6, 20_000
KEPT = ("a tensor",)  # which one does not matter here


def facts(model: nn.Module, beside: Collection[str] = ()) -> Facts:
    """Snapshot the state of modules, their classes and files, except registered tensors and the modules in `beside`."""
    snapshot: Facts = {}
    classes: dict[type, str] = {}
    for path, module in module_tree.named_modules(model):
        if isinstance(module, torch.jit.ScriptModule) or any(
            inside(path, outer) for outer in beside
        ):
            continue
        classes.setdefault(type(module), path)
        for name, value in module.__dict__.items():
            if name not in _TORCHS:
                snapshot.update(_facts(path, name, value, set(), 0))
        snapshot[path, "its parameters"] = tuple(
            (name, parameter is not None and parameter.requires_grad)
            for name, parameter in module._parameters.items()
        )
        snapshot[path, "its buffers and modules"] = (*module._buffers, *module._modules)
    for kind, path in classes.items():
        for base in kind.__mro__:
            if is_users(
                getattr(sys.modules.get(base.__module__), "__file__", None) or "<"
            ):
                for name, value in vars(base).items():
                    if not name.startswith("__"):
                        snapshot.update(_shallow(path, f"{name} (of the class)", value))
    for path, name, value in _globals(classes):
        snapshot.update(_shallow(path, name, value))
    return snapshot


def _globals(classes: dict[type, str]) -> Iterator[tuple[str, str, Any]]:
    done: set[int] = set()
    for kind, path in classes.items():
        for function in source_lines.functions_of(kind):
            space = function.__globals__
            if id(space) not in done:
                done.add(id(space))
                yield from (
                    (path, f"the global {name}", value)
                    for name, value in space.items()
                    if not name.startswith("__")
                )


def _shallow(path: str, name: str, value: Any) -> Facts:
    """Snapshot a value of a class or a file, not deeply."""
    kinds = (*_PLAIN, *_SEQUENCES, dict, torch.Tensor, random.Random, torch.Generator)
    if isinstance(value, kinds) or _of_numpy(value):
        return _facts(path, name, value, set(), _DEEPEST - 2)
    return {}


def _of_numpy(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(
        value, numpy.random.Generator | numpy.random.RandomState
    )


def _facts(path: str, name: str, value: Any, above: set[int], depth: int) -> Facts:
    where = path, name
    if type(value) in PROXIES:
        if not isinstance(value.known, torch.Tensor):
            return {where: value.known}
        return {
            where: KEPT,
            (path, f"{name} (changed in place)"): 0,
        }  # as the plain one that is put in its place
    if isinstance(value, torch.Tensor):
        return {
            where: KEPT,
            (path, f"{name} (changed in place)"): 0
            if value.is_inference()
            else value._version,
        }
    if type(value) is Training:
        return {}
    if isinstance(value, _PLAIN):
        return {where: repr(value)}
    if isinstance(value, random.Random):
        return {where: value.getstate()}
    if isinstance(value, torch.Generator):
        return {where: bytes(value.get_state().numpy().data)}
    if _of_numpy(value):
        state = getattr(value, "bit_generator", value)
        return {where: repr(state.state if state is not value else value.get_state())}
    if depth >= _DEEPEST or id(value) in above or isinstance(value, nn.Module | type):
        return {}
    snapshot: Facts = {}
    inner = above | {id(value)}
    if isinstance(value, _SEQUENCES):
        snapshot[where] = f"{len(value)} items"
        items: Any = enumerate(value) if len(value) < _MOST else ()
        for key, item in items:
            snapshot.update(_facts(path, f"{name}[{key}]", item, inner, depth + 1))
    elif isinstance(value, dict):
        snapshot[where] = f"{len(value)} items"
        for key, item in value.items() if len(value) < _MOST else ():
            snapshot.update(
                _facts(path, f"{name}[{key!r:.40}]", item, inner, depth + 1)
            )
    elif (
        hasattr(value, "__dict__")
        and not callable(value)
        and not hasattr(value, "__path__")
    ):
        for key, item in vars(value).items():
            snapshot.update(_facts(path, f"{name}.{key}", item, inner, depth + 1))
    return snapshot


def differing(before: Facts, after: Facts) -> list[Where]:
    """List the differences, in the order of the model."""
    return [
        where
        for where in dict.fromkeys((*before, *after))
        if where not in before or where not in after or before[where] != after[where]
    ]


def named(where: Where) -> str:
    """Name a changed value as it appears in the code."""
    path, name = where[0], where[1].partition(" (")[0].partition("[")[0]
    if name.startswith(("the global ", "its ")):
        return name if not path or name.startswith("the ") else f"{name} ({path})"
    return f"{path}.{name}" if path else f"self.{name}"


def changed_tensor(
    model: nn.Module, became: dict[fx.Node, fx.Node]
) -> tuple[Where, fx.Node] | None:
    """Return a parameter or buffer that a call modifies in place, and its new value; None if there is none."""
    for node, new_value in became.items():
        if node.op == "get_attr":
            owner, _, name = str(node.target).rpartition(".")
            try:
                module = model.get_submodule(owner)
            except AttributeError:
                continue
            if name != COUNTED and (
                name in module._buffers or name in module._parameters
            ):
                return (
                    (
                        owner,
                        name,
                    ),
                    new_value,
                )  # num_batches_tracked excepted: layers of the drawing count too
    return None


# --- State kept from one call to the next


def settled(model: nn.Module) -> dict[int, tuple[Where, fx.Node]]:
    """Replace traced values that modules store by plain tensors; return the traced value of each by id."""
    nodes_by_id: dict[int, tuple[Where, fx.Node]] = {}
    tensors_by_node: dict[fx.Node, torch.Tensor] = {}

    def plain(value: Any, where: Where, depth: int = 0) -> Any:
        if type(value) in PROXIES:
            node, example = value.node, value.known
            if not isinstance(example, torch.Tensor):
                return example
            tensor = tensors_by_node.setdefault(
                node, torch.empty_like(example, device="meta")
            )
            nodes_by_id[id(tensor)] = where, node
            return tensor
        if depth >= _DEEPEST or isinstance(value, nn.Module | type | torch.Tensor):
            return value
        if isinstance(value, list | collections.deque):
            for number, item in enumerate(value):
                value[number] = plain(item, where, depth + 1)
        elif type(value) is tuple:
            return tuple(plain(item, where, depth + 1) for item in value)
        elif isinstance(value, dict):
            for key, item in list(value.items()):
                if type(item) in PROXIES or isinstance(item, list | tuple | dict):
                    value[key] = plain(item, where, depth + 1)
        elif (
            hasattr(value, "__dict__")
            and not callable(value)
            and not hasattr(value, "__path__")
        ):
            for key, item in list(vars(value).items()):
                if type(item) in PROXIES or isinstance(item, list | tuple | dict):
                    vars(value)[key] = plain(item, where, depth + 1)
        return value

    for path, module in module_tree.named_modules(model):
        for name, value in list(module.__dict__.items()):
            if name not in _TORCHS:
                module.__dict__[name] = plain(value, (path, name))
        for name in (
            module._non_persistent_buffers_set & module.__dict__.keys()
        ):  # set while the model ran
            module._buffers[name] = module.__dict__.pop(name)
    return nodes_by_id
