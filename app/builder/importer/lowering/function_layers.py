"""Generated layer files for functions and methods of torch that the catalog lacks.

The import writes one file per function: a layer whose `forward` makes the call, with its tensors as inputs and its
plain values as arguments.
"""

from __future__ import annotations

import contextlib
import inspect
import keyword
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

import torch
from msgspec import Struct, field
from torch import fx
from torch.fx.operator_schemas import get_signature_for_torch_op

from app.builder.importer.lowering.binding import BindingError, Bound, literal_of
from app.builder.importer.lowering.package_classes import written_default
from app.builder.importer.tracing.proxies import Training
from app.builder.literals import DType

_ROOMS = (
    "torch",
    "torch.nn.functional",
    "torch.linalg",
    "torch.fft",
    "torch.special",
    "torch.signal.windows",
)
_PLACES = frozenset(
    {"device", "layout", "memory_format", "generator", "out", "pin_memory"}
)
_HEAD = '''"""{called}, as a layer of a drawing."""

import torch
from torch import nn


class {label}(nn.Module):
    """{called}."""

    def forward({given}):
        {body}
'''


class FunctionCall(Struct):
    """A call as the text of its layer, with the values that the ports take and those of the arguments."""

    name: str
    text: str = ""
    ports: dict[str, fx.Node] = field(default_factory=dict)
    params: dict[str, Any] = field(default_factory=dict)

    def bound(self, key: str) -> Bound:
        """Return the call of the layer's op."""
        return Bound(
            key, {name: [node] for name, node in self.ports.items()}, dict(self.params)
        )


def layer_of(node: fx.Node, values: Mapping[fx.Node, Any]) -> FunctionCall:
    """Return the layer for a traced function call. Raises BindingError if the function is not a public one of torch,
    or for an argument that a layer cannot have."""
    called, function = _named(node)
    call = FunctionCall(called.rpartition(".")[2])
    names, defaults = _names(function, node)
    written = [
        _argument(call, names[number], value, values)
        for number, value in enumerate(node.args)
    ]
    for name, value in node.kwargs.items():
        default = defaults.get(name, inspect.Parameter.empty)
        if (
            name not in _PLACES
            and value is not None
            and not (type(value) is type(default) and value == default)
        ):
            written.append(f"{name}={_argument(call, name, value, values)}")
    example = values[node]
    receiver, *rest = written if node.op == "call_method" else ("", *written)
    call_text = (
        f"{receiver}.{call.name}({', '.join(rest)})"
        if receiver
        else f"{called}({', '.join(rest)})"
    )
    body = f"return {call_text}"
    if isinstance(example, tuple | list):
        items = getattr(type(example), "__match_args__", ()) or range(len(example))
        if not 1 < len(example) == len(items):
            raise BindingError(f"{called} returns {len(example)} values")
        parts = [
            f"found.{item}" if isinstance(item, str) else f"found[{item}]"
            for item in items
        ]
        body = f"found = {call_text}\n        return {', '.join(parts)}"
    signature = [
        "self",
        *call.ports,
        *(f"{name}: {_kind(value)}" for name, value in call.params.items()),
    ]
    label = "".join(word[:1].upper() + word[1:] for word in call.name.split("_"))
    call.text = _HEAD.format(
        called=called, label=label, given=", ".join(signature), body=body
    )
    return call


def _named(node: fx.Node) -> tuple[str, Any]:
    """Return the dotted name of a call, and the function. Raises BindingError."""
    if node.op == "call_method":
        name = str(node.target)
        plain = name[:-1] if name.endswith("_") else name  # drawings are functional
        if not plain.startswith("_") and hasattr(torch.Tensor, plain):
            return f"torch.Tensor.{plain}", getattr(torch, plain, None)
        raise BindingError(f"Tensor.{name} is not among the ops")
    qualified_name = _public().get(node.target) if callable(node.target) else None
    if qualified_name is None:
        raise BindingError(
            f"{getattr(node.target, '__name__', node.target)} is not a public function of torch"
        )
    room, _, name = qualified_name.rpartition(".")
    plain = (
        name[:-1] if name.endswith("_") and hasattr(_module(room), name[:-1]) else name
    )
    return f"{room}.{plain}", getattr(_module(room), plain)


