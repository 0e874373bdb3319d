"""Free parameters, buffers and constants as source.

`expression` and `tensor_values.create_tensor` are equivalent; a test runs both.
"""

from __future__ import annotations

import ast
import keyword
import math
from collections.abc import Mapping
from typing import Any

from app.builder.codegen import tensor_literals
from app.builder.graph import Tie
from app.builder.literals import DType, to_code
from app.builder.params import ParamError
from app.util.language import tr

FILLS = ("zeros", "ones", "full", "normal", "uniform", "eye")
# What makes no sense for what learns.
BUFFER_FILLS = (*FILLS, "arange", "tril", "triu")
# Default arguments of a free tensor.
DEFAULTS: dict[str, Any] = {
    "fill": "zeros",
    "value": 1.0,
    "std": 1.0,
    "low": 0.0,
    "high": 1.0,
}


def expression(
    key: str, params: Mapping[str, Any], texts: Mapping[str, str] | None = None
) -> str:
    """Return the tensor as source. `texts` has the parameters that are no literals.

    >>> expression("parameter", {"shape": (1, 64), "fill": "normal", "std": 0.02})
    'torch.randn(1, 64) * 0.02'
    >>> expression("constant", {"value": ((1, 2), (3, 4))})
    'torch.tensor([[1, 2], [3, 4]])'
    """
    texts = texts or {}
    if key == "constant":
        dtype = params.get("dtype")
        more = f", dtype={to_code(dtype)}" if dtype is not None else ""
        return f"torch.tensor({_brackets(params['value']) if 'value' in params else '...'}{more})"

    if key == "packed":
        rest = f"{to_code(dtype_of(params))}, {to_code(params.get('shape', ...))}"
        return tensor_literals.in_source(str(params.get("values", "")), rest)

    def text(name: str) -> str:
        return texts.get(name) or to_code(params.get(name, DEFAULTS.get(name)))

    def is_default(name: str) -> bool:
        return name not in texts and params.get(name, DEFAULTS[name]) == DEFAULTS[name]

    shape = texts.get("shape") or to_code(params.get("shape", ...))
    items = _items(shape)
    sizes = ", ".join(items) or shape
    fill, dtype = params.get("fill", "zeros"), dtype_of(params)
    natural = {"arange": "int64", "full": ""}.get(fill, "float32")
    more = "" if dtype.name == natural else f", dtype={to_code(dtype)}"
    if fill == "normal":
        return f"torch.randn({sizes}{more})" + (
            "" if is_default("std") else f" * {text('std')}"
        )
    if fill == "uniform":
        if is_default("low") and is_default("high"):
            return f"torch.rand({sizes}{more})"
        return f"torch.empty({sizes}{more}).uniform_({text('low')}, {text('high')})"
    if fill == "full":
        return f"torch.full({shape}, {text('value')}{more})"
    if fill == "eye":
        return f"torch.eye({items[0] if len(items) == 2 and items[0] == items[1] else sizes}{more})"
    if fill == "arange":
        if len(items) == 1:
            return f"torch.arange({sizes}{more})"
        plain = all(item.isdigit() for item in items)
        count = (
            str(math.prod(map(int, items)))
            if plain
            else " * ".join(map(in_brackets, items))
        )
        return f"torch.arange({count}{more}).view({sizes})"
    if fill in ("tril", "triu"):
        return f"torch.ones({sizes}{more}).{fill}()"
    return f"torch.{fill}({sizes}{more})"


def _items(text: str) -> list[str]:
    """Return the items of a tuple as source."""
    tree = ast.parse(text, mode="eval").body
    return (
        [ast.unparse(item) for item in tree.elts] if isinstance(tree, ast.Tuple) else []
    )


def in_brackets(text: str) -> str:
    """Parenthesise an operand if operator precedence requires it.

    >>> in_brackets("channels * 2"), in_brackets("self.channels"), in_brackets("-1.0")
    ('(channels * 2)', 'self.channels', '-1.0')
    """
    return (
        f"({text})"
        if isinstance(ast.parse(text, mode="eval").body, ast.BinOp)
        else text
    )


def dtype_of(params: Mapping[str, Any]) -> DType:
    """Return its dtype, float32 by default."""
    dtype = params.get("dtype")
    return dtype if isinstance(dtype, DType) else DType("float32")


def _brackets(value: Any) -> str:
    return (
        f"[{', '.join(map(_brackets, value))}]"
        if isinstance(value, tuple)
        else to_code(value)
    )


def check_ties(tied: Mapping[str, Tie]) -> None:
    """Raise ParamError unless every name is one that a state_dict may have. What passes can be written into source."""
    for name, tie in tied.items():
        for path in (name, tie.name):
            if path and not all(
                _is_name(segment) or segment.isdecimal() for segment in path.split(".")
            ):
                text = tr("{name!r:.60} is not a parameter name", name=path)
                raise ParamError(text)


def _is_name(segment: str) -> bool:
    return segment.isidentifier() and not keyword.iskeyword(segment)


def place_of(module: str, path: str) -> str:
    """Return the expression for a parameter; `module` is that of its module.

    >>> place_of("self.head", "weight"), place_of("self.encoder", "layers.0.weight")
    ('self.head.weight', 'self.encoder.get_submodule("layers.0").weight')
    """
    owner, _, name = path.rpartition(".")
    if not path:
        return module
    if all(map(_is_name, owner.split("."))) or not owner:
        return f"{module}.{path}"
    return f'{module}.get_submodule("{owner}").{name}'
