"""Initialisations of layer parameters: the functions of `torch.nn.init` and their arguments.

The table is here so that a form can show it without torch; a test compares it with torch's signatures.
"""

from __future__ import annotations

import keyword
from collections.abc import Mapping
from typing import Any

from app.builder.catalog.catalog import Param
from app.builder.graph import Init
from app.builder.params import ParamError, check_param
from app.util.language import tr


def _number(name: str, default: float | None = None, **more: Any) -> Param:
    return Param(
        name,
        "float",
        default,
        required=default is None,
        start=None if default is not None else 0.0,
        **more,
    )


_KAIMING = (
    _number("a", 0),
    Param("mode", "choice", "fan_in", choices=("fan_in", "fan_out")),
    Param(
        "nonlinearity",
        "choice",
        "leaky_relu",
        choices=(
            "linear",
            "conv1d",
            "conv2d",
            "conv3d",
            "conv_transpose1d",
            "conv_transpose2d",
            "conv_transpose3d",
            "sigmoid",
            "tanh",
            "relu",
            "leaky_relu",
            "selu",
        ),
    ),
)
_GAIN = (_number("gain", 1.0),)

FUNCTIONS: dict[str, tuple[Param, ...]] = {
    "kaiming_normal_": _KAIMING,
    "kaiming_uniform_": _KAIMING,
    "xavier_normal_": _GAIN,
    "xavier_uniform_": _GAIN,
    "trunc_normal_": (
        _number("mean", 0.0),
        _number("std", 1.0),
        _number("a", -2.0),
        _number("b", 2.0),
    ),
    "normal_": (_number("mean", 0.0), _number("std", 1.0)),
    "uniform_": (_number("a", 0.0), _number("b", 1.0)),
    "orthogonal_": (_number("gain", 1),),
    "zeros_": (),
    "ones_": (),
    "constant_": (_number("val"),),
    "eye_": (),
    "dirac_": (Param("groups", "int", 1, minimum=1),),
    "sparse_": (_number("sparsity", minimum=0, maximum=1), _number("std", 0.01)),
}


def check_inits(inits: Mapping[str, Init]) -> None:
    """Raise ParamError unless every key names a parameter (`weight`, `self_attn.in_proj_weight`, "" for a free
    parameter) and every function is in the table, with valid arguments. Valid values are safe to write into source."""
    for name, init in inits.items():
        if name and (
            not name.replace(".", "_").isidentifier()
            or not all(map(is_name, name.split(".")))
        ):
            raise ParamError(tr("{name!r:.60} is not a parameter name", name=name))
        if init.name not in FUNCTIONS:
            text = tr(
                "torch.nn.init has no {name!r:.40} here; it has {names}",
                name=init.name,
                names=", ".join(FUNCTIONS),
            )
            raise ParamError(text)
        params = {param.name: param for param in FUNCTIONS[init.name]}
        for key, value in init.params.items():
            if key not in params:
                text = tr(
                    "{function} has no argument {name!r:.40}",
                    function=init.name,
                    name=key,
                )
                raise ParamError(text)
            check_param(params[key], value)
        absent = [
            param.name
            for param in params.values()
            if param.required and param.name not in init.params
        ]
        if absent:
            text = tr(
                "{function} expects {names}",
                function=init.name,
                names=f" {tr('and')} ".join(absent),
            )
            raise ParamError(text)


def is_name(segment: str) -> bool:
    """Return whether a part of a parameter's path can be written as an attribute."""
    # A number is an item of a Sequential or a ModuleList, for which `self.x.0` is invalid.
    return segment.isidentifier() and not keyword.iskeyword(segment)
