"""Generated layer files for classes that a drawing cannot refer to as they are.

The import writes one file per class, which contains the constructor, its call and the origin: of a class of an
installed package an import, of a class of the person's own file that file.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from app.builder.catalog.catalog import OpSpec, catalog
from app.builder.catalog.custom import CustomFile, file_of, module_name, read_file
from app.builder.catalog.custom_classes import returned_names
from app.builder.codegen.call_code import wrapped
from app.builder.literals import DType, LiteralError, encode
from app.features.importing.compute.lowering.binding import BindingError, literal_of
from app.features.importing.compute.lowering.constructor_args import (
    ArgumentCode,
    ConstructorArgs,
    constructor_args_of,
)
from app.features.importing.compute.lowering.modules import described
from app.features.importing.compute.tracing.records import is_record
from app.source import layer_files
from app.source.layer_files import FOLDER, LayerFile, digest

_PLAIN = ("int", "float", "bool", "str")
_OPTIONAL = re.compile(
    rf"(?P<plain>{'|'.join(_PLAIN)}) ?\| ?None|(typing\.)?Optional\[(?P<inner>{'|'.join(_PLAIN)})\]"
)
_HEAD = '''"""{name} of {module}, as a layer of a drawing."""

{more}import torch
from torch import nn
from {module} import {name} as _{name}


class {label}(_{name}, nn.Module):
    """{name} of {module}."""
'''
_OWN = '''{text}

{more}import torch
from torch import nn


class {label}({name}):
    """{name}, as a layer of a drawing."""
'''
_METHOD = """
    def {method}({given}):
        {line}
"""


def importable(kind: type) -> bool:
    """Return whether a class can be imported by its qualified name."""
    module = sys.modules.get(kind.__module__)
    return (
        module is not None
        and kind.__module__ != "__main__"
        and getattr(module, kind.__qualname__, None) is kind
    )


def layer_of(
    kind: type[nn.Module],
    folder: Path,
    beside: Path,
    fixed: Mapping[str, Any],
    hashes_by_module: Mapping[str, str],
    result: Any = None,
    norms: tuple[str, ...] = (),
    source_file: LayerFile | None = None,
) -> CustomFile:
    """Write the layer file of a class to `folder`, with the constructor's `fixed` arguments in it. Raises BindingError
    if the class or an argument cannot be imported by name, or comes from `beside`, the folder of the imported file.

    `hashes_by_module` has the hashes of the files that there are, by module: another text of one of these gets a
    number. With a `result` of a call, a record or a nested one, the layer returns the tensors in it. `norms` are
    statements at the end of the constructor. `source_file` is the imported file, if it is a class of that: the layer
    is written below its text.
    """
    if not importable(kind):
        raise BindingError(
            f"{kind.__name__} of {kind.__module__} cannot be found there by name, so no file can import it"
        )
    if source_file is None and (why := _barred(kind.__module__, beside)):
        raise BindingError(f"{kind.__name__} {why}")
    text = _text(kind, fixed, beside, result, norms, source_file)
    root = kind.__module__.partition(".")[0]
    return written(
        text,
        re.sub(r"\W", "_", f"{root}_{kind.__name__.strip('_')}"),
        folder,
        hashes_by_module,
    )


def written(
    text: str, name: str, folder: Path, hashes_by_module: Mapping[str, str]
) -> CustomFile:
    """Write a layer file of this name to `folder`, with a number if `hashes_by_module` has another text of the name."""
    stem, number = name, 1
    while hashes_by_module.get(stem, digest(text)) != digest(text):
        stem, number = f"{name}_{number + 1}", number + 1
    path = folder / FOLDER / digest(text)[:16] / f"{stem}.py"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    assert module_name(path) == stem
    layer_files.allow(digest(text), tried=True)
    return read_file(path)


def _made_with(module: nn.Module) -> ConstructorArgs | None:
    """Return how a module can be made, one of torch's too."""
    if type(module) is nn.Sequential:
        return ConstructorArgs(tuple(module))
    if type(module) is nn.ModuleList:
        return ConstructorArgs((list(module),))
    recorded = constructor_args_of(module)
    return (
        ConstructorArgs((), described(module, catalog())[1])
        if recorded is None
        else recorded
    )


