"""Typed source as values of parameters: parsed with `ast`, never run."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from app.builder.catalog.catalog import OpSpec, Param
from app.builder.expressions import Expr, ExpressionError
from app.builder.graph import Graph, Node
from app.builder.literals import AUTO, DTYPES, DType
from app.builder.params import ParamError, check_param, parse_param
from app.util.errors import CodedError


class CodeEditError(CodedError, ValueError):
    """The typed text is not a valid edit; says why, and at which part of the text."""

    def __init__(self, words: str, at: ast.AST | None = None) -> None:
        super().__init__(words)
        self.at = at


class Unset:
    """A parameter that was taken out of the text: back to its default."""


UNSET = Unset()
DRAWN = "is set by a wire: move the wire on the canvas"


def equal_ast(first: ast.AST | None, other: ast.AST | None) -> bool:
    """Return whether two parts of the source are equal."""
    if first is None or other is None:
        return first is other
    return ast.dump(first) == ast.dump(other)


def short_source(tree: ast.AST) -> str:
    """Format a part of the source, abbreviated for a sentence."""
    text = ast.unparse(tree)
    return text if len(text) <= 40 else text[:37] + "..."


class ValueReader(Struct, frozen=True):
    """Reads values in a class. `names` are its arguments, each with the name of the block's parameter that it is."""

    names: Mapping[str, str] = {}

    def value(self, param: Param, tree: ast.expr) -> Any:
        """Return the value typed for a parameter. Raises CodeEditError with the expected kind."""
        value = self._read(tree)
        if param.kind == "float" and type(value) is int:
            value = float(value)
        if (
            param.kind == "ints"
            and param.count == 0
            and param.required
            and type(value) is int
        ):
            value = (value,)
        try:
            check_param(param, value)
        except ParamError as error:
            raise CodeEditError(str(error), tree) from None
        return value

    def index(self, param: Param, tree: ast.expr) -> Any:
        """Return the index typed in brackets."""
        try:
            text = ast.unparse(tree).removeprefix("(").removesuffix(")")
            return parse_param(
                param, f"[{text}]" if isinstance(tree, ast.List) else text
            )
        except ParamError as error:
            raise CodeEditError(str(error), tree) from None

    def _read(self, tree: ast.expr) -> Any:
        match tree:
            case ast.Constant(value=bool() | int() | float() | str() | None as value):
                return value
            case ast.Constant(value=value) if value is ...:
                return value
            case ast.UnaryOp(
                op=ast.USub(), operand=ast.Constant(value=int() | float() as value)
            ):
                return -value
            case ast.Tuple(elts=items) | ast.List(elts=items):
                return tuple(map(self._read, items))
            case ast.Attribute(value=ast.Name(id="torch"), attr=name) if name in DTYPES:
                return DType(name)
            case ast.Call(
                func=ast.Name(id="float"),
                args=[ast.Constant(value="inf" | "-inf" | "nan" as word)],
            ):
                return float(word)
        return self._expression(tree)

    def _expression(self, tree: ast.expr) -> Expr:
        """Something computed from the parameters of the block that the class is of."""
        try:
            expression = Expr(
                ast.unparse(
                    _Inside(self.names).visit(
                        ast.parse(ast.unparse(tree), mode="eval").body
                    )
                )
            )
        except ExpressionError as error:
            raise CodeEditError(
                f"{short_source(tree)} is not a value: {error}", tree
            ) from None
        except SyntaxError:  # only valid inside a list, such as *x
            raise CodeEditError(f"{short_source(tree)} is not a value", tree) from None
        unknown = expression.names - set(self.names.values())
        if unknown:
            names = ", ".join(self.names.values())
            has = (
                f"the block has {names}"
                if names
                else "expected a value; the network has no parameters to refer to"
            )
            raise CodeEditError(f"There is no parameter {min(unknown)}; {has}", tree)
        return expression


