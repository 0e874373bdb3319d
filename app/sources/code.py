"""Generate the source that builds an opened model and calls it with the tensors of a batch.

It holds names and JSON values alone, each written as a Python literal; what a project file says never becomes code.
"""

from __future__ import annotations

import keyword
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from app.source.generated import MAKER, InputSpec, OutputSpec, OwnModel, Source
from app.source.interface import Argument, Returned, is_way, steps_of
from app.sources import finding
from app.sources.opened import OpenedModel
from app.sources.spec import SourceError
from app.util.frozen import FrozenMap

PADDING = -100  # of whole numbers, as torch's losses ignore it


def source_of(
    opened: OpenedModel,
    inputs: Iterable[InputSpec],
    outputs: Iterable[str] = (),
    layouts: Mapping[str, str] = FrozenMap(),
    conversions: Mapping[str, str] = FrozenMap(),
) -> Source:
    """Return the source that makes a model whose forward gets these `inputs`, in their order, and returns a dictionary
    of these `outputs`, or its main one alone where none is named. Code of `layouts` follows each output that it names
    and lays it out for its loss; that of `conversions` follows each input that it names. Raises SourceError."""
    input_specs, named = tuple(inputs), tuple(outputs)
    returned = _returned(opened, named)
    hooks, parts = [], []
    if order := _order(opened, [spec.name for spec in input_specs], conversions):
        if "present(" in order:
            hooks.append(_PRESENT)
        hooks.append(order)
        parts.append("model.register_forward_pre_hook(by_name, with_kwargs=True)")
    if named or (returned and (returned[0].way or layouts.get(returned[0].name))):
        hooks.append(_chosen(returned, bool(named), layouts))
        parts.append("model.register_forward_hook(chosen)")
    if named and opened.interface.losses_in_training:
        hooks.append(_ALWAYS_LOSSES)
        parts.append("model.train = types.MethodType(train, model)")
    if opened.interface.lazy:
        parts += _first_call(input_specs)
    tops, before, expression = _making(opened)
    standard = ["import sys"] * (opened.folder != "" and opened.source.own_code)
    standard += ["import types"] * (_ALWAYS_LOSSES in hooks)
    standard += [line for line in tops if line in ("import copy", "import json")]
    others = [line for line in tops if line not in standard]
    lines = [f'"""Make {_plain(str(opened.source))}, which train.py trains."""', ""]
    lines += [*sorted(standard), *(["from typing import Any"] if hooks else [])]
    others = ["import torch", *others] if opened.interface.lazy else others
    lines += [""] * (lines[-1] != "") + [
        *others,
        f"from torch import {'Tensor, ' * (_PRESENT in hooks)}nn",
    ]
    if opened.source.own_code and opened.folder:
        lines += [
            "",
            f"CODE = {_literal(code_folder(opened))}  # where the code of the model is",
        ]
    for hook in hooks:
        lines += ["", "", hook]
    lines += [
        "",
        "",
        f"def {MAKER}() -> nn.Module:",
        '    """Return a new model, whose weights torch\'s generator draws."""',
    ]
    lines += [f"    {line}".rstrip() for line in before]
    if parts:
        lines += [
            f"    model = {expression}",
            *(f"    {statement}" for statement in parts),
            "    return model",
        ]
    else:
        lines.append(f"    return {expression}")
    names = named or tuple(output.name for output in returned) or ("output",)
    return Source(
        "\n".join(lines) + "\n",
        input_specs,
        names,
        class_name=MAKER,
        ends=tuple(OutputSpec(name, name if named else None) for name in names),
        own=own_file(opened),
    )


def _first_call(inputs: Iterable[InputSpec]) -> list[str]:
    """Return lines that call the model once, so that its lazy layers have their sizes."""
    zeros = ", ".join(
        f"torch.zeros({_literal((1, *spec.shape))}{'' if spec.dtype == 'float32' else f', dtype=torch.{spec.dtype}'})"
        for spec in inputs
    )
    return [
        "with torch.no_grad():",
        f"    model.eval()({zeros})  # the sizes of its lazy layers",
        "model.train()",
    ]


def own_file(opened: OpenedModel) -> OwnModel | None:
    """Return the user's file that defines the model, None for a model of a collection."""
    file = (
        finding.file_of(opened.source, opened.folder)
        if opened.source.own_code
        else None
    )
    if file is None:
        return None
    module = (
        opened.source.where
        if opened.source.kind == "module"
        else finding.package_of(file)[1]
    )
    return OwnModel(
        str(file), opened.sha256, module, code_folder(opened), opened.folder
    )


