"""The parameters of a layer that can be initialised, and torch's errors for an initialisation."""

from __future__ import annotations

import inspect
import math
import threading
from typing import Any

import torch

from app.builder.catalog.catalog import OpSpec
from app.builder.catalog.inits import check_inits, is_name
from app.builder.graph import Init
from app.builder.params import ParamError
from app.util import module_tree
from app.util.frozen import FrozenMap

_LARGEST = 1 << 20
_memo: dict[tuple[Any, ...], str] = {}
_lock = threading.Lock()


def parameter_shapes(
    spec: OpSpec, resolved: FrozenMap[str, Any]
) -> dict[str, tuple[int, ...]]:
    """Return the parameters of a layer that can be initialised, with their shapes."""
    if spec.kind not in ("module", "parameter"):
        return {}
    from app.builder.shapes.meta_calls import TorchCall  # which checks initialisations

    if spec.kind == "parameter":
        shape = resolved.get("shape")
        return {"": tuple(shape) if isinstance(shape, tuple) else ()}
    with torch.device("meta"):
        module = TorchCall.resolve(spec, resolved).target
    return {
        name: tuple(p.shape)
        for name, p in module_tree.named_parameters(module)
        if all(map(is_name, name.split(".")))
    }


def refusal(spec: OpSpec, resolved: FrozenMap[str, Any], name: str, init: Init) -> str:
    """Return torch's error for an initialisation, "" if it is valid."""
    key = (spec.key, spec.target, resolved, name, init)
    with _lock:
        if key in _memo:
            return _memo[key]
    message = _tried(spec, resolved, name, init)
    with _lock:
        if len(_memo) > 4096:
            _memo.clear()
        _memo[key] = message
    return message


def _tried(spec: OpSpec, resolved: FrozenMap[str, Any], name: str, init: Init) -> str:
    try:
        check_inits({name or "weight": init})
    except ParamError as error:
        return str(error)
    shapes = parameter_shapes(spec, resolved)
    if name not in shapes:
        return f"there is no parameter {name}; there are {', '.join(shapes) or 'none'}"
    function = getattr(torch.nn.init, init.name)
    shape = shapes[name]
    sizes = (
        shape
        if math.prod(shape) <= _LARGEST
        else tuple(min(size, 64) for size in shape)
    )
    # A private generator, so that a concurrent run's random numbers are unaffected.
    generator_argument = (
        {"generator": torch.Generator()}
        if "generator" in inspect.signature(function).parameters
        else {}
    )
    try:
        function(torch.empty(sizes), **init.params, **generator_argument)
    except Exception as error:  # torch's words are the answer
        return str(error).partition("\n")[0] or type(error).__name__
    return ""
