"""Map lines of the generated text to nodes, with the reason why a line cannot be edited."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache

from msgspec import Struct


class Statement(Struct, frozen=True):
    """One statement of a class: lines `first` to `last` (1-based), without its body.

    `number` is the index of its class in the text, `function` the enclosing method, "" for none.
    """

    tree: ast.stmt
    first: int
    last: int
    number: int
    function: str


@lru_cache(maxsize=4)
def parsed(text: str) -> ast.Module:
    return ast.parse(text)


def statement_at(text: str, line: int) -> Statement | None:
    """Return the innermost statement on a line, None between statements."""
    number = -1
    for top in parsed(text).body:
        number += isinstance(top, ast.ClassDef)
        if top.lineno <= line <= (top.end_lineno or top.lineno):
            return _within(top, line, number, "")
    return None


def _within(tree: ast.stmt, line: int, number: int, function: str) -> Statement | None:
    inner: list[ast.stmt] = getattr(tree, "body", [])
    if not inner or line < inner[0].lineno:
        last = inner[0].lineno - 1 if inner else (tree.end_lineno or tree.lineno)
        if isinstance(tree, ast.FunctionDef | ast.ClassDef) and inner:
            last = _header_end(tree, last, line)
        return (
            Statement(tree, tree.lineno, last, number, function)
            if line <= last
            else None
        )
    if isinstance(tree, ast.FunctionDef):
        function = tree.name
    for inner_statement in inner:
        if (
            inner_statement.lineno
            <= line
            <= (inner_statement.end_lineno or inner_statement.lineno)
        ):
            return _within(inner_statement, line, number, function)
    return None


def _header_end(tree: ast.FunctionDef | ast.ClassDef, last: int, line: int) -> int:
    """Return the last line of a header; blank lines may follow it."""
    if isinstance(tree, ast.ClassDef):
        return tree.lineno
    parts: list[ast.arg | ast.expr] = [*tree.args.args, *tree.args.defaults]
    ends = [argument.end_lineno or 0 for argument in parts]
    return tree.lineno if max(ends, default=0) <= tree.lineno else last


def why_not(statement: Statement | None, text: str, line: int) -> str:
    """Explain why a line cannot be edited, and where to change it; "" if values or names can be."""
    if statement is None:
        lines = text.split("\n")
        blank = not (lines[line - 1].strip() if 0 < line <= len(lines) else "")
        return (
            "New lines come from new nodes on the canvas"
            if blank
            else "Lines come from nodes on the canvas"
        )
    match statement.tree:
        case ast.Import() | ast.ImportFrom():
            return "Imports follow from the nodes in use"
        case ast.ClassDef():
            return "Rename a block in the inspector; its base class is fixed"
        case ast.FunctionDef(name="__init__") as header if header.args.defaults:
            return ""
        case ast.FunctionDef(name="__init__"):
            return "Arguments come from the block's exposed parameters and from differences between its instances"
        case _ if statement.number < 0:
            return "This unpacks the values stored in the code; view them on the canvas"
        case ast.FunctionDef():
            return "The arguments of forward are the network's inputs: rename those"
        case ast.Expr(value=ast.Constant(value=str())):
            return "The docstring lists the shapes of the network"
        case ast.Expr(value=ast.Constant()):
            return "The return value follows from the outputs on the canvas"
        case ast.Expr(
            value=ast.Call(
                func=ast.Attribute(value=ast.Call(func=ast.Name(id="super")))
            )
        ):
            return "Every module begins with this line"
        case ast.Return(value=value) if not isinstance(value, ast.Dict):
            return "The return value follows from the wires into the outputs: move them on the canvas"
        case ast.If():
            return "Outputs that are returned only in training are set on the output in the inspector"
        case ast.For():
            return "The number of repetitions is in the constructor"
        case ast.Assign(targets=[ast.Attribute()], value=ast.Name()) if (
            statement.function == "__init__"
        ):
            return "Stored for forward, which reads this argument"
    return ""


def value_at(statement: Statement, line: int, column: int) -> ast.expr | None:
    """Return the smallest value at a column of a line (in bytes, as in `ast`), or a name that can be changed."""
    best: ast.expr | None = None
    for expression in _values(statement.tree):
        inside = (
            (expression.lineno, expression.col_offset)
            <= (line, column)
            <= (expression.end_lineno or 0, expression.end_col_offset or 0)
        )
        if inside and (best is None or _size(expression) <= _size(best)):
            best = expression
    return best


def _size(expression: ast.expr) -> tuple[int, int]:
    lines = (expression.end_lineno or expression.lineno) - expression.lineno
    return lines, (expression.end_col_offset or 0) - expression.col_offset


def _values(tree: ast.AST) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        match node:
            case ast.Constant() | ast.UnaryOp(operand=ast.Constant()) | ast.Tuple():
                yield node
            case ast.Attribute(value=ast.Name(id="self" | "torch")):
                yield node
            case ast.keyword(value=ast.Name() | ast.BinOp() as value):
                yield value