def code_folder(opened: OpenedModel) -> str:
    """Return the folder that must be on Python's path."""
    if opened.source.kind != "file":
        return opened.folder
    return str(finding.package_of(Path(opened.folder, opened.source.where))[0])


# --- Calls


def _order(
    opened: OpenedModel, names: list[str], conversions: Mapping[str, str]
) -> str:
    """Return the hook that passes tensors by name; "" where they are forward's first arguments anyway."""
    takes = opened.interface.takes
    argument_names = {argument.name for argument in takes}
    if lost := [name for name in names if name not in argument_names]:
        raise SourceError(
            f"forward of {opened.source} has no {lost[0]}; it takes {_names(takes)}"
        )
    if conversions or any(argument.way for argument in takes if argument.name in names):
        return _within(
            opened,
            [argument for name in names for argument in takes if argument.name == name],
            conversions,
        )
    if names == [argument.name for argument in takes][: len(names)]:
        return ""
    positional = [argument.name for argument in takes if argument.by_place]
    if any(name in positional for name in names):
        raise SourceError(
            f"{opened.source} takes {', '.join(positional)} by position only; give it a field for each"
        )
    return (
        "def by_name(_model: nn.Module, tensors: tuple[Any, ...], named: dict[str, Any]) -> Any:\n"
        '    """Pass the tensors of a batch to the arguments of forward that they are for."""\n'
        f"    return (), {{**dict(zip({_literal(tuple(names))}, tensors)), **named}}"
    )


# The rows of a sample that has fewer of them than others, such as boxes of a picture.
_PRESENT = f'''def present(sample: dict[str, Tensor]) -> dict[str, Tensor]:
    """Drop the rows that pad a sample to the size of the largest: their integers are {PADDING}."""
    ids = [one for one in sample.values() if one.ndim == 1 and not one.is_floating_point()]
    if not ids:
        return sample
    rows = ids[0] != {PADDING}
    return {{name: one[rows] if one.ndim and len(one) == len(rows) else one for name, one in sample.items()}}'''

# The layers of a model that has losses in train mode alone are put into eval mode without it.
_ALWAYS_LOSSES = '''def train(model: nn.Module, mode: bool = True) -> nn.Module:
    """Change the mode of layers only: in eval mode the model would compute no losses."""
    nn.Module.train(model, mode)
    for module in model.modules():
        if module is model or ([*module.children()] and not type(module).__module__.startswith("torch.nn.")):
            module.training = True
    return model'''


def _within(
    opened: OpenedModel, arguments: list[Argument], conversions: Mapping[str, str]
) -> str:
    """Return the hook that puts tensors into the arguments, lists, tuples and dictionaries that forward takes."""
    parts: dict[str, list[tuple[tuple[str, ...], str]]] = {}
    for number, argument in enumerate(arguments):
        if argument.by_place:
            raise SourceError(
                f"{opened.source} takes {argument.name} by position only, which cannot be filled"
            )
        parts.setdefault(argument.of or argument.name, []).append(
            (
                steps_of(argument.way),
                f"tensors[{number}]{conversions.get(argument.name, '')}",
            )
        )
    entries = ", ".join(
        f"{_literal(name)}: {_nested(inside)}" for name, inside in parts.items()
    )
    return (
        "def by_name(_model: nn.Module, tensors: tuple[Any, ...], named: dict[str, Any]) -> Any:\n"
        '    """Put the tensors of a batch into the arguments of forward that they are for."""\n'
        f"    return (), {{{entries}, **named}}"
    )


