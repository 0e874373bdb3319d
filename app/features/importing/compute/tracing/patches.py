"""Monkeypatches of torch that are active while a model is traced, and the calls that are refused."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import fx, nn
from torch.overrides import TorchFunctionMode
from torch.utils import checkpoint
from torch.utils._pytree import tree_flatten, tree_unflatten

from app.builder.catalog.introspect import use_meta_masks
from app.features.importing.compute.tracing import (
    dispatch_patches,
    grad_regions,
    source_lines,
)
from app.features.importing.compute.tracing.dispatch_patches import (
    dispatch_first,
    lengths_seen,
    sizes_seen,
    tensors_seen,
)
from app.features.importing.compute.tracing.proxies import FACTORIES, PROXIES
from app.util import module_tree

if TYPE_CHECKING:
    from app.features.importing.compute.tracing.tracing import Tracer


@contextlib.contextmanager
def watched(tracer: Tracer) -> Iterator[None]:
    """Patch module calls, autograd functions, factories, `len` and grad mode for a tracer."""
    use_meta_masks()
    with contextlib.ExitStack() as stack:
        stack.enter_context(_layer_by_layer())
        stack.enter_context(_modules(tracer))
        stack.enter_context(_functions(tracer))
        stack.enter_context(sizes_seen(lambda: tracer.following, tracer.create_proxy))
        stack.enter_context(lengths_seen(lambda: tracer.following))
        stack.enter_context(tensors_seen(lambda: tracer.following))
        stack.enter_context(
            dispatch_first(lambda: tracer.following, tracer.create_proxy)
        )
        stack.enter_context(grad_regions.watched(tracer))
        stack.enter_context(dispatch_patches.watched(tracer))
        stack.enter_context(Outside(tracer))
        yield


@contextlib.contextmanager
def _layer_by_layer() -> Iterator[None]:
    """Keep transformers off their fused inference, which reads the values of masks."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


