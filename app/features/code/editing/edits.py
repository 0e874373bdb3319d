"""Edits of the generated source as edits of the graph.

Old and new statement are parsed with `ast` and compared. A difference has to be the value of a parameter, the name of a
layer, or its repetitions; anything else is structure, and rejected with a hint where to change it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Generic, TypeVar

from msgspec import Struct

from app.builder.blocks import Block, BlockError
from app.builder.catalog.catalog import Catalog
from app.builder.edits.blocks import Whole, sheet_named
from app.builder.graph import GraphError
from app.builder.names import UniqueNames, reserved_variables
from app.builder.params import ParamError
from app.features.code.editing.changes import (
    Change,
    SetDefault,
    SetInit,
    SetOutputKey,
    applied,
)
from app.features.code.editing.constructor import ConstructorReader
from app.features.code.editing.forward import ForwardReader
from app.features.code.editing.lines import Statement, parsed, statement_at, why_not
from app.features.code.editing.values import (
    CodeEditError,
    ValueReader,
    equal_ast,
    short_source,
)
from app.source.generated import ClassText, Source

W = TypeVar("W", bound=Whole)


class Edited(Struct, Generic[W], frozen=True):
    """The project after an edit, and its description: "Set out_channels of conv1 to 64"."""

    project: W
    words: str


def edited(
    project: W, ops: Catalog, source: Source, line: int, typed: str
) -> Edited[W] | None:
    """Apply an edit of the statement on a line; None if it changes nothing.

    `typed` are the lines of the statement, with their indentation. Raises CodeEditError.
    """
    statement = statement_at(source.text, line)
    reason = why_not(statement, source.text, line)
    if statement is None or reason:
        raise CodeEditError(reason)
    new = _read(typed, statement)
    try:
        changes = list(
            dict.fromkeys(_Class(project, ops, source, statement).changes(new))
        )
        if not changes:
            return None
        after = project
        for change in changes:
            after = applied(after, ops, change)
    except (BlockError, GraphError, ParamError) as error:
        raise CodeEditError(str(error), new) from None
    except RecursionError:
        raise CodeEditError("This is nested too deep") from None
    return Edited(
        after,
        changes[0].description
        if len(changes) == 1
        else f"{changes[0].description} and other changes",
    )


def _read(typed: str, statement: Statement) -> ast.stmt:
    """Parse the typed statement, with positions relative to its first line."""
    body = "\n    pass" if isinstance(statement.tree, ast.FunctionDef) else ""
    margin = statement.tree.col_offset
    if body:
        body = "\n" + " " * (margin + 4) + "pass"
    try:
        statements = ast.parse(f"if 1:\n{typed}{body}\n").body
    except SyntaxError as error:
        at = ast.Pass(
            lineno=(error.lineno or 2) - 1, col_offset=max((error.offset or 1) - 1, 0)
        )
        raise CodeEditError(f"Python cannot read this: {error.msg}", at) from None
    except (ValueError, RecursionError, MemoryError):
        raise CodeEditError("Python cannot read this") from None
    assert isinstance(statements[0], ast.If)
    if len(statements) != 1 or len(statements[0].body) != 1:
        raise CodeEditError("One statement per line: add nodes on the canvas")
    return ast.increment_lineno(statements[0].body[0], -1)


class _Class:
    """One class of the text, and the sheet that it was written from."""

    def __init__(
        self, project: Whole, ops: Catalog, source: Source, statement: Statement
    ) -> None:
        self.statement = statement
        names = list(source.classes)
        classes = [
            definition
            for definition in parsed(source.text).body
            if isinstance(definition, ast.ClassDef)
        ]
        if len(names) != len(classes):
            raise CodeEditError("The code is out of date; wait until it is regenerated")
        self.name = names[statement.number]
        self.text: ClassText = source.classes[self.name]
        self.sheet = sheet_named(project, self.name)
        unique_names, params = (
            UniqueNames(reserved_variables()),
            self.sheet.params if isinstance(self.sheet, Block) else (),
        )
        self.reading = ValueReader(
            {unique_names.take(param.name): param.name for param in params}
        )
        self.constructor = ConstructorReader(
            project, ops, self.name, self.text, self.reading
        )
        self.forward = ForwardReader(project, ops, self.name, self.text, self.reading)
        self._tree = classes[statement.number]

    def changes(self, new: ast.stmt) -> Iterator[Change]:
        old = self.statement.tree
        match old, new:
            case ast.FunctionDef(), ast.FunctionDef():
                yield from self._defaults(old, new)
            case ast.Assign(targets=[was]), ast.Assign(targets=[now]) if (
                self.statement.function == "__init__"
            ):
                yield from self.constructor.assigned(was, old.value, now, new.value)
            case ast.Expr(value=ast.Call() as was), ast.Expr(value=ast.Call() as now):
                yield from self._called(was, now)
            case ast.Assign(targets=[was]), ast.Assign(targets=[now]):
                yield from self.forward.assigned(
                    self._node(), was, old.value, now, new.value
                )
            case ast.Return(value=ast.Dict() as was), ast.Return(
                value=ast.Dict() as now
            ):
                yield from self._keys(was, now)
            case _:
                if not equal_ast(old, new):
                    raise CodeEditError(
                        "The call follows from the node: replace the node on the canvas",
                        new,
                    )

    def _node(self) -> str:
        """Return the node of a line in `forward`."""
        line = self.statement.first
        node = next(
            (node for node, lines in self.text.lines.items() if line in lines), None
        )
        if node is None or node not in self.sheet.graph.nodes:
            raise CodeEditError("The code is out of date; wait until it is regenerated")
        return node

    def _defaults(self, old: ast.FunctionDef, new: ast.FunctionDef) -> Iterator[Change]:
        """Compare the default arguments of a block's class."""
        before, after = old.args, new.args
        if old.name != new.name or [a.arg for a in before.args] != [
            a.arg for a in after.args
        ]:
            raise CodeEditError(
                "Arguments come from the parameters of the block: change them in the inspector",
                new,
            )
        if len(before.defaults) != len(after.defaults) or not equal_ast(
            before.vararg or after.vararg, None
        ):
            raise CodeEditError("Each parameter of a block has a default", new)
        names = [a.arg for a in before.args][-len(before.defaults) :]
        params = {param.name: param for param in getattr(self.sheet, "params", ())}
        for name, was, now in zip(names, before.defaults, after.defaults, strict=True):
            if not equal_ast(was, now):
                param = params[self.reading.names[name]]
                yield SetDefault(self.name, param.name, ValueReader().value(param, now))

    def _called(self, old: ast.Call, new: ast.Call) -> Iterator[Change]:
        """Compare an initialisation of a parameter, or an assignment of a module into another."""
        if (
            isinstance(old.func, ast.Attribute)
            and ast.unparse(old.func.value) == "nn.init"
        ):
            yield self._initialised(old, new)
        elif (
            equal_ast(old.func, new.func)
            and len(old.args) == len(new.args) == 2
            and equal_ast(old.args[0], new.args[0])
        ):
            raise CodeEditError("Edit this one in the inspector", new)
        elif not equal_ast(old, new):
            raise CodeEditError(
                "This line assigns a layer; rename the layer instead", new
            )

    def _initialised(self, old: ast.Call, new: ast.Call) -> Change:
        if not (
            isinstance(new.func, ast.Attribute)
            and new.args
            and equal_ast(new.args[0], old.args[0])
        ):
            raise CodeEditError(
                "The parameter to initialise is chosen in the inspector", new
            )
        if ast.unparse(new.func.value) != "nn.init" or len(new.args) != 1:
            raise CodeEditError(
                "Expected a function of nn.init with keyword arguments", new.func
            )
        node, path = self._whose(ast.unparse(old.args[0]))
        values = tuple((word.arg or "", word.value) for word in new.keywords)
        owner = self.sheet.graph.owner(node)
        parameter = next(
            (p for p in sorted(owner.inits, key=len, reverse=True) if path.endswith(p)),
            "",
        )
        return SetInit.read(
            self.name, owner.id, parameter, new.func, values, self.reading
        )

    def _whose(self, target: str) -> tuple[str, str]:
        """Return the node whose line has an initialisation."""
        line = self.statement.first
        nodes = [
            node
            for node, lines in self.text.lines.items()
            if line in lines and node in self.sheet.graph.nodes
        ]
        nodes = [node for node in nodes if self.sheet.graph.owner(node).inits]
        if not nodes:
            raise CodeEditError(
                "This is initialised inside a block: edit it there, in the inspector"
            )
        return nodes[0], target

    def _keys(self, old: ast.Dict, new: ast.Dict) -> Iterator[Change]:
        """Compare the keys of a returned dictionary."""
        line = self.statement.first
        nodes = [node for node, lines in self.text.lines.items() if line in lines]
        nodes = [node for node in nodes if self.sheet.graph.nodes[node].op == "output"]
        if len(old.keys) != len(new.keys) or len(nodes) != len(old.keys):
            raise CodeEditError(
                "The return value follows from the wires into the outputs", new
            )
        for node, was, now, value, other in zip(
            nodes, old.keys, new.keys, old.values, new.values, strict=True
        ):
            if not equal_ast(value, other):
                raise CodeEditError(
                    f"{short_source(value)} is set by a wire: move the wire on the canvas",
                    other,
                )
            if not equal_ast(was, now):
                if not (isinstance(now, ast.Constant) and isinstance(now.value, str)):
                    raise CodeEditError("A key must be a quoted string", now or new)
                yield SetOutputKey(self.name, node, now.value)
