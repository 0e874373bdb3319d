"""Generated layer files for functions and methods of torch that the catalog lacks, and for TorchScript.

The import writes one file per function: a layer whose `forward` makes the call, with its tensors as inputs and its
plain values as arguments. The file of a scripted part contains its TorchScript without weights: those of the model are
in the weights of the project, and new ones are drawn as torch does in its own layers.
"""

from __future__ import annotations

import base64
import contextlib
import inspect
import io
import keyword
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

import torch
from msgspec import Struct
from torch import fx
from torch.fx.operator_schemas import get_signature_for_torch_op

from app.builder.literals import DType
from app.features.importing.compute.lowering.binding import (
    BindingError,
    Bound,
    literal_of,
)
from app.features.importing.compute.lowering.package_classes import (
    arguments_of,
    returning,
    written_default,
)
from app.features.importing.compute.tracing.meta_evaluation import schema_of
from app.features.importing.compute.tracing.proxies import Training
from app.features.importing.compute.tracing.records import is_record
from app.util import module_tree

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
    ports: dict[str, fx.Node] = {}
    params: dict[str, Any] = {}

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
            f"result.{item}" if isinstance(item, str) else f"result[{item}]"
            for item in items
        ]
        body = f"result = {call_text}\n        return {', '.join(parts)}"
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


_TEXT = '''"""{name}, compiled by torch.jit, as a layer of a drawing.

To read what it computes: print({label}().script.inlined_code)
"""

import base64
import copy
import io
import zlib

import torch
from torch import nn


class {label}(nn.Module):
    """{name}, run by its TorchScript, whose tensors and submodules are those of this layer."""

    def __init__(self):
        super().__init__()
        archive = io.BytesIO(zlib.decompress(base64.b85decode(TORCHSCRIPT)))
        script = torch.jit.load(archive, map_location=torch.get_default_device())
        parameters = {{}}  # one for each tensor, which may have several names
        for module in script.modules():
            for name, value in module._parameters.items():
                parameter = nn.Parameter(value.contiguous(), value.requires_grad)
                module._parameters[name] = parameters.setdefault(value, parameter)
        self._take(script)
        for name, parameter in self.named_parameters():
            if parameter.is_floating_point() and parameter.dim() > 1:
                nn.init.kaiming_uniform_(parameter, 5**0.5)  # as nn.Linear and nn.Conv2d do
            elif parameter.is_floating_point():
                nn.init.constant_(parameter, 0.0 if name.endswith("bias") else 1.0)

    def forward({given}):
        {line}

    def train(self, mode: bool = True):
        self.script.train(mode)
        return super().train(mode)

    def _take(self, script):
        """Let the tensors and submodules of the script be those of this layer."""
        self.__dict__["script"] = script
        self._parameters, self._buffers, self._modules = script._parameters, script._buffers, script._modules

    def __deepcopy__(self, memo):
        """Copy each tensor, as torch's copies of a script's parameters are no leaves and get no gradients."""
        copied, script = type(self).__new__(type(self)), copy.deepcopy(self.script)
        nn.Module.__init__(copied)
        for module, other in zip(self.script.modules(), script.modules()):
            for name, value in module._parameters.items():
                other._parameters[name] = copy.deepcopy(value, memo)
            for name, value in module._buffers.items():
                other._buffers[name] = copy.deepcopy(value, memo)
        copied._take(script)
        copied.training = self.training
        return copied


TORCHSCRIPT = (
{archive}
)
'''
_ROW = 110  # letters of the archive in a line


def label_of(script: torch.jit.ScriptModule) -> str:
    """Return the name of the layer of a part."""
    name = re.sub(r"\W", "", script.original_name)
    return f"Scripted{name.strip('_')}"


def layer_text(script: torch.jit.ScriptModule, result: Any) -> str:
    """Return the text of the layer file of a part that once returned `result`. Raises BindingError for an argument that
    no input of a node can be."""
    signature, passed = arguments_of(
        _parameters(script), script.original_name, {}, in_forward=True
    )
    call = f"self.script({', '.join(passed)})"
    several = is_record(result) or (
        isinstance(result, tuple | list) and len(result) > 1
    )
    line = (
        returning(script.original_name, call, result) if several else f"return {call}"
    )
    text = base64.b85encode(zlib.compress(_archive(script), 9)).decode()
    rows = (
        f'    "{text[start : start + _ROW]}"' for start in range(0, len(text), _ROW)
    )
    return _TEXT.format(
        name=script.original_name,
        label=label_of(script),
        given=signature,
        line=line,
        archive="\n".join(rows),
    )


def _parameters(script: torch.jit.ScriptModule) -> list[inspect.Parameter]:
    """Return the arguments of a part's forward. Raises BindingError."""
    parameters = []
    for argument in schema_of(script):
        kind = (
            inspect.Parameter.KEYWORD_ONLY
            if argument.kwarg_only
            else inspect.Parameter.POSITIONAL_OR_KEYWORD
        )
        default = (
            argument.default_value
            if argument.has_default_value()
            else inspect.Parameter.empty
        )
        annotation = str(argument.type)
        if default is inspect.Parameter.empty and "[" in annotation:
            raise BindingError(
                f"{argument.name} of its forward is a {annotation}, which no input of a node can be"
            )
        parameters.append(
            inspect.Parameter(
                argument.name, kind, default=default, annotation=annotation
            )
        )
    return parameters


def _archive(script: torch.jit.ScriptModule) -> bytes:
    """Return the file of a part, without the values of parameters that are drawn again."""
    copied, file = module_tree.copied(script), io.BytesIO()
    for value in module_tree.parameters(copied):
        if value.is_floating_point():
            value.data = torch.zeros((), dtype=value.dtype).expand(value.shape)
    torch.jit.save(copied, file)
    return file.getvalue()