class _Inside(ast.NodeTransformer):
    """Names of a class as those of the block: without `self.`, and as they were exposed."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        if isinstance(node.value, ast.Name) and node.value.id == "self":
            return self.visit_Name(ast.Name(node.attr, ast.Load()))
        return node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Name(self._names.get(node.id, node.id), ast.Load())


# --- Arguments --------------------------------------------------------------------------------------------------


class Arguments(Struct, frozen=True):
    """The arguments of one call and the parameters of a node that they are. `at_call` is for calls in `forward`."""

    graph: Graph
    node: Node  # the one whose module, or function, it is
    spec: OpSpec
    reading: ValueReader
    at_call: bool
    caller: str = ""  # the node that calls, where it calls another's module

    @property
    def wired(self) -> frozenset[str]:
        """The parameters and ports that wires set, wholly or in part."""
        edges = (
            self.graph.into(self.caller or self.node.id)
            if self.at_call or self.spec.kind != "module"
            else ()
        )
        return frozenset(edge.port.split(".")[0].split("[")[0] for edge in edges)

    def _of_this_call(self, param: Param) -> bool:
        return self.spec.kind != "module" or param.call == self.at_call

    def named(self, name: str, tree: ast.AST) -> Param:
        """Return the parameter with this keyword. Raises CodeEditError."""
        param = self.spec.param(name)
        if name in self.wired:
            raise CodeEditError(f"{name} {DRAWN}, or cut it in the inspector", tree)
        if param is None or not self._of_this_call(param):
            names = (
                ", ".join(p.name for p in self.spec.params if self._of_this_call(p))
                or "no arguments"
            )
            raise CodeEditError(
                f"{self.spec.label} has no argument {name} here; it has {names}", tree
            )
        return param

    def changes(self, old: ast.Call, new: ast.Call) -> Iterator[tuple[str, Any]]:
        """Yield parameters with new values, UNSET if removed. Raises CodeEditError."""
        positional = self._places(old.args)
        if len(new.args) > len(positional):
            positional += self._further(positional, new)
        names = {
            parameter.name
            for parameter in positional[: len(new.args)]
            if parameter is not None
        }
        before = {word.arg: word for word in old.keywords}
        after = {word.arg: word for word in new.keywords}
        for number, param in enumerate(positional):
            was = old.args[number] if number < len(old.args) else None
            now = new.args[number] if number < len(new.args) else None
            if equal_ast(was, now):
                continue
            if param is None:
                raise CodeEditError(f"{short_source(was or new)} {DRAWN}", now or new)
            if now is not None:
                yield param.name, self.reading.value(param, now)
            elif param.name not in after:
                yield param.name, self._left_out(param, new)
        for name, word in after.items():
            if name is None:
                raise CodeEditError("Pass each argument by keyword", word)
            if name in names:
                raise CodeEditError(f"{name} is given twice", word)
            if name not in before or not equal_ast(before[name].value, word.value):
                yield name, self.reading.value(self.named(name, word), word.value)
        for name in before:
            if name not in after and name not in names:
                yield str(name), self._left_out(self.named(str(name), new), new)

    def _left_out(self, param: Param, at: ast.AST) -> Unset:
        if param.required:
            raise CodeEditError(
                f"{param.name} has no default, so it cannot be left out", at
            )
        return UNSET

    def _places(self, args: list[ast.expr]) -> list[Param | None]:
        """Match positional arguments to parameters, None for wired ones."""
        params = [p for p in self.spec.params if p.positional and self._of_this_call(p)]
        if self.spec.kind == "module" and not self.at_call:
            if len(params) != len(args):
                params = [
                    p
                    for p in params
                    if p.required or p.auto or p.name in self.node.params
                ]
            return [*params, *[None] * len(args)][: len(args)]
        params = [
            p
            for p in self.spec.params
            if self._of_this_call(p) and (p.positional or self.spec.operand(p.name))
        ]
        params = [p for p in params if p.name not in self.wired]
        matched: list[Param | None] = []
        for arg in args:
            number = next(
                (i for i, p in enumerate(params) if self._is_current_value(p, arg)),
                None,
            )
            matched.append(None if number is None else params[number])
            params = params if number is None else params[number + 1 :]
        return matched

    def _is_current_value(self, param: Param, arg: ast.expr) -> bool:
        """Return whether an argument is the current value of a parameter."""
        try:
            value = self.reading.value(param, arg)
        except CodeEditError:
            return False
        now = self.node.params.get(param.name, param.default)
        return (
            now is AUTO
            or (isinstance(value, Expr) and isinstance(now, Expr))
            or bool(value == now)
        )

    def _further(
        self, positional: list[Param | None], new: ast.Call
    ) -> list[Param | None]:
        """Match additional positional arguments as Python does."""
        order = [p for p in self.spec.params if self._of_this_call(p)]
        if positional != order[: len(positional)] or len(new.args) > len(order):
            raise CodeEditError(
                "Pass further arguments by keyword, such as name=2",
                new.args[len(positional)],
            )
        return list(order[len(positional) : len(new.args)])
