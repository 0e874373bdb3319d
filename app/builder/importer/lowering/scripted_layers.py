"""Generated layer files for parts that hold no Python code: TorchScript, which such a file contains.

Its weights are not in the file: those of the model are in the weights of the project, and new ones are drawn as torch
does in its own layers.
"""

from __future__ import annotations

import base64
import inspect
import io
import re
import zlib
from typing import Any

import torch

from app.builder.importer.lowering.binding import BindingError
from app.builder.importer.lowering.package_classes import arguments_of, returning
from app.builder.importer.tracing.real_evaluation import schema_of
from app.builder.importer.tracing.records import is_record
from app.util import module_tree

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