def _barred(module: str, beside: Path) -> str:
    """Return why no file of a project can import a module, "" if it can."""
    root = module.partition(".")[0]
    home = getattr(importlib.import_module(root), "__file__", None) or ""
    if (
        home
        and (
            Path(home).parent.parent
            if Path(home).name == "__init__.py"
            else Path(home).parent
        )
        == beside
    ):
        return f"is in {root} beside the file, which a project does not include"
    return ""


def _text(
    kind: type[nn.Module],
    fixed: Mapping[str, Any],
    beside: Path,
    result: Any,
    norms: tuple[str, ...],
    source_file: LayerFile | None,
) -> str:
    home = kind.__module__ if source_file is not None else ""
    code = ArgumentCode(lambda module: _barred(module, beside), _made_with, home)
    texts: dict[str, str] = {}
    for name, value in fixed.items():
        try:
            texts[name] = code.text(value)
        except BindingError as error:
            raise BindingError(
                f"{kind.__name__} was constructed with {name}, and {error}"
            ) from error
    more = "".join(
        f"import {module}\n" for module in sorted(code.imports - {"torch", "torch.nn"})
    )
    if source_file is not None:
        text = _OWN.format(
            text=source_file.text.rstrip(),
            more=more,
            label=_fresh(kind.__name__, source_file.text),
            name=kind.__name__,
        )
    else:
        text = _HEAD.format(
            name=kind.__name__,
            module=kind.__module__,
            label=_label(kind, norms),
            more=more,
        )
    if kind.__init__ is not nn.Module.__init__:
        signature, passed = arguments_of(
            _parameters(kind, "__init__"), kind.__name__, texts
        )
        line = "\n        ".join((wrapped("super().__init__(", passed, ")", 8), *norms))
        text += _METHOD.format(method="__init__", given=signature, line=line)
    signature, passed = arguments_of(
        _parameters(kind, "forward"), kind.__name__, {}, in_forward=True
    )
    names = _returned(kind)
    call = wrapped("super().forward(", passed, ")", 16)
    if opened_in_layer(kind, result):
        return text + _METHOD.format(
            method="forward",
            given=signature,
            line=returning(kind.__name__, call, result),
        )
    several = f"{', '.join(names)} = {call}\n        return {', '.join(names)}"
    return text + _METHOD.format(
        method="forward", given=signature, line=several if names else f"return {call}"
    )


def _label(kind: type, norms: tuple[str, ...]) -> str:
    """Name the layer after its class and its norms."""
    name = kind.__name__.strip("_")
    norm_names = dict.fromkeys(
        "Spectral" if "spectral_norm" in line else "Weight" for line in norms
    )
    return (
        f"{''.join(f'{word}Norm' for word in norm_names)}{name[:1].upper()}{name[1:]}"
    )


def _fresh(name: str, text: str) -> str:
    """Name the layer of a class after it, with a name that its file does not have."""
    plain, number = f"{name.strip('_')}Layer", 1
    label = plain
    while re.search(rf"\b{label}\b", text):
        label, number = f"{plain}{number + 1}", number + 1
    return label


def opened_in_layer(kind: type, result: Any) -> bool:
    """Return whether a layer has to name the tensors that a class returns: those of a record, or of a tuple that no
    `return` of its forward shows."""
    several = (
        isinstance(result, tuple | list)
        and len(result) > 1
        and len(_returned(kind)) != len(result)
    )
    return is_record(result) or several


def returning(name: str, call: str, result: Any) -> str:
    """Return the statements that make a call and return the tensors of its result. Raises BindingError if there are
    none. `name` is that of the class."""
    values = [f"result{accessor}" for accessor in _tensors_in(result)]
    if not values:
        raise BindingError(f"{name} returns a {type(result).__name__} without tensors")
    several = wrapped("return (", values, ")", 8)
    returned = several if "\n" in several else f"return {', '.join(values)}"
    return f"result = {call}\n        {returned}"


def is_generated(spec: OpSpec) -> bool:
    """Return whether an op is a class of a file that was written here."""
    file = file_of(spec)
    return file is not None and FOLDER in Path(file.path).parts


