"""Edits in `forward`: literal arguments of calls."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from app.builder.catalog import ops
from app.builder.catalog.catalog import OpSpec, Param
from app.builder.graph import Graph, Node
from app.features.code.editing.changes import Change, SetParameter
from app.features.code.editing.constructor import ConstructorReader
from app.features.code.editing.values import (
    DRAWN,
    UNSET,
    Arguments,
    CodeEditError,
    equal_ast,
    short_source,
)

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