@contextlib.contextmanager
def _modules(tracer: Tracer) -> Iterator[None]:
    """Route module calls, and reads and writes of tensor attributes, to the tracer."""
    call, read, write = nn.Module.__call__, nn.Module.__getattr__, nn.Module.__setattr__
    members = nn.Module.named_parameters

    def calling(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        return (
            tracer.modules.called(module, args, kwargs)
            if tracer.following
            else call(module, *args, **kwargs)
        )

    def attribute(module: nn.Module, name: str) -> Any:
        value = read(module, name)
        return (
            tracer.held_tensor(value)
            if tracer.following and isinstance(value, torch.Tensor)
            else value
        )

    def setting(module: nn.Module, name: str, value: Any) -> None:
        if tracer.following and (name in module._buffers or name in module._parameters):
            tracer.modules.state_set(module, name, value)
        elif type(value) in PROXIES:
            module.__dict__[name] = value
        else:
            write(module, name, value)

    def parameters(
        module: nn.Module, *args: Any, **kwargs: Any
    ) -> Iterator[tuple[str, Any]]:
        theirs = tracer.following and source_lines.through_torch()
        for name, value in members(module, *args, **kwargs):
            yield (
                name,
                tracer.held_tensor(value)
                if theirs and tracer.is_held(value)
                else value,
            )

    nn.Module.named_parameters = parameters  # type: ignore[method-assign,assignment]
    nn.Module.__call__, nn.Module.__getattr__ = calling, attribute  # type: ignore[method-assign]
    nn.Module.__setattr__ = setting  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        nn.Module.__call__, nn.Module.__getattr__ = call, read  # type: ignore[method-assign]
        nn.Module.__setattr__ = write  # type: ignore[method-assign]
        nn.Module.named_parameters = members  # type: ignore[method-assign]


@contextlib.contextmanager
def _functions(tracer: Tracer) -> Iterator[None]:
    """Route `Function.apply` to the tracer, even if looked up earlier, and run checkpoints inline."""
    function, utils = (
        torch.autograd.function._SingleLevelFunction,
        torch._functorch.utils,
    )
    unwrap, generator = (
        utils.unwrap_dead_wrappers,
        checkpoint._checkpoint_without_reentrant_generator,
    )
    apply = torch._C._FunctionBase.__dict__["apply"]

    def applying(kind: type, *args: Any, **kwargs: Any) -> Any:
        return (
            tracer.modules.applied(kind, args)
            if tracer.following
            else apply.__get__(None, kind)(*args, **kwargs)
        )

    def unwrapped(args: tuple[Any, ...]) -> tuple[Any, ...]:
        return args if any(type(arg) in PROXIES for arg in args) else unwrap(args)

    def once(*args: Any, **kwargs: Any) -> Iterator[None]:
        if not tracer.following:
            yield from generator(*args, **kwargs)
            return
        tracer.report.add(grad_regions.checkpoint_remark())
        yield

    function.apply = classmethod(applying)  # type: ignore[attr-defined]
    utils.unwrap_dead_wrappers, checkpoint._checkpoint_without_reentrant_generator = (
        unwrapped,
        once,
    )
    try:
        yield
    finally:
        del function.apply  # type: ignore[attr-defined]
        (
            utils.unwrap_dead_wrappers,
            checkpoint._checkpoint_without_reentrant_generator,
        ) = unwrap, generator


# --- Hooks

_KINDS = ("forward", "forward_pre", "backward", "backward_pre")


def with_hooks(module: nn.Module, forward: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `forward(module, ...)` with the module's forward hooks."""
    if not module._forward_pre_hooks and not module._forward_hooks:
        return forward

    def hooked(owner: nn.Module, *args: Any, **kwargs: Any) -> Any:
        for key, before in list(owner._forward_pre_hooks.items()):
            if key in owner._forward_pre_hooks_with_kwargs:
                changed = before(owner, args, kwargs)
                args, kwargs = changed if changed is not None else (args, kwargs)
            else:
                changed = before(owner, args)
                args = (
                    args
                    if changed is None
                    else changed
                    if isinstance(changed, tuple)
                    else (changed,)
                )
        result = forward(owner, *args, **kwargs)
        for key, after in list(owner._forward_hooks.items()):
            named = key in owner._forward_hooks_with_kwargs
            changed = (
                after(owner, args, kwargs, result)
                if named
                else after(owner, args, result)
            )
            result = result if changed is None else changed
        return result

    return hooked


def gradient_hooks(model: nn.Module) -> Iterator[tuple[str, str]]:
    """Yield submodules with hooks that may change gradients, and the reason; innermost first."""
    if any(getattr(nn.modules.module, f"_global_{kind}_hooks") for kind in _KINDS):
        yield "", "a global module hook is registered in torch"
    for path, module in reversed(list(module_tree.named_modules(model))):
        if module._backward_hooks or module._backward_pre_hooks:
            yield path, "it has a backward hook, which a network cannot have"
        for name, parameter in module._parameters.items():
            if parameter is not None and getattr(parameter, "_backward_hooks", None):
                yield path, f"{name} has a gradient hook, which a network cannot have"
            elif parameter is not None and getattr(
                parameter, "_post_accumulate_grad_hooks", None
            ):
                yield path, f"{name} has a gradient hook, which a network cannot have"


# --- Calls outside the graph


# Reads of a parameter that involve no traced value.
_FACTS = frozenset(
    """
    dim ndimension size numel nelement stride storage_offset element_size data_ptr get_device is_contiguous
    is_floating_point is_complex is_signed is_set_to untyped_storage __len__ __hash__ __repr__ __format__ __deepcopy__
    __reduce_ex__
    """.split()
)
_VALUES = frozenset({"data", "T", "mT", "H", "mH", "real", "imag"})


def _leaves(values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, tuple | list):
            yield from _leaves(value)
        elif type(value) is dict:
            yield from _leaves(value.values())
        else:
            yield value


class Outside(TorchFunctionMode):
    """Sees every call of torch while a model is followed."""

    def __init__(self, tracer: Tracer) -> None:
        super().__init__()
        self._tracer = tracer

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        keyword_arguments = kwargs or {}
        if not self._tracer.following:
            return func(*args, **keyword_arguments)
        if func in FACTORIES or func is torch.normal:
            return self._tracer.create_proxy(
                "call_function", func, args, keyword_arguments
            )
        name = getattr(func, "__name__", "")
        if name in ("__get__", "__set__"):
            return self._attribute(func, name, args)
        leaves = [*_leaves(args), *_leaves(tuple(keyword_arguments.values()))]
        if name not in _FACTS and any(map(self._is_held, leaves)):
            flat_leaves, structure = tree_flatten((args, keyword_arguments))
            flat_leaves = [
                self._tracer.held_tensor(leaf) if self._is_held(leaf) else leaf
                for leaf in flat_leaves
            ]
            args, keyword_arguments = tree_unflatten(flat_leaves, structure)
            return fx.Proxy.__torch_function__(func, (), args, keyword_arguments)
        traced = any(type(leaf) in PROXIES for leaf in leaves)
        if not traced and keyword_arguments.get("generator") is not None:
            raise self._tracer.refused(OWN_GENERATOR)
        return func(*args, **keyword_arguments)

    def _is_held(self, leaf: Any) -> bool:
        return self._tracer.is_held(leaf)

    def _attribute(self, func: Any, name: str, args: Any) -> Any:
        """Handle `parameter.data` and assignments to it."""
        attribute = getattr(getattr(func, "__self__", None), "__name__", "")
        if name == "__set__" and attribute != "grad":
            raise self._tracer.refused(f"it sets {attribute} of a tensor")
        if attribute in _VALUES and self._is_held(args[0]):
            return getattr(self._tracer.held_tensor(args[0]), attribute)
        return func(*args)


_HOOKS = frozenset({"register_hook", "register_post_accumulate_grad_hook"})
# What Python calls for `x += y`, as the method that it is.
_SIGNS = {
    f"__i{sign}__": f"{name}_"
    for sign, name in (
        ("add", "add"),
        ("sub", "sub"),
        ("mul", "mul"),
        ("truediv", "div"),
        ("floordiv", "floor_divide"),
        ("pow", "pow"),
        ("mod", "remainder"),
        ("and", "bitwise_and"),
        ("or", "bitwise_or"),
        ("xor", "bitwise_xor"),
    )
}
OWN_GENERATOR = "it draws random numbers from its own torch.Generator"


def method_of(name: str) -> str:
    """Return the method name of an operator symbol."""
    return _SIGNS.get(name, name)


def is_in_place(kind: str, target: Any) -> bool:
    """Return whether a method modifies the tensor that it is called on."""
    return kind == "call_method" and target.endswith("_") and not target.endswith("__")


def check_call(
    tracer: Tracer,
    kind: str,
    target: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> None:
    """Raise TraceError for a call with side effects, or one whose result depends on hidden state."""
    if kwargs.get("generator") is not None:
        raise tracer.refused(OWN_GENERATOR)
    if kwargs.get("out") is not None:
        raise tracer.refused("it writes into a tensor passed as out=")
    if torch._C._is_any_autocast_enabled():
        raise tracer.refused("it computes under autocast")
    if kind == "call_method":
        _check_method(tracer, target, args)
    elif target is operator.setitem and type(args[0]) not in PROXIES:
        _check_written(tracer, args[0])


def _check_method(tracer: Tracer, name: str, args: tuple[Any, ...]) -> None:
    if name in _HOOKS:
        raise tracer.refused("it registers a hook on a value's gradient")
    if name == "__setitem__" or is_in_place("call_method", name):
        if type(args[0]) not in PROXIES:
            _check_written(tracer, args[0])
        elif name == "requires_grad_" and args[0].node.op == "get_attr":
            raise tracer.refused(f"it changes requires_grad of {args[0].node.target}")


def _check_written(tracer: Tracer, tensor: Any) -> None:
    if isinstance(tensor, torch.Tensor):
        raise tracer.refused("it writes into a tensor outside the graph")
