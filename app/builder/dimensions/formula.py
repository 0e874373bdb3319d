"""A formula for a size: written once, shown with letters, shown with the real numbers, and worked out."""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import cached_property

from msgspec import Struct

from app.builder.value_types import Dim, Size


class Symbol(Struct, frozen=True):
    """A letter of a formula, its meaning in PyTorch's terms, and its value."""

    letter: str
    meaning: str
    value: Size


class FormulaPart(Struct, frozen=True):
    """Part of a line. `tone` is "letter" for the formula, "value" for a number, "result" for the result."""

    text: str
    tone: str = "letter"


Line = tuple[FormulaPart, ...]


class NotExact(ArithmeticError):
    """The formula has no value for these sizes, such as half of a batch that is not known."""


class Formula(Struct, frozen=True, dict=True):
    """`text` is an expression over the letters, in Python's notation.

    `//` rounds down, `/` divides without a rest, `ceil(a, b)` divides and rounds up, `broadcast(a, b)` is the size that
    both stretch to.
    """

    text: str
    symbols: tuple[Symbol, ...] = ()

    @cached_property
    def _tree(self) -> ast.expr:
        return ast.parse(self.text, mode="eval").body

    @cached_property
    def _values(self) -> dict[str, Size]:
        return {symbol.letter: symbol.value for symbol in self.symbols}

    @property
    def result(self) -> Size | None:
        """The value, None if it is not exact."""
        try:
            return _value(self._tree, self._values)
        except NotExact:
            return None

    @property
    def symbolic(self) -> str:
        """With letters; a formula of a single letter is written with its meaning."""
        return _text(self._letters())

    @property
    def numbers(self) -> str:
        """With the real numbers."""
        return _text(self._numbers())

    @property
    def short(self) -> str:
        """With the real numbers, those within a rounded division worked out: `⌊25/1⌋ + 1`."""
        return _text(self._halfway() or self._numbers())

    def lines(self, name: str) -> tuple[Line, ...]:
        """Format the steps from letters to the result, with `name` on the left."""
        indent = " " * len(name) + " = "
        result = FormulaPart(_size(self.result), "result")
        first: Line = (FormulaPart(f"{name} = "), *self._letters())
        if not self.symbols:
            return ((FormulaPart(f"{name} = "), result),)
        if isinstance(self._tree, ast.Name):
            return (
                (first,)
                if result.text == name
                else ((*first, FormulaPart(" = "), result),)
            )
        numbers: Line = (FormulaPart(indent), *self._numbers())
        halfway = self._halfway()
        if halfway is None or _text(halfway) == self.numbers:
            return (first, (*numbers, FormulaPart(" = "), result))
        return (
            first,
            numbers,
            (FormulaPart(indent), *halfway, FormulaPart(" = "), result),
        )

    def _letters(self) -> Line:
        if isinstance(self._tree, ast.Name):
            return (FormulaPart(self.symbols[0].meaning),)
        return _shown(self._tree, lambda name: FormulaPart(name))

    def _numbers(self) -> Line:
        return _shown(
            self._tree, lambda name: FormulaPart(_size(self._values[name]), "value")
        )

    def _halfway(self) -> Line | None:
        """Format the formula with both sides of each rounded division evaluated, None if nothing is rounded."""
        if not any(_rounds(node) for node in ast.walk(self._tree)):
            return None
        values = dict(self._values)

        def folded(expression: ast.expr) -> ast.expr:
            if isinstance(expression, ast.BinOp) and not _rounds(expression):
                return ast.BinOp(
                    folded(expression.left), expression.op, folded(expression.right)
                )
            if isinstance(expression, ast.BinOp):
                return ast.BinOp(
                    put(expression.left), expression.op, put(expression.right)
                )
            if isinstance(expression, ast.Call):
                return ast.Call(
                    expression.func, [put(arg) for arg in expression.args], []
                )
            return expression

        def put(operand: ast.expr) -> ast.Name:
            name = f"_{len(values)}"
            values[name] = _value(operand, self._values)
            return ast.Name(name)

        return _shown(
            folded(self._tree), lambda name: FormulaPart(_size(values[name]), "value")
        )


def _rounds(expression: ast.AST) -> bool:
    floor = isinstance(expression, ast.BinOp) and isinstance(
        expression.op, ast.FloorDiv
    )
    return floor or _called(expression, "ceil")


def _called(expression: ast.AST, name: str) -> bool:
    return (
        isinstance(expression, ast.Call)
        and isinstance(expression.func, ast.Name)
        and expression.func.id == name
    )


def _text(line: Line) -> str:
    return "".join(piece.text for piece in line)


def _size(size: Size | None) -> str:
    return str(size).replace("-", "−")


# --- Working out


def _value(expression: ast.expr, values: dict[str, Size]) -> Size:
    """Evaluate. Raises NotExact."""
    if isinstance(expression, ast.Constant) and isinstance(expression.value, int):
        return expression.value
    if isinstance(expression, ast.Name):
        return values[expression.id]
    if isinstance(expression, ast.Call):
        return _CALLS[_function(expression)](
            *(_value(arg, values) for arg in expression.args)
        )
    assert isinstance(expression, ast.BinOp), expression
    return _OPERATORS[type(expression.op)](
        _value(expression.left, values), _value(expression.right, values)
    )


