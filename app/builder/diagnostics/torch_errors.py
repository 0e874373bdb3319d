"""What torch itself says of an argument that a constructor does not take."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from app.builder.catalog.catalog import OpSpec
from app.builder.literals import AUTO
from app.builder.params import ParamError, check_param
from app.util.frozen import FrozenMap

# Larger numbers are not tried: a module of so many layers, or so large a one, would be made for its words alone.
_LARGEST = 4096
# Stands for what is taken from a shape that has not arrived; most numbers of heads and groups divide it.
_ARRIVING = 64


def torch_words(spec: OpSpec, params: Mapping[str, Any], name: str, text: str) -> str:
    """The words with which torch refuses a layer whose argument `name` is what `text` says.

    "" where torch takes it, and where it is not tried. Nothing is allocated. Imports torch.
    """
    param = spec.param(name)
    value = _value(text)
    if spec.kind != "module" or param is None or param.call or not _small(value):
        return ""
    known = {other.name: params.get(other.name, other.default) for other in spec.params}
    made = {key: _ARRIVING if held is AUTO else held for key, held in known.items()}
    try:
        for other in spec.params:
            if other.name != name:
                check_param(other, made[other.name])
    except ParamError:  # something else is wrong, and torch would speak of that
        return ""
    if _refused(spec, FrozenMap(made)):
        return ""
    return _refused(spec, FrozenMap({**made, name: value}))


def _refused(spec: OpSpec, params: FrozenMap[str, Any]) -> str:
    """What torch says of a layer with these arguments, "" if it makes it."""
    import torch

    from app.builder.shapes.meta_calls import Call

    try:
        with torch.device("meta"):
            Call.of(spec, params)
    except Exception as error:  # torch's words are the answer
        return str(error).strip().partition("\n")[0] or type(error).__name__
    return ""


def _value(text: str) -> Any:
    """What a person typed, as Python would read it: text where it is nothing else."""
    plain = text.strip().replace("−", "-").replace("×", ",")
    try:
        return ast.literal_eval(plain)
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return plain


def _small(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return len(value) <= 8 and all(map(_small, value))
    return not isinstance(value, int | float) or abs(value) <= _LARGEST
