"""The closed set of parameter values, their JSON form and their Python source.

Plain JSON values are encoded as they are, others as an object with one tagged key. A project contains nothing else, so
`to_code` covers every value.
"""

from __future__ import annotations

import math
from typing import Any

from msgspec import Struct

from app.builder.expressions import Expr, ExpressionError
from app.util.errors import CodedError


class _Auto:
    """A parameter that is taken from the shape that arrives (`in_channels` of a convolution)."""

    _only: _Auto | None = None

    def __new__(cls) -> _Auto:
        cls._only = cls._only or super().__new__(cls)
        return cls._only

    def __repr__(self) -> str:
        return "AUTO"

    def __reduce__(self) -> str:
        return "AUTO"


AUTO = _Auto()

# Tuples within tuples; no argument of torch nests deeper than two.
DEEPEST = 8

DTYPES = (
    "float32",
    "float64",
    "float16",
    "bfloat16",
    "int64",
    "int32",
    "int16",
    "int8",
    "uint8",
    "bool",
    "complex64",
    "complex128",
)


class DType(Struct, frozen=True):
    """`torch.<name>` without importing torch."""

    name: str

    def __post_init__(self) -> None:
        if self.name not in DTYPES:
            raise ValueError(
                f"{self.name!r} is not a dtype; there are {', '.join(DTYPES)}"
            )


class Slice(Struct, frozen=True):
    """`start:stop:step` between brackets, each a whole number or None.

    >>> str(Slice(1, None)), str(Slice(None, None, 2))
    ('1:', '::2')
    """

    start: int | None = None
    stop: int | None = None
    step: int | None = None

    def __post_init__(self) -> None:
        if any(bound is not None and type(bound) is not int for bound in self.parts):
            raise ValueError("a slice is made of ints")
        if self.step == 0:
            raise ValueError("the step of a slice cannot be 0")

    @property
    def parts(self) -> tuple[int | None, int | None, int | None]:
        return self.start, self.stop, self.step

    def __str__(self) -> str:
        return slice_text(
            *("" if bound is None else str(bound) for bound in self.parts)
        )


def slice_text(start: str, stop: str, step: str) -> str:
    """Format a slice as written between brackets."""
    return f"{start}:{stop}:{step}" if step else f"{start}:{stop}"


def index_code(value: Any) -> str:
    """Format an index as Python: a number, a slice, `...`, None, a list of positions, or a tuple of them.

    >>> index_code((Ellipsis, Slice(None, 3), 0)), index_code((1,)), index_code(Slice()), index_code((Slice(), (0, 2)))
    ('..., :3, 0', '1,', ':', ':, [0, 2]')
    """
    if isinstance(value, tuple):
        items = (
            f"[{', '.join(map(repr, item))}]"
            if isinstance(item, tuple)
            else index_code(item)
            for item in value
        )
        return ", ".join(items) + ("," if len(value) == 1 else "") if value else "()"
    return str(value) if isinstance(value, Slice) else to_code(value)


class LiteralError(CodedError, ValueError):
    """A value that is not in the closed list."""


def encode(value: Any) -> Any:
    """Return the JSON form of a value.

    >>> encode((3, 3)), encode(AUTO), encode(float("inf")), encode(DType("int64"))
    ({'$tuple': [3, 3]}, {'$auto': True}, {'$float': 'inf'}, {'$dtype': 'int64'})
    """
    return _encode(value, DEEPEST)


def _encode(value: Any, depth: int) -> Any:
    if value is AUTO:
        return {"$auto": True}
    if isinstance(value, DType):
        return {"$dtype": value.name}
    if isinstance(value, Expr):
        return {"$expr": value.text}
    if value is Ellipsis:
        return {"$ellipsis": True}
    if isinstance(value, Slice):
        return {"$slice": list(value.parts)}
    if isinstance(value, tuple) and depth:
        return {"$tuple": [_encode(item, depth - 1) for item in value]}
    if isinstance(value, float) and not math.isfinite(value):
        return {"$float": repr(value)}
    if value is None or type(value) in (bool, int, float, str):
        return value
    raise LiteralError(f"{value!r:.80} cannot be stored in a project")


def decode(raw: Any) -> Any:
    """Return the value of a JSON form; the inverse of `encode`.

    >>> decode({"$tuple": [1, {"$float": "-inf"}]})
    (1, -inf)
    """
    return _decode(raw, DEEPEST)


def _decode(raw: Any, depth: int) -> Any:
    if raw is None or type(raw) in (bool, int, float, str):
        return raw
    if isinstance(raw, dict) and len(raw) == 1 and depth:
        (tag, body), *_ = raw.items()
        if tag == "$auto" and body is True:
            return AUTO
        if tag == "$dtype" and body in DTYPES:
            return DType(body)
        if tag == "$expr" and isinstance(body, str):
            try:
                return Expr(body)
            except ExpressionError as error:
                raise LiteralError(str(error)) from error
        if tag == "$ellipsis" and body is True:
            return Ellipsis
        if tag == "$slice" and isinstance(body, list) and len(body) == 3:
            try:
                return Slice(*body)
            except (TypeError, ValueError) as error:
                raise LiteralError(str(error)) from error
        if tag == "$tuple" and isinstance(body, list):
            return tuple(_decode(item, depth - 1) for item in body)
        if tag == "$float" and body in ("inf", "-inf", "nan"):
            return float(body)
    raise LiteralError(f"{_brief(raw)} is not a value that a project can store")


def _brief(raw: Any) -> str:
    """Abbreviate a JSON value for a message; `repr` of deeply nested data would not return."""
    if isinstance(raw, dict):
        return "{" + ", ".join(f"{key!r:.40}: ..." for key in list(raw)[:3]) + "}"
    return "a list" if isinstance(raw, list) else f"{raw!r:.80}"


def to_code(value: Any) -> str:
    """Format a value as Python source.

    >>> print(to_code((1, -1)), to_code(DType("int64")), to_code(float("nan")), to_code("same"))
    (1, -1) torch.int64 float("nan") "same"
    """
    if value is AUTO or value is Ellipsis:
        return "..."
    if isinstance(value, Slice):
        return f"slice({', '.join(map(repr, value.parts))})"
    if isinstance(value, DType):
        return f"torch.{value.name}"
    if isinstance(value, Expr):
        return value.code()
    if isinstance(value, tuple):
        items = ", ".join(to_code(item) for item in value)
        return f"({items},)" if len(value) == 1 else f"({items})"
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if type(value) is str and '"' not in value and repr(value) == f"'{value}'":
        return f'"{value}"'
    if value is None or type(value) in (bool, int, float, str):
        return repr(value)
    raise LiteralError(f"{value!r} cannot be written as source")
