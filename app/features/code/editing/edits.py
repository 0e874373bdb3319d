"""Edits of the generated source as edits of the graph.

Old and new statement are parsed with `ast` and compared. A difference has to be the value of a parameter, the name of a
layer, or its repetitions; anything else is structure, and rejected with a hint where to change it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

from msgspec import Struct

from app.builder.blocks import Block, BlockError
from app.builder.catalog import ops
from app.builder.catalog.catalog import Catalog, OpSpec, Param
from app.builder.edits.blocks import Whole, sheet_named
from app.builder.graph import Graph, GraphError, Node
from app.builder.names import UniqueNames, reserved_variables
from app.builder.params import ParamError
from app.features.code.editing.changes import (
    Change,
    SetDefault,
    SetInit,
    SetOutputKey,
    SetParameter,
    applied,
)
from app.features.code.editing.constructor import ConstructorReader
from app.features.code.editing.lines import Statement, parsed, statement_at, why_not
from app.features.code.editing.values import (
    DRAWN,
    UNSET,
    Arguments,
    CodeEditError,
    ValueReader,
    equal_ast,
    short_source,
)
from app.source.generated import ClassText, Source

# --- Edits in `forward`: literal arguments of calls

_RANGES = {1: ("end",), 2: ("start", "end"), 3: ("start", "end", "step")}


class ForwardReader(ConstructorReader, frozen=True):
    """Compares statements of `forward` with edited ones."""

    def assigned(  # type: ignore[override]
        self, node_id: str, was: ast.expr, old: ast.expr, now: ast.expr, new: ast.expr
    ) -> Iterator[Change]:
        """Compare assignments of a call's result."""
        caller = self.graph.nodes[node_id]
        node, spec = self.graph.owner(node_id), self.ops.spec_of(self.graph, caller)
        if not equal_ast(was, now):
            match was, now:
                case ast.Subscript(value=a, slice=index), ast.Subscript(
                    value=b, slice=other
                ) if equal_ast(a, b):
                    yield self._index(node, spec, index, other)
                case _:
                    raise CodeEditError(
                        "Variable names are generated; layers can be renamed", now
                    )
        if not equal_ast(old, new):
            for name, value in self._value(caller, node, spec, old, new):
                yield (
                    name
                    if isinstance(name, Change)
                    else SetParameter(self.sheet, node.id, node.name, name, value)
                )

    def _index(self, node: Node, spec: OpSpec, old: ast.expr, new: ast.expr) -> Change:
        param = spec.param("index")
        if param is None or any(
            isinstance(subtree, ast.Name) for subtree in ast.walk(old)
        ):
            raise CodeEditError(f"A part of [{short_source(old)}] {DRAWN}", new)
        return SetParameter(
            self.sheet, node.id, node.name, "index", self.reading.index(param, new)
        )

    def _value(
        self, caller: Node, node: Node, spec: OpSpec, old: ast.expr, new: ast.expr
    ) -> Iterator[tuple[Any, Any]]:
        """Yield parameters with their new values; or changes of other nodes, with None."""
        match old, new:
            case ast.Call(), ast.Call():
                yield from self._call(caller, node, spec, old, new)
            case ast.BinOp(), ast.BinOp() if type(old.op) is type(new.op):
                for number, (was, now) in enumerate(
                    ((old.left, new.left), (old.right, new.right))
                ):
                    if not equal_ast(was, now):
                        yield self._operand(node, spec, number, was, now)
            case ast.Subscript(), ast.Subscript():
                if not equal_ast(old.value, new.value):
                    raise CodeEditError(f"{short_source(old.value)} {DRAWN}", new.value)
                yield self._index(node, spec, old.slice, new.slice), None
            case _:
                raise CodeEditError(
                    f"{short_source(old)} is the type of the node: replace the node on the canvas",
                    new,
                )

    def _operand(
        self, node: Node, spec: OpSpec, number: int, was: ast.expr, now: ast.expr
    ) -> tuple[Any, Any]:
        """Return the edit of a number in an operator: a parameter of the node, or a number node wired to it."""
        port = spec.inputs[number].name
        edge = next(
            (edge for edge in self.graph.into(node.id) if edge.port == port), None
        )
        param = spec.operand(port)
        if edge is None and param is not None:
            return param.name, self.reading.value(param, now)
        source = self.graph.nodes[edge.source] if edge is not None else None
        if source is not None and source.op == "number":
            param = self.ops[source.op].params[0]
            return SetParameter(
                self.sheet,
                source.id,
                source.name,
                param.name,
                self.reading.value(param, now),
            ), None
        raise CodeEditError(f"{short_source(was)} {DRAWN}", now)

    def _call(
        self, caller: Node, node: Node, spec: OpSpec, old: ast.Call, new: ast.Call
    ) -> Iterator[tuple[Any, Any]]:
        calls_layer = spec.kind in ("module", "block", "custom")
        if not equal_ast(old.func, new.func):
            yield self._other_function(node, old.func, new.func, calls_layer), None
        if spec.key == "torch.arange":
            old, new = _by_name(old), _by_name(new)
        size = spec.param(ops.SPREAD_SIZES.get(spec.key, ""))
        if size is not None and not equal_ast(old, new):
            yield from self._sizes(node, size, old, new)
            old = ast.Call(old.func, [], old.keywords)
            new = ast.Call(new.func, [], new.keywords)
        arguments = Arguments(
            self.graph, node, spec, self.reading, at_call=True, caller=caller.id
        )
        yield from arguments.changes(old, new)

    def _other_function(
        self, node: Node, old: ast.expr, new: ast.expr, calls_layer: bool
    ) -> Change:
        match old, new:
            case (
                ast.Attribute(value=ast.Name(id="self"), attr=was),
                ast.Attribute(value=ast.Name(id="self"), attr=now),
            ) if calls_layer:
                paths = self.paths()
                if now in paths and paths[now].id != node.id:
                    message = f"{now} is another layer: to call it here, share its module in the inspector"
                    raise CodeEditError(message, new)
                return self.renamed(was, now, new, paths)
            case ast.Attribute(value=a, attr=was), ast.Attribute(value=b, attr=now) if (
                was == now
            ):
                raise CodeEditError(f"{short_source(a)} {DRAWN}", b)
        if calls_layer:
            raise CodeEditError(
                "The called layer follows from the node; rename container layers in the inspector",
                new,
            )
        raise CodeEditError(
            f"{short_source(old)} is the type of the node: replace the node on the canvas",
            new,
        )

    def _sizes(
        self, node: Node, size: Param, old: ast.Call, new: ast.Call
    ) -> Iterator[tuple[Any, Any]]:
        """Compare sizes that are separate arguments."""
        before, after = old.args, new.args
        if len(before) == len(after) and all(map(equal_ast, before, after)):
            return
        old_sizes = node.params.get(size.name)
        old_sizes = (
            old_sizes
            if isinstance(old_sizes, tuple) and len(old_sizes) == len(before)
            else None
        )
        wired = [
            i for i in range(len(before)) if self._wired(self.graph, node, size.name, i)
        ]
        if len(before) != len(after) and wired:
            raise CodeEditError(
                "Some sizes are set by wires: cut those first to change their number",
                new,
            )
        items: list[Any] = []
        for number, tree in enumerate(after):
            if (
                number < len(before)
                and equal_ast(before[number], tree)
                and old_sizes is not None
            ):
                items.append(old_sizes[number])
            elif number in wired or self._wired(self.graph, node, size.name, None):
                raise CodeEditError(f"{short_source(before[number])} {DRAWN}", tree)
            else:
                items.append(tree)
        trees = [
            item if isinstance(item, ast.expr) else ast.Constant(0) for item in items
        ]
        read = self.reading.value(
            size, ast.copy_location(ast.Tuple(trees, ast.Load()), new)
        )
        sizes = tuple(
            value if isinstance(item, ast.expr) else item
            for item, value in zip(items, read, strict=True)
        )
        yield size.name, sizes if sizes or not size.required else UNSET

    @staticmethod
    def _wired(graph: Graph, node: Node, name: str, number: int | None) -> bool:
        port = name if number is None else f"{name}[{number}]"
        return any(edge.port == port for edge in graph.into(node.id))


def _by_name(call: ast.Call) -> ast.Call:
    """Convert the bounds of a `torch.arange` call to keywords."""
    names = _RANGES.get(len(call.args), ())
    keywords = [
        ast.keyword(name, value) for name, value in zip(names, call.args, strict=False)
    ]
    for word in keywords:
        ast.copy_location(word, word.value)
    return ast.copy_location(ast.Call(call.func, [], [*keywords, *call.keywords]), call)


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
