"""The modules, parameters and buffers of a model, from what it registered; its modes, and its state put back.

As the methods of `nn.Module` of the same names, which a model may hide: `self.modules = [...]` puts a list in the place
of `modules()`, and one that overrides `parameters()` leaves some out. Nothing here recurses: neither a model that is
nested deeper than Python's stack, nor a child that holds its parent, ends with a RecursionError.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from app.util.language import marked

if TYPE_CHECKING:
    from torch.utils.hooks import RemovableHandle

_TABLES = ("_modules", "_parameters", "_buffers")
FEW = 4  # modules that a sentence names
NESTED, LARGEST = (
    3,
    10_000,
)  # containers within containers, and items of one, that are looked through
REGISTER = marked("Use nn.ModuleList or nn.ModuleDict in its place.")


def named_modules(
    model: nn.Module, prefix: str = "", remove_duplicate: bool = True
) -> Iterator[tuple[str, nn.Module]]:
    """Yield (path, module), the model first, each module before its children.

    A module is yielded once, with `remove_duplicate=False` by each of its paths; never below itself.
    """
    met: set[nn.Module] = {model}
    above: set[nn.Module] = {model}
    yield prefix, model
    waiting = [(model, prefix, named_children(model, remove_duplicate=False))]
    while waiting:
        parent, path, children = waiting[-1]
        name, child = next(children, ("", None))
        if child is None:
            waiting.pop()
            above.discard(parent)
            continue
        if child in above or (remove_duplicate and child in met):
            continue
        met.add(child)
        above.add(child)
        below = f"{path}.{name}" if path else name
        yield below, child
        waiting.append((child, below, named_children(child, remove_duplicate=False)))


def class_name(module: nn.Module) -> str:
    """Return the name of a module's class, for TorchScript of the class that it was compiled from."""
    return str(
        module.original_name
        if isinstance(module, torch.jit.ScriptModule)
        else type(module).__name__
    )


def modules(model: nn.Module) -> Iterator[nn.Module]:
    """Yield every module once, the model first."""
    for _, module in named_modules(model):
        yield module


def named_children(
    module: nn.Module, remove_duplicate: bool = True
) -> Iterator[tuple[str, nn.Module]]:
    """Yield (name, module) of those right below it."""
    met: set[nn.Module] = set()
    for name, child in module._modules.items():
        if child is not None and not (remove_duplicate and child in met):
            met.add(child)
            yield name, child


def submodule(model: nn.Module, path: str) -> nn.Module:
    """Return the module at a path, "" for the model itself, also of TorchScript. Raises AttributeError."""
    return nn.Module.get_submodule(model, path)


def children(module: nn.Module) -> Iterator[nn.Module]:
    """Yield the modules right below it."""
    for _, child in named_children(module):
        yield child


def has_children(module: nn.Module) -> bool:
    """Return whether there are modules in it. A module itself may refuse to be taken as true or false."""
    return next(children(module), None) is not None


def named_parameters(
    model: nn.Module,
    prefix: str = "",
    recurse: bool = True,
    remove_duplicate: bool = True,
) -> Iterator[tuple[str, nn.Parameter]]:
    """Yield (name, parameter), those that are shared by their first name, or by each with `remove_duplicate=False`."""
    yield from _named_tensors(model, "_parameters", prefix, recurse, remove_duplicate)  # type: ignore[misc]


def parameters(model: nn.Module, recurse: bool = True) -> Iterator[nn.Parameter]:
    """Yield every parameter once."""
    for _, parameter in named_parameters(model, recurse=recurse):
        yield parameter


def named_buffers(
    model: nn.Module,
    prefix: str = "",
    recurse: bool = True,
    remove_duplicate: bool = True,
) -> Iterator[tuple[str, Tensor]]:
    """Yield (name, buffer), as `named_parameters` does."""
    yield from _named_tensors(model, "_buffers", prefix, recurse, remove_duplicate)


def buffers(model: nn.Module, recurse: bool = True) -> Iterator[Tensor]:
    """Yield every buffer once."""
    for _, buffer in named_buffers(model, recurse=recurse):
        yield buffer


def set_mode(model: nn.Module, train: bool) -> None:
    """Switch a model to train or eval mode, by its own `train()` where torch can call that."""
    hidden = any(
        "train" in module.__dict__ or "children" in module.__dict__
        for module in modules(model)
    )
    if not hidden and not cycle(model):
        model.train(train)
        return
    for module in modules(model):
        module.training = train


def copied(
    model: nn.Module, replacements: Mapping[int, Any] | None = None
) -> nn.Module:
    """Return a deep copy, also of a module with non-leaf tensors in attributes. `replacements` maps ids to
    replacements.

    The tensors of TorchScript are copied one by one: torch's own copies of its parameters are no leaves, so that they
    get no gradients. Raises what copying raises.
    """
    memo: dict[int, Any] = {
        id(value): value.detach().clone()
        for module in modules(model)
        for value in module.__dict__.values()
        if isinstance(value, torch.Tensor) and not value.is_leaf
    } | dict(replacements or {})
    duplicate = copy.deepcopy(model, memo)
    for module, other in zip(modules(model), modules(duplicate), strict=True):
        for table in _TABLES[1:] if isinstance(module, torch.jit.ScriptModule) else ():
            for name, value in getattr(module, table).items():
                getattr(other, table)[name] = copy.deepcopy(value, memo)
    return duplicate


def on_call(
    module: nn.Module, hook: Callable[..., Any], **options: bool
) -> RemovableHandle:
    """Register a forward hook, also of TorchScript, which hides that. What TorchScript calls itself is not seen."""
    return nn.Module.register_forward_hook(module, hook, **options)