def _tensors_in(result: Any, accessor: str = "") -> Iterator[str]:
    """Yield the expression behind a result for each tensor in it, in the order of its leaves."""
    if isinstance(result, torch.Tensor):
        yield accessor
    elif isinstance(result, tuple | list):
        names = getattr(result, "_fields", None)
        for number, item in enumerate(result):
            yield from _tensors_in(
                item,
                f"{accessor}.{names[number]}" if names else f"{accessor}[{number}]",
            )
    elif isinstance(result, dict):
        for key, item in result.items():
            field = (
                isinstance(key, str) and getattr(result, key, None) is item
            )  # a record that is a dict too
            yield from _tensors_in(
                item, f"{accessor}.{key}" if field else f"{accessor}[{key!r}]"
            )
    elif is_dataclass(result):
        for field_info in fields(result):
            yield from _tensors_in(
                getattr(result, field_info.name), f"{accessor}.{field_info.name}"
            )


def _parameters(kind: type[nn.Module], method: str) -> list[inspect.Parameter]:
    return list(inspect.signature(getattr(kind, method)).parameters.values())[1:]


def arguments_of(
    parameters: Iterable[inspect.Parameter],
    name: str,
    fixed: Mapping[str, str],
    in_forward: bool = False,
) -> tuple[str, list[str]]:
    """Return a method's arguments as written, and how they are passed on; non-literal defaults are left to the class of
    this name. Those that are `fixed` are passed on only. Raises BindingError."""
    signature, passed, keyword = ["self"], [], False
    for parameter in parameters:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            if in_forward and parameter.kind is parameter.VAR_POSITIONAL:
                raise BindingError(f"{name}.forward takes *{parameter.name}")
            if parameter.name in fixed:
                passed.append(
                    f"{'*' if parameter.kind is parameter.VAR_POSITIONAL else '**'}{fixed[parameter.name]}"
                )
            continue
        if parameter.name in fixed:
            passed.append(
                f"{parameter.name}={fixed[parameter.name]}"
                if keyword or parameter.kind is parameter.KEYWORD_ONLY
                else fixed[parameter.name]
            )
            continue
        default = (
            ""
            if parameter.default is parameter.empty
            else written_default(parameter.default)
        )
        if default is None:
            keyword = True  # arguments after it are passed by keyword
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in signature:
            signature.append("*")
        note = _annotation(parameter.annotation, parameter.default, in_forward)
        equals = " = " if note else "="
        signature.append(
            f"{parameter.name}{f': {note}' if note else ''}{f'{equals}{default}' if default else ''}"
        )
        # What has a default goes by name: decorators that add others by name would give it twice.
        keyword = (
            keyword
            or parameter.kind is parameter.KEYWORD_ONLY
            or (in_forward and bool(default))
        )
        passed.append(
            f"{parameter.name}={parameter.name}" if keyword else parameter.name
        )
    return ", ".join(signature), passed


def written_default(default: Any) -> str | None:
    """Format a default as Python; None if it is no literal."""
    try:
        value = literal_of(default)
        encode(value)
    except (BindingError, LiteralError):
        return None
    return f"torch.{value.name}" if isinstance(value, DType) else repr(value)


def _annotation(annotation: Any, default: Any, in_forward: bool) -> str:
    text = (
        annotation
        if isinstance(annotation, str)
        else inspect.formatannotation(annotation)
    )
    if annotation is inspect.Parameter.empty:
        text = ""
    if "Tensor" in text or (in_forward and default is None and not text):
        return (
            "torch.Tensor | None"
            if default is None
            else "torch.Tensor"
            if "[" not in text
            else ""
        )
    if default is None and (match := _OPTIONAL.fullmatch(text)):
        return f"{match['plain'] or match['inner']} | None"
    return text if text in _PLAIN else ""


def _returned(kind: Any) -> tuple[str, ...]:
    """Return names for the values that `forward` returns, if several."""
    try:
        tree = ast.parse(
            textwrap.dedent(inspect.getsource(inspect.unwrap(kind.forward)))
        ).body[0]
    except (OSError, TypeError, SyntaxError, IndexError):
        return ()
    return returned_names(tree) if isinstance(tree, ast.FunctionDef) else ()