def _nested(parts: list[tuple[tuple[str, ...], str]]) -> str:
    """Return an expression for a value that has tensors in these places, each with the expression for it.

    >>> _nested([(('["x"]',), "a"), (('["state"]', "(0)"), "b")])
    '{"x": a, "state": (b,)}'
    >>> _nested([(("[*]",), "a")]), _nested([(("[*]", '["boxes"]'), "a"), (("[*]", '["ids"]'), "b")])
    ('[*a]', '[present({"boxes": one[0], "ids": one[1]}) for one in zip(a, b)]')
    """
    steps, code = parts[0]
    if not steps:
        return code
    if steps[0] == "[*]":
        if len(steps) == 1:
            return f"[*{code}]"
        inner = _nested(
            [(way[1:], f"one[{number}]") for number, (way, _) in enumerate(parts)]
        )
        inner = f"present({inner})" if steps[1].startswith('["') else inner
        return f"[{inner} for one in zip({', '.join(code for _, code in parts)})]"
    groups: dict[str, list[tuple[tuple[str, ...], str]]] = {}
    for way, code in parts:
        groups.setdefault(way[0], []).append((way[1:], code))
    values = {step: _nested(inside) for step, inside in groups.items()}
    if steps[0].startswith('["'):
        return (
            "{"
            + ", ".join(
                f"{_literal(step[2:-2])}: {value}" for step, value in values.items()
            )
            + "}"
        )
    elements = ", ".join(values.values())
    return f"[{elements}]" if steps[0].startswith("[") else f"({elements},)"


def _names(takes: Iterable[Argument]) -> str:
    return ", ".join(argument.name for argument in takes) or "nothing"


def _returned(opened: OpenedModel, names: tuple[str, ...]) -> tuple[Returned, ...]:
    outputs_by_name = {output.name: output for output in opened.interface.returns}
    if lost := [name for name in names if name not in outputs_by_name]:
        raise SourceError(
            f"{opened.source} does not return {lost[0]}; it returns {', '.join(outputs_by_name) or 'nothing'}"
        )
    chief = opened.interface.chief
    selected = tuple(outputs_by_name[name] for name in names) or (
        (chief,) if chief is not None else ()
    )
    if bad := next((output.way for output in selected if not is_way(output.way)), None):
        raise SourceError(f"{bad!r} leads to no tensor")
    return selected


def _chosen(
    returned: tuple[Returned, ...], by_name: bool, layouts: Mapping[str, str]
) -> str:
    """Return the hook that selects the tensors of the losses from the output of forward."""
    codes = {
        output.name: f"output{output.way}{layouts.get(output.name, '')}"
        for output in returned
    }
    expression = codes[returned[0].name]
    if by_name:
        expression = (
            "{"
            + ", ".join(f"{_literal(name)}: {code}" for name, code in codes.items())
            + "}"
        )
    return (
        "def chosen(_model: nn.Module, _tensors: Any, output: Any) -> Any:\n"
        '    """Return what the loss takes."""\n'
        f"    return {expression}"
    )


# --- How it is made

_Made = tuple[
    list[str], list[str], str
]  # imports at the top, lines of the function, the expression
_FIRST = (
    "made[0] if isinstance(made, tuple) else made"  # of a model with its example inputs
)


def _making(opened: OpenedModel) -> _Made:
    source, arguments = opened.source, opened.arguments
    if source.kind in ("file", "module"):
        return _own(opened)
    maker = _COLLECTIONS.get(source.kind)
    if maker is not None:
        return maker(opened)
    if not source.kind.isidentifier():
        raise SourceError(f"{source} cannot be trained")
    argument_text = ", ".join(filter(None, (_literal(source.name), _call(arguments))))
    lines = [
        f'(adapter,) = entry_points(group="tapedeck.sources", name={_literal(source.kind)})',
        f"made = adapter.load()({argument_text})",
    ]
    return ["from importlib.metadata import entry_points", ""], lines, _FIRST


def _own(opened: OpenedModel) -> _Made:
    source = opened.source
    module = source.where
    if source.kind == "file":
        module = finding.package_of(Path(opened.folder, source.where))[1]
    outer, _, inner = source.name.partition(".")
    for name in (*module.split("."), *source.name.split(".")):
        if not name.isidentifier() or keyword.iskeyword(name):
            raise SourceError(
                f"{source} cannot be imported: {name!r} is not a Python identifier"
            )
    before = []
    if opened.folder:
        before += ["if CODE not in sys.path:", "    sys.path.insert(0, CODE)"]
    before += [f"from {module} import {outer}", ""]
    maker = f"{outer}.{inner}" if inner else outer
    expression = f"{maker}({_call(opened.arguments)})"
    if (
        not source.call
        and opened.interface.model.rpartition(".")[2] == source.name.rpartition(".")[2]
    ):
        return [], before, expression
    if not source.call:
        expression = f"copy.deepcopy({maker}) if isinstance({maker}, nn.Module) else {expression}"
    return (
        ["import copy"] * (not source.call),
        [*before, f"made = {expression}"],
        _FIRST,
    )