def _function(call_node: ast.Call) -> str:
    assert isinstance(call_node.func, ast.Name)
    return call_node.func.id


def _linear_size(scale: int, offset: int) -> Size:
    return Dim(scale, offset) if scale else offset


def _parts(size: Size) -> tuple[int, int]:
    """Return the part proportional to N and the constant part."""
    return (size.scale, size.offset) if isinstance(size, Dim) else (0, size)


def _add(a: Size, b: Size, sign: int = 1) -> Size:
    (scale, offset), (other, more) = _parts(a), _parts(b)
    return _linear_size(scale + sign * other, offset + sign * more)


def _multiply(a: Size, b: Size) -> Size:
    if not isinstance(a, Dim) and not isinstance(b, Dim):
        return a * b
    if isinstance(a, Dim) and isinstance(b, Dim):
        raise NotExact
    (scale, offset), (other, more) = _parts(a), _parts(b)
    return _linear_size(scale * more + other * offset, offset * more)


def _divide(a: Size, b: Size) -> Size:
    """Without a remainder."""
    if (
        isinstance(b, Dim)
        and isinstance(a, Dim)
        and b.scale
        and a == _multiply(b, a.scale // b.scale)
    ):
        return a.scale // b.scale
    if isinstance(b, Dim) or not b or any(coefficient % b for coefficient in _parts(a)):
        raise NotExact
    return _linear_size(_parts(a)[0] // b, _parts(a)[1] // b)


def _floor(a: Size, b: Size) -> Size:
    if isinstance(a, int) and isinstance(b, int) and b:
        return a // b
    return _divide(a, b)


def _ceil(a: Size, b: Size) -> Size:
    if isinstance(a, int) and isinstance(b, int) and b:
        return -(-a // b)
    return _divide(a, b)


def _stretched(a: Size, b: Size) -> Size:
    if a == b or b == 1:
        return a
    if a == 1:
        return b
    raise NotExact


_CALLS: dict[str, Callable[..., Size]] = {
    "ceil": _ceil,
    "broadcast": _stretched,
}
_OPERATORS: dict[type[ast.operator], Callable[[Size, Size], Size]] = {
    ast.Add: _add,
    ast.Sub: lambda a, b: _add(a, b, -1),
    ast.Mult: _multiply,
    ast.Div: _divide,
    ast.FloorDiv: _floor,
}

# --- Showing

_SIGNS: dict[type[ast.operator], str] = {
    ast.Add: " + ",
    ast.Sub: " − ",
    ast.Mult: "·",
    ast.Div: " / ",
}


def _shown(
    expression: ast.expr, name: Callable[[str], FormulaPart], tight: bool = False
) -> Line:
    """Format an expression; `tight` omits the spaces, within a product."""
    if isinstance(expression, ast.Constant):
        return (FormulaPart(str(expression.value)),)
    if isinstance(expression, ast.Name):
        piece = name(expression.id)
        return (
            (FormulaPart(f"({piece.text})", piece.tone),)
            if piece.text.startswith("−")
            else (piece,)
        )
    if isinstance(expression, ast.Call):
        left, right = (_shown(arg, name) for arg in expression.args)
        if _called(expression, "ceil"):
            return (
                FormulaPart("⌈"),
                *_bracketed(expression.args[0], left),
                FormulaPart("/"),
                *right,
                FormulaPart("⌉"),
            )
        return (
            FormulaPart("broadcast("),
            *left,
            FormulaPart(", "),
            *right,
            FormulaPart(")"),
        )
    assert isinstance(expression, ast.BinOp), expression
    if isinstance(expression.op, ast.FloorDiv):
        left, right = _shown(expression.left, name), _shown(expression.right, name)
        return (
            FormulaPart("⌊"),
            *_bracketed(expression.left, left),
            FormulaPart("/"),
            *_bracketed(expression.right, right),
            FormulaPart("⌋"),
        )
    if isinstance(expression.op, ast.Mult | ast.Div):
        left = _bracketed(expression.left, _shown(expression.left, name, True))
        right = _bracketed(
            expression.right,
            _shown(expression.right, name, True),
            isinstance(expression.op, ast.Div),
        )
        joined = (
            isinstance(expression.left, ast.Constant)
            and right[0].tone == "letter"
            and right[0].text != "("
        )
        return (
            *left,
            *(() if joined else (FormulaPart(_SIGNS[type(expression.op)]),)),
            *right,
        )
    sign = _SIGNS[type(expression.op)]
    return (
        *_shown(expression.left, name, tight),
        FormulaPart(sign.strip() if tight else sign),
        *_shown(expression.right, name, tight),
    )


def _bracketed(expression: ast.expr, line: Line, products: bool = False) -> Line:
    """Parenthesise a sum, or a product below a fraction."""
    kinds = (ast.Add, ast.Sub, ast.Mult) if products else (ast.Add, ast.Sub)
    if isinstance(expression, ast.BinOp) and isinstance(expression.op, kinds):
        return (FormulaPart("("), *line, FormulaPart(")"))
    return line
