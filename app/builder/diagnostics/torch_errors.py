"""PyTorch's own error message for an invalid constructor argument."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from app.builder.catalog.catalog import OpSpec
from app.builder.literals import AUTO
from app.builder.params import ParamError, check_param
from app.util.frozen import FrozenMap

# Larger numbers are not tried: constructing so large a module for its error alone is too slow.
_LARGEST = 4096
# Substitute for sizes inferred from unknown shapes; most numbers of heads and groups divide it.
_ARRIVING = 64


def torch_message(spec: OpSpec, params: Mapping[str, Any], name: str, text: str) -> str:
    """Return torch's error for a layer whose argument `name` is `text`.

    "" if torch accepts it, or if it is not tried. Nothing is allocated. Imports torch.
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
    except ParamError:  # another argument is invalid, and torch would report that one
        return ""
    if _refused(spec, FrozenMap(made)):
        return ""
    return _refused(spec, FrozenMap({**made, name: value}))


def _refused(spec: OpSpec, params: FrozenMap[str, Any]) -> str:
    """Return torch's error for a layer with these arguments, "" if none."""
    import torch

    from app.builder.shapes.meta_calls import TorchCall

    try:
        with torch.device("meta"):
            TorchCall.resolve(spec, params)
    except Exception as error:  # torch's message is the answer
        return str(error).strip().partition("\n")[0] or type(error).__name__
    return ""


def _value(text: str) -> Any:
    """Parse typed text as a Python literal; text if it is none."""
    plain = text.strip().replace("−", "-").replace("×", ",")
    try:
        return ast.literal_eval(plain)
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return plain


def _small(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return len(value) <= 8 and all(map(_small, value))
    return not isinstance(value, int | float) or abs(value) <= _LARGEST