def _torchvision(opened: OpenedModel) -> _Made:
    name, _, submodule_path = opened.source.name.partition(".")
    arguments = {"weights": None, **opened.arguments}
    if any(
        f".{task}." in opened.interface.model for task in ("detection", "segmentation")
    ):
        arguments = {"weights": None, "weights_backbone": None, **opened.arguments}
    expression = f"torchvision.models.get_model({_literal(name)}, {_call(arguments)})"
    return (
        ["import torchvision"],
        [],
        expression
        + (f".get_submodule({_literal(submodule_path)})" if submodule_path else ""),
    )


def _timm(opened: OpenedModel) -> _Made:
    arguments = {"pretrained": False, **opened.arguments}
    return (
        ["import timm"],
        [],
        f"timm.create_model({_literal(opened.source.name)}, {_call(arguments)})",
    )


def _transformers(opened: OpenedModel) -> _Made:
    name, kind = opened.source.name, opened.interface.model.rpartition(".")[2]
    if not kind.isidentifier():
        raise SourceError(
            f"{opened.source} has the class {kind!r}, which is not a Python identifier"
        )
    arguments = _call(opened.arguments)
    if Path(opened.folder, name).is_dir() or not name.replace("-", "_").isidentifier():
        config_arguments = ", ".join(
            filter(None, (_literal(name), "local_files_only=True", arguments))
        )
        config = f"config = transformers.AutoConfig.from_pretrained({config_arguments})"
        return ["import transformers"], [config], f"transformers.{kind}(config)"
    config = f"config = transformers.AutoConfig.for_model({', '.join(filter(None, (_literal(name), arguments)))})"
    auto = "architectures" not in opened.arguments
    return (
        ["import transformers"],
        [config],
        f"transformers.{'AutoModel.from_config' if auto else kind}(config)",
    )


def _diffusers(opened: OpenedModel) -> _Made:
    name, kind = opened.source.name, opened.interface.model.rpartition(".")[2]
    if not kind.isidentifier():
        raise SourceError(
            f"{opened.source} has the class {kind!r}, which is not a Python identifier"
        )
    if Path(name).is_dir():
        file = _literal(str(Path(name, "config.json").resolve()))
        lines = [
            f'with open({file}, encoding="utf-8") as file:',
            "    config = json.load(file)",
        ]
        if opened.arguments:
            lines.append(f"config |= {_literal(dict(opened.arguments))}")
        return (
            ["import json", "import diffusers"],
            lines,
            f"diffusers.{kind}.from_config(config)",
        )
    return (
        ["import diffusers"],
        [],
        f"diffusers.{kind}.from_config({_literal(dict(opened.arguments))})",
    )


_COLLECTIONS = {
    "torchvision": _torchvision,
    "timm": _timm,
    "hf": _transformers,
    "diffusers": _diffusers,
}


# --- Values


def _call(arguments: Mapping[str, Any]) -> str:
    """Format arguments for a call.

    >>> _call({"width": 8, "act": "relu", "class": None})
    'width=8, act="relu", **{"class": None}'
    """
    plain = {
        name: value
        for name, value in arguments.items()
        if name.isidentifier() and not keyword.iskeyword(name)
    }
    rest = {name: value for name, value in arguments.items() if name not in plain}
    texts = [f"{name}={_literal(value)}" for name, value in plain.items()]
    return ", ".join([*texts, f"**{_literal(rest)}"] if rest else texts)


def _literal(value: Any) -> str:
    """Return a JSON value as a Python literal. Raises SourceError for another one."""
    if isinstance(value, Mapping):
        return (
            "{"
            + ", ".join(
                f"{_literal(key)}: {_literal(entry)}" for key, entry in value.items()
            )
            + "}"
        )
    if isinstance(value, list):
        return "[" + ", ".join(map(_literal, value)) + "]"
    if isinstance(value, tuple):
        return "(" + ", ".join(map(_literal, value)) + "," * (len(value) == 1) + ")"
    if isinstance(value, str) and value.isprintable() and not {'"', "\\"} & {*value}:
        return f'"{value}"'
    if (
        value is None
        or isinstance(value, bool | int | str)
        or (isinstance(value, float) and abs(value) < 1e308)
    ):
        return repr(value)
    raise SourceError(f"{value!r} cannot be written into a script")


def _plain(text: str) -> str:
    """Escape a text for a docstring."""
    return "".join(
        character if character.isprintable() and character not in '"\\' else "_"
        for character in text
    )
