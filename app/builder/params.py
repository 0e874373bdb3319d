"""Validation of parameter values, which guards source text and files, and their text form."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from types import EllipsisType, MappingProxyType
from typing import Any

from app.builder.catalog.catalog import OpSpec, Param, Port
from app.builder.codegen.tensor_literals import is_packed
from app.builder.expressions import Expr, ExpressionError
from app.builder.graph import Node
from app.builder.literals import (
    AUTO,
    DEEPEST,
    DTYPES,
    DType,
    Slice,
    index_code,
    slice_text,
)
from app.util.errors import CodedError
from app.util.language import tr

Params = Mapping[str, Any]
NONE: Params = MappingProxyType({})
LARGEST = 2**31 - 1
LONGEST = 1000  # letters of a text
# Elements of a typed tensor; larger ones are data.
MOST_VALUES = 4096
# Kinds that may be an expression over the parameters of the enclosing block.
COMPUTED = ("int", "float", "bool", "ints", "number")
# Subscripts of an `einsum` operand: letters and an ellipsis.
_LETTERS = r"[A-Za-z]*(?:\.\.\.)?[A-Za-z]*"
_EQUATION = re.compile(rf"(?=[A-Za-z.]){_LETTERS}(?:,{_LETTERS})*(?:->{_LETTERS})?")


class ParamError(CodedError, ValueError):
    """An invalid value of a parameter; the text says what is expected."""


def check_param(param: Param, value: Any) -> None:
    """Raise ParamError unless `value` is one that `param` takes.

    What passes here is of the closed list of literals, so it can be written into source.
    """
    if value is AUTO:
        if not param.auto:
            text = tr(
                "{param} cannot be inferred from the input; give it a value",
                param=param.name,
            )
            raise ParamError(text)
        return
    if value is None:
        if not param.optional:
            text = tr(
                "{param} cannot be None; {expects}",
                param=param.name,
                expects=expectation(param),
            )
            raise ParamError(text)
        return
    if isinstance(value, Expr):
        if param.kind not in COMPUTED:
            raise _refused(param, tr("an expression"), quoted=False)
        return
    _CHECKS[param.kind](param, value)


def _check_int(param: Param, value: Any) -> None:
    if type(value) is not int or abs(value) > LARGEST:
        raise _refused(param, value)
    _check_bounds(param, value)


def _check_float(param: Param, value: Any) -> None:
    if type(value) not in (int, float) or (type(value) is int and abs(value) > LARGEST):
        raise _refused(param, value)
    _check_bounds(param, value)


def _check_bounds(param: Param, value: float) -> None:
    if param.minimum is not None and not math.isnan(value) and value < param.minimum:
        text = tr(
            "{param} must be at least {bound:.10g}, not {value}",
            param=param.name,
            bound=param.minimum,
            value=value,
        )
        raise ParamError(text)
    if param.maximum is not None and not math.isnan(value) and value > param.maximum:
        text = tr(
            "{param} must be at most {bound:.10g}, not {value}",
            param=param.name,
            bound=param.maximum,
            value=value,
        )
        raise ParamError(text)


def _check_bool(param: Param, value: Any) -> None:
    if type(value) is not bool:
        raise _refused(param, value)


def _check_choice(param: Param, value: Any) -> None:
    if type(value) is not str or value not in param.choices:
        raise _refused(param, value)


def _check_ints(param: Param, value: Any) -> None:
    if type(value) is str and value in param.choices:
        return
    if type(value) is tuple:
        if (param.count and len(value) != param.count) or len(value) > 64:
            number = tr("{count} of them", count=len(value))
            raise _refused(param, number, quoted=False)
        for item in value:
            if not isinstance(item, Expr) and not (item is None and param.holes):
                _check_int(param, item)
    elif param.count == 0 and param.required:
        raise _refused(param, value)
    else:
        _check_int(param, value)


def _check_dtype(param: Param, value: Any) -> None:
    if not isinstance(value, DType) or (
        param.choices and value.name not in param.choices
    ):
        raise _refused(param, value)


def _check_equation(param: Param, value: Any) -> None:
    if type(value) is not str or len(value) > 200 or not _EQUATION.fullmatch(value):
        raise _refused(param, value)


def _check_number(param: Param, value: Any) -> None:
    if type(value) is bool and param.minimum is None:
        return
    _check_float(param, value)


def _check_index(param: Param, value: Any) -> None:
    items = value if type(value) is tuple else (value,)
    for item in items:
        if not (
            item is None
            or item is Ellipsis
            or isinstance(item, Expr)
            or all(map(_is_place, _places(item)))
        ):
            raise _refused(param, value)
    if len(items) > 64 or sum(item is Ellipsis for item in items) > 1:
        text = tr(
            "{param} {expects}, with `...` at most once",
            param=param.name,
            expects=expectation(param),
        )
        raise ParamError(text)


def _places(item: Any) -> tuple[Any, ...]:
    """Return the numbers of a slice or list in an index; an invalid item for an empty list."""
    if isinstance(item, Slice):
        return tuple(bound for bound in item.parts if bound is not None)
    return (item or ("",))[:MOST_VALUES] if type(item) is tuple else (item,)


def _is_place(value: Any) -> bool:
    return type(value) is int and abs(value) <= LARGEST


def _check_tensor(param: Param, value: Any) -> None:
    if _rows(value, 8) is None or sum(1 for _ in _leaves(value)) > MOST_VALUES:
        raise _refused(param, value)
    for leaf in _leaves(value):
        _check_number(param, leaf)


def _rows(value: Any, depth: int) -> tuple[int, ...] | None:
    """Return the shape of nested tuples of numbers, None if they are ragged or contain something else."""
    if type(value) is not tuple:
        return () if type(value) in (bool, int, float) else None
    shapes = {_rows(item, depth - 1) for item in value} if depth else {None}
    shape = shapes.pop() if len(shapes) == 1 else None
    return None if shape is None else (len(value), *shape)


def _leaves(value: Any) -> Iterator[Any]:
    if type(value) is tuple:
        for item in value:
            yield from _leaves(item)
    else:
        yield value


def _check_str(param: Param, value: Any) -> None:
    if type(value) is not str or len(value) > LONGEST:
        raise _refused(param, value)


def _check_packed(param: Param, value: Any) -> None:
    if type(value) is not str or not is_packed(value):
        raise _refused(param, value)


def _check_value(param: Param, value: Any, depth: int = 0) -> None:
    if type(value) is tuple and depth < DEEPEST - 1 and len(value) <= 64:
        for item in value:
            _check_value(param, item, depth + 1)
    elif type(value) is str:
        _check_str(param, value)
    elif type(value) not in (bool, float, int) or (
        type(value) is int and abs(value) > LARGEST
    ):
        raise _refused(param, value)


_CHECKS = {
    "number": _check_number,
    "index": _check_index,
    "tensor": _check_tensor,
    "int": _check_int,
    "float": _check_float,
    "bool": _check_bool,
    "choice": _check_choice,
    "ints": _check_ints,
    "dtype": _check_dtype,
    "equation": _check_equation,
    "str": _check_str,
    "packed": _check_packed,
    "value": _check_value,
}


def expectation(param: Param) -> str:
    """Describe the values that a parameter takes: "expects an int or 2 ints"."""
    choices = _any_of(map(repr, param.choices))
    text = {
        "int": tr("expects an int"),
        "float": tr("expects a number"),
        "bool": tr("expects True or False"),
        "choice": tr("expects {choices}", choices=choices),
        "ints": _expected_ints(param, choices),
        "str": tr("expects a string"),
        "packed": tr("expects the bytes of a tensor in base 85"),
        "value": tr("expects an int, float, bool, str, or a tuple of them"),
        "equation": tr("expects letters for dimensions, such as bij,bjk->bik"),
        "number": tr("expects a number or True or False")
        if param.minimum is None
        else tr("expects a number"),
        "index": tr("expects an index, such as 0 or :, 1:3 or ..., or [0, 2]"),
        "tensor": tr(
            "expects numbers in brackets, rows of equal length, such as [[1, 2], [3, 4]]"
        ),
        "dtype": tr(
            "expects a dtype of {names}", names=", ".join(map(str, param.choices))
        )
        if param.choices
        else tr("expects a dtype"),
    }[param.kind]
    return tr("{expects} or None", expects=text) if param.optional else text


def _expected_ints(param: Param, choices: str) -> str:
    several = (
        tr("{count} ints", count=param.count)
        if param.count
        else tr("ints in parentheses")
    )
    takes_one = param.count != 0 or not param.required
    text = (
        tr("expects an int or {several}", several=several)
        if takes_one
        else tr("expects {several}", several=several)
    )
    if param.holes:
        text = tr("{expects}, None for an unchanged size", expects=text)
    return (
        tr("{expects}, or {choices}", expects=text, choices=choices)
        if choices
        else text
    )


def _any_of(names: Iterable[str]) -> str:
    """Join choices: "a or b or c"."""
    return f" {tr('or')} ".join(names)


def _refused(param: Param, value: Any, quoted: bool = True) -> ParamError:
    """Return the error of a value that a parameter cannot have; `value` is words if not `quoted`."""
    text = tr(
        "{param} {expects}, not {value}",
        param=param.name,
        expects=expectation(param),
        value=_short(value) if quoted else value,
    )
    return ParamError(text)


def parse_param(param: Param, text: str) -> Any:
    """Parse the typed text of a parameter; raises ParamError with what was expected.

    >>> parse_param(Param("kernel_size", "ints", count=2), "3, 5")
    (3, 5)
    >>> parse_param(Param("padding", "ints", count=2, choices=("same",)), "same")
    'same'
    """
    stripped = text.strip()
    if param.auto and stripped.lower() in ("", "auto"):
        return AUTO
    if param.kind in ("str", "packed") and not (param.optional and stripped == "None"):
        check_param(param, text)
        return text
    if stripped in (param.choices or (DTYPES if param.kind == "dtype" else ())):
        value: Any = DType(stripped) if param.kind == "dtype" else stripped
    elif param.kind == "index":
        value = _index(param, stripped)
    elif param.kind == "equation":
        value = re.sub(r"\s", "", stripped.replace("−", "-"))
    else:
        try:
            value = _literal(param, stripped.replace("×", ",").replace("−", "-"))
        except ParamError:
            if param.kind != "value":
                raise
            value = stripped
    if param.kind == "float" and type(value) is int:
        value = float(value)
    if (
        param.kind == "ints"
        and param.count == 0
        and param.required
        and type(value) is int
    ):
        value = (value,)
    check_param(param, value)
    return value


def _index(param: Param, text: str) -> Any:
    """Parse an index, with or without brackets."""
    text = text.replace("−", "-").replace("…", "...")
    inner = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    for written in dict.fromkeys(
        (inner, text)
    ):  # `[0], [1]` has brackets around each alone
        try:
            tree = ast.parse(f"_[{written}]", mode="eval").body
            if isinstance(tree, ast.Subscript) and isinstance(tree.value, ast.Name):
                parts = (
                    tree.slice.elts
                    if isinstance(tree.slice, ast.Tuple)
                    else [tree.slice]
                )
                items = tuple(_index_item(index_node) for index_node in parts)
                return (
                    items
                    if isinstance(tree.slice, ast.Tuple) or isinstance(items[0], tuple)
                    else items[0]
                )
        except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
            continue  # reported below
    raise _refused(param, text)


def _index_item(tree: ast.expr) -> Any:
    if isinstance(tree, ast.Slice):
        parts = (tree.lower, tree.upper, tree.step)
        return Slice(
            *(None if bound is None else ast.literal_eval(bound) for bound in parts)
        )
    value = ast.literal_eval(tree)
    return tuple(value) if isinstance(value, list) else value


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list | tuple) else value


def _literal(param: Param, text: str) -> Any:
    if param.kind in ("float", "number") and text in ("inf", "-inf", "nan"):
        return float(text)
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        raise _refused(param, text) from None
    if param.kind in ("tensor", "value"):
        return _tuples(value)
    return tuple(value) if isinstance(value, list) else value


def parse_expression(param: Param, text: str) -> Any:
    """Parse a value typed inside a block: as `parse_param`, or an expression over the block's parameters.

    >>> parse_expression(Param("out_channels", "int"), "channels*2")
    Expr(text='channels*2')
    """
    try:
        return parse_param(param, text)
    except ParamError:
        if param.kind not in COMPUTED or text.strip() in ("None", "True", "False"):
            raise
        parts = (
            _parts(text.strip())
            if param.kind == "ints" and "," in text
            else [text.strip()]
        )
        try:
            items = tuple(
                None if param.holes and piece.strip() == "None" else _item(piece)
                for piece in parts
            )
        except ExpressionError as error:
            raise ParamError(f"{param.name}: {error}") from None
        if not any(isinstance(item, Expr) and item.names for item in items):
            raise
    value = items if param.kind == "ints" and "," in text else items[0]
    check_param(param, value)
    return value


def _parts(text: str) -> list[str]:
    inner = text[1:-1] if text.startswith("(") and text.endswith(")") else text
    return [piece for piece in inner.split(",") if piece.strip()]


def _item(text: str) -> Any:
    expression = Expr(text.strip())
    return expression if expression.names else expression.evaluate({})


def format_param(value: Any) -> str:
    """Format a value as typed.

    >>> format_param((3, 5)), format_param(DType("int64")), format_param(AUTO)
    ('3, 5', 'int64', 'auto')
    """
    if value is AUTO:
        return "auto"
    if isinstance(value, DType):
        return value.name
    if isinstance(value, Expr):
        return value.text
    if value is Ellipsis or isinstance(value, Slice):
        return index_code(value)
    if isinstance(value, tuple) and any(
        item is None or isinstance(item, Slice | EllipsisType) for item in value
    ):
        return index_code(value)
    if isinstance(value, tuple) and (
        not value or any(isinstance(item, tuple) for item in value)
    ):
        return f"[{', '.join(map(_bracketed, value))}]" if value else "()"
    if isinstance(value, tuple):
        return ", ".join(format_param(item) for item in value) + (
            "," if len(value) == 1 else ""
        )
    return value if isinstance(value, str) else repr(value)


def _bracketed(value: Any) -> str:
    return (
        f"[{', '.join(map(_bracketed, value))}]"
        if isinstance(value, tuple)
        else format_param(value)
    )


def check_node(spec: OpSpec, node: Node) -> None:
    """Raise ParamError if the node has a parameter that its op lacks or a value that it cannot have."""
    for name, value in node.params.items():
        param = spec.param(name)
        if param is None:
            text = tr(
                "{op} has no parameter {name!r:.40}; it has {names}",
                op=spec.label,
                name=name,
                names=", ".join(p.name for p in spec.params) or tr("no parameters"),
            )
            raise ParamError(text)
        check_param(param, value)


def missing(spec: OpSpec, node: Node) -> tuple[str, ...]:
    """List required arguments that the node neither sets nor gets from a wire."""
    wired = {port.param for port in spec.inputs if port.wired}
    return tuple(
        p.name
        for p in spec.params
        if p.required and p.name not in node.params and p.name not in wired
    )


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


def with_part(literal: Any, port: Port, value: Any) -> Any:
    """Insert a wired value into a literal at the position that the port names; slices become Python's own.

    Raises ValueError if the literal has no such position.
    """
    position = port.name.removeprefix(port.param)
    if not position:
        return value
    item, _, bound_name = position.partition(".")
    number = int(item.strip("[]")) if item else None
    element = literal
    if number is not None:
        if not isinstance(literal, tuple) or number >= len(literal):
            raise ValueError(f"{port.param} has no element {number} for a wire to set")
        element = literal[number]
    if bound_name:
        if not isinstance(element, slice | Slice):
            raise ValueError(
                f"{port.name.rpartition('.')[0]} is not a slice, and a wire gives its {bound_name}"
            )
        parts = {
            "start": element.start,
            "stop": element.stop,
            "step": element.step,
            bound_name: value,
        }
        value = slice(*parts.values())
    if number is None:
        return value
    return (*literal[:number], value, *literal[number + 1 :])


def with_parts(param: Param, text: str, wires: Mapping[str, str]) -> str:
    """Format a tuple or an index with variables in place of wired parts.

    >>> with_parts(Param("index", "index"), ":, 1:3, 0", {"index[1].stop": "n", "index[2]": "i"})
    ':, 1:n, i'
    """
    subscript = ast.parse(f"_[{text}]", mode="eval").body
    assert isinstance(subscript, ast.Subscript)
    tree = subscript.slice
    if not isinstance(tree, ast.Tuple):
        return _with_part(tree, param.name, wires)
    items = [
        _with_part(item, f"{param.name}[{i}]", wires)
        for i, item in enumerate(tree.elts)
    ]
    inner = ", ".join(items) + ("," if len(items) == 1 else "")
    return inner if param.kind == "index" else f"({inner})"


def _with_part(tree: ast.expr, name: str, wires: Mapping[str, str]) -> str:
    if not isinstance(tree, ast.Slice):
        return wires.get(name) or ast.unparse(tree)
    parts = {"start": tree.lower, "stop": tree.upper, "step": tree.step}
    return slice_text(
        *(
            wires.get(f"{name}.{key}")
            or (ast.unparse(bound) if bound is not None else "")
            for key, bound in parts.items()
        )
    )
