"""Calls with side effects, which a drawing cannot express: checked before they are recorded."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import torch

from app.builder.importer.tracing.proxies import PROXIES

if TYPE_CHECKING:
    from app.builder.importer.tracing.tracing import Tracer

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
_AUTOCAST = ("cpu", "cuda")
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
    for device in _AUTOCAST:
        if torch.is_autocast_enabled(device):
            raise tracer.refused(f"it computes under autocast on {device}")
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
