"""Expressions over the parameters of a block: `channels * 2`, `kernel_size // 2`. Read and computed, never executed."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any

from msgspec import Struct

from app.util.errors import CodedError

LONGEST = 200
LARGEST = 2**53

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_CALLS: dict[str, Callable[..., Any]] = {
    "max": max,
    "min": min,
    "int": int,
    "round": round,
}


class ExpressionError(CodedError, ValueError):
    """Invalid expression text, or an expression that cannot be evaluated; the message says why."""


class Expr(Struct, frozen=True, dict=True):
    """An expression as typed. Raises ExpressionError unless it consists of names, numbers and + - * / // %.

    >>> Expr("channels*2").evaluate({"channels": 32}), Expr("channels*2").code(), sorted(Expr("a + b").names)
    (64, 'channels * 2', ['a', 'b'])
    """

    text: str

    def __post_init__(self) -> None:
        _check(self._tree, 0)

    @cached_property
    def _tree(self) -> ast.expr:
        if type(self.text) is not str or len(self.text) > LONGEST:
            raise ExpressionError("an expression must be a string")
        try:
            return ast.parse(self.text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise ExpressionError(
                f"{self.text!r:.60} is not a valid expression"
            ) from None

    @cached_property
    def names(self) -> frozenset[str]:
        """The parameters that the expression refers to."""
        return frozenset(
            node.id
            for node in ast.walk(self._tree)
            if isinstance(node, ast.Name) and node.id not in _CALLS
        )

    def code(self, prefix: str = "", renamed: Mapping[str, str] | None = None) -> str:
        """Return Python source, with names replaced by `renamed` and each preceded by `prefix` ("self.")."""

        class Prefixed(ast.NodeTransformer):
            def visit_Name(self, node: ast.Name) -> ast.expr:
                if node.id in _CALLS:
                    return node
                return ast.Name(
                    prefix + (renamed or {}).get(node.id, node.id), node.ctx
                )

        return ast.unparse(
            Prefixed().visit(ast.parse(self.text.strip(), mode="eval").body)
        )

    def renamed(self, old: str, new: str) -> Expr:
        """Return the expression with a parameter renamed."""
        return Expr(self.code(renamed={old: new})) if old in self.names else self

    def evaluate(self, values: Mapping[str, Any]) -> Any:
        """Evaluate. Raises ExpressionError for a name without a value and for a failed computation."""
        try:
            value = _compute(self._tree, values)
        except ZeroDivisionError:
            raise ExpressionError(f"{self.text} divides by zero") from None
        except (TypeError, OverflowError, ValueError) as error:
            if isinstance(error, ExpressionError):
                raise
            raise ExpressionError(f"{self.text} cannot be computed: {error}") from None
        if isinstance(value, int | float) and abs(value) > LARGEST:
            raise ExpressionError(f"{self.text} is too large")
        return value


def _check(tree: ast.expr, depth: int) -> None:
    parts: Iterable[ast.expr] = ()
    match tree:
        case ast.Constant(value=int() | float()):
            pass
        case ast.Name():
            pass
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=operand):
            parts = (operand,)
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _BINARY:
            parts = (left, right)
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if (
            name in _CALLS and args
        ):
            parts = args
        case _:
            raise ExpressionError(
                f"{ast.unparse(tree):.60} is not allowed; use names, numbers and + - * / // %"
            )
    if depth > 20:
        raise ExpressionError("the expression is nested too deep")
    for operand_node in parts:
        _check(operand_node, depth + 1)


def _compute(tree: ast.expr, values: Mapping[str, Any]) -> Any:
    match tree:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            if name not in values:
                raise ExpressionError(f"there is no parameter {name}")
            return values[name]
        case ast.UnaryOp(op=sign, operand=operand):
            value = _compute(operand, values)
            return -value if isinstance(sign, ast.USub) else +value
        case ast.BinOp(left=left, op=sign, right=right):
            return _BINARY[type(sign)](
                _number(_compute(left, values)), _number(_compute(right, values))
            )
        case ast.Call(func=ast.Name(id=name), args=args):
            return _CALLS[name](*(_number(_compute(arg, values)) for arg in args))
    raise ExpressionError(f"{ast.unparse(tree):.60} is not a valid expression")


def _number(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ExpressionError(f"{value!r:.40} is not a number")
    return value


def expressions(value: Any) -> Iterable[Expr]:
    """Return every expression in a value: itself, or items of a tuple."""
    if isinstance(value, Expr):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from expressions(item)


def computed(value: Any, values: Mapping[str, Any]) -> Any:
    """Evaluate every expression in a value. Raises ExpressionError."""
    if isinstance(value, Expr):
        return value.evaluate(values)
    if isinstance(value, tuple):
        return tuple(computed(item, values) for item in value)
    return value


def mapped(value: Any, change: Callable[[Expr], Any]) -> Any:
    """Apply `change` to every expression in a value."""
    if isinstance(value, Expr):
        return change(value)
    return (
        tuple(mapped(item, change) for item in value)
        if isinstance(value, tuple)
        else value
    )