def before_call(
    module: nn.Module, hook: Callable[..., Any], **options: bool
) -> RemovableHandle:
    """Register a forward pre-hook, as `on_call` does."""
    return nn.Module.register_forward_pre_hook(module, hook, **options)


def quantised(model: nn.Module) -> str:
    """Return the path of the first module with packed weights, which are no tensors, or its class where that is the
    model itself; "" if there is none."""
    quantised_modules = {
        path: module
        for path, module in named_modules(model)
        if ".quantized." in type(module).__module__
    }
    packed = next(
        (path for path, module in quantised_modules.items() if _is_packed(module)), None
    )
    if packed is None:
        return ""
    names = packed.split(".")
    above = (".".join(names[:count]) for count in range(len(names) + 1))
    return (
        next(path for path in above if path in quantised_modules)
        or type(model).__name__
    )


def _is_packed(module: nn.Module) -> bool:
    state: dict[str, Any] = {}
    module._save_to_state_dict(state, "", False)
    return not all(isinstance(value, Tensor) for value in state.values())


def cycle(model: nn.Module) -> str:
    """Return the path at which a module holds itself or one above it, so that torch's own walks do not end; or ""."""
    above: set[nn.Module] = {model}
    done: set[nn.Module] = set()
    waiting = [(model, "", named_children(model))]
    while waiting:
        parent, path, below = waiting[-1]
        name, child = next(below, ("", None))
        here = f"{path}.{name}" if path else name
        if child is None:
            waiting.pop()
            above.discard(parent)
            done.add(parent)
        elif child in above:
            return here
        elif child not in done:
            above.add(child)
            waiting.append((child, here, named_children(child)))
    return ""


def unregistered(model: nn.Module) -> dict[str, nn.Module]:
    """Return the modules with trainable weights that lie in plain lists, tuples and dicts, by path: "blocks[0]".

    They are in no `parameters()` and no `state_dict()`, so nothing trains, stores or moves them.
    """
    registered = set(modules(model))
    return {
        path: module
        for owner, parent in named_modules(model)
        for path, module in _in_containers(parent, owner)
        if module not in registered
        and any(parameter.requires_grad for parameter in parameters(module))
    }


def unregistered_sentence(model: nn.Module) -> str:
    """Say which modules are not registered, what follows, and the cure; "" if all are."""
    paths = list(unregistered(model))
    if not paths:
        return ""
    rest = f" and {len(paths) - FEW} more" if len(paths) > FEW else ""
    verb, lie = ("are", "they lie") if len(paths) > 1 else ("is", "it lies")
    return (
        f"{', '.join(paths[:FEW])}{rest} {verb} not registered, as {lie} in a plain list or dict: not in parameters() "
        f"or state_dict(), not trained. {REGISTER}"
    )


def _in_containers(owner: nn.Module, path: str) -> Iterator[tuple[str, nn.Module]]:
    """Yield the modules in the lists, tuples and dicts among the attributes of a module, and in those within them."""
    start = f"{path}." if path else ""
    waiting = [
        (f"{start}{name}", value, 0)
        for name, value in owner.__dict__.items()
        if name not in _TABLES
        and not name.endswith("_hooks")
        and isinstance(value, (list, tuple, dict))
    ]
    while waiting:
        here, value, depth = waiting.pop(0)
        if isinstance(value, nn.Module):
            yield here, value
        elif (
            isinstance(value, (list, tuple, dict))
            and depth < NESTED
            and len(value) <= LARGEST
        ):
            items = value.items() if isinstance(value, dict) else enumerate(value)
            waiting += [(f"{here}[{key!r}]", item, depth + 1) for key, item in items]


def _named_tensors(
    model: nn.Module, table: str, prefix: str, recurse: bool, remove_duplicate: bool
) -> Iterator[tuple[str, Tensor]]:
    met: set[int] = set()
    owners = (
        named_modules(model, prefix, remove_duplicate)
        if recurse
        else ((prefix, model),)
    )
    for path, module in owners:
        for name, tensor in getattr(module, table).items():
            if tensor is None or (remove_duplicate and id(tensor) in met):
                continue
            met.add(id(tensor))
            yield f"{path}.{name}" if path else name, tensor


@contextmanager
def temporary_mode(model: nn.Module, train: bool) -> Iterator[None]:
    """Switch to train or eval mode; restore modes, buffers and parameters whose `.data` was set afterwards.

    Restores all buffers, since kernels of batch norm write running statistics without raising the version counter.
    """
    modes = [(module, module.training) for module in modules(model)]
    values = [
        (buffer, buffer.detach().clone())
        for buffer in buffers(model)
        if not is_lazy(buffer)
    ]
    data = [
        (parameter, parameter.data)
        for parameter in parameters(model)
        if _has_memory(parameter)
    ]
    set_mode(model, train)
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode
        with torch.no_grad():
            for buffer, before in values:
                buffer.copy_(before)
            for parameter, before in data:
                if (
                    parameter.data_ptr() != before.data_ptr()
                    or parameter.shape != before.shape
                ):
                    parameter.data = before


def _has_memory(parameter: Tensor) -> bool:
    """Return whether a parameter is an ordinary dense tensor with memory of its own."""
    return (
        not is_lazy(parameter)
        and parameter.layout is torch.strided
        and type(parameter.data) is torch.Tensor
    )


# --- Paths


def parent(path: str) -> str:
    """Return the path of the enclosing module.

    >>> parent("stage.0.conv"), parent("stem")
    ('stage.0', '')
    """
    return path.rpartition(".")[0]


def inside(path: str, outer: str) -> bool:
    """Return whether a path is `outer` or nested in it.

    >>> inside("stage.0", "stage"), inside("stages", "stage"), inside("a", "")
    (True, False, True)
    """
    return not outer or path == outer or path.startswith(f"{outer}.")