@cache
def _public() -> dict[Any, str]:
    """Return the dotted names of torch's public functions."""
    names_by_function: dict[Any, str] = {}
    for room in _ROOMS:
        for name, value in vars(_module(room)).items():
            if (
                not name.startswith("_")
                and callable(value)
                and not isinstance(value, type)
            ):
                with contextlib.suppress(TypeError):  # what has no hash
                    names_by_function[value] = f"{room}.{name}"
    return names_by_function


def _module(room: str) -> Any:
    module: Any = torch
    for segment in room.split(".")[1:]:
        module = getattr(module, segment)
    return module


def _names(
    function: Callable[..., Any] | None, node: fx.Node
) -> tuple[list[str], dict[str, Any]]:
    """Name the positional arguments of a call as the function does, those of an unknown one by number; and the
    defaults of all."""
    names, defaults = (
        [f"x{number}" for number in range(len(node.args))],
        dict[str, Any](),
    )
    for signature in _signatures(function):
        positional = [
            parameter.name
            for parameter in signature.parameters.values()
            if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        ]
        if (
            len(positional) >= len(node.args)
            and node.kwargs.keys() <= signature.parameters.keys()
        ):
            names = positional[: len(node.args)]
            defaults = {
                name: parameter.default
                for name, parameter in signature.parameters.items()
            }
            break
    names = ["input" if name == "self" else name for name in names]
    return [f"{name}_" if keyword.iskeyword(name) else name for name in names], defaults


def _signatures(function: Callable[..., Any] | None) -> Iterator[inspect.Signature]:
    if function is None:
        return
    try:
        yield inspect.signature(function)
    except (TypeError, ValueError):
        yield from get_signature_for_torch_op(function) or ()


def _argument(
    call: FunctionCall, name: str, value: Any, values: Mapping[fx.Node, Any]
) -> str:
    """Return an argument as written in the call; a value that arrives becomes an input, a plain one an argument."""
    if isinstance(value, fx.Node):
        if not isinstance(values[value], torch.Tensor | int | float):
            raise BindingError(
                f"{call.name} takes {values[value]!r:.40} as {name}, which a wire cannot carry"
            )
        port_name = next(
            (port for port, node in call.ports.items() if node is value), None
        )
        if port_name is None:
            port_name = _fresh(name, call)
            call.ports[port_name] = value
        return port_name
    if isinstance(value, list | tuple) and any(
        isinstance(item, fx.Node) for item in value
    ):
        items = [
            _argument(call, f"{name}{number}", item, values)
            for number, item in enumerate(value)
        ]
        return f"[{', '.join(items)}]"
    if type(value) is Training:
        return "self.training"
    literal = literal_of(value)
    if literal is None or written_default(literal) is None:
        return "None" if value is None else _refused(call, name, value)
    if isinstance(literal, tuple) and not all(type(item) is int for item in literal):
        return repr(literal)
    port_name = _fresh(name, call)
    call.params[port_name] = literal
    return port_name


def _refused(call: FunctionCall, name: str, value: Any) -> str:
    raise BindingError(
        f"{call.name} takes {value!r:.40} as {name}, which a project cannot store"
    )


def _fresh(name: str, call: FunctionCall) -> str:
    used_names, number, fresh = {*call.ports, *call.params}, 2, name
    while fresh in used_names:
        fresh, number = f"{name}{number}", number + 1
    return fresh


def _kind(value: Any) -> str:
    """Return the annotation of a plain value."""
    if isinstance(value, DType):
        return "torch.dtype"
    return "tuple[int, ...]" if isinstance(value, tuple) else type(value).__name__
