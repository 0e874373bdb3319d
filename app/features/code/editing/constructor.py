"""Edits in the constructor of a class: arguments of modules, repetitions, names."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from app.builder.blocks import Block, block_of
from app.builder.catalog.catalog import Catalog, OpSpec
from app.builder.codegen.free_tensors import expression
from app.builder.edits.blocks import Whole
from app.builder.graph import Graph, Node
from app.builder.names import UniqueNames, reserved_variables
from app.features.code.editing.changes import (
    Change,
    RenameNode,
    SetFrozen,
    SetParameter,
    SetRepeat,
    check_layer_name,
)
from app.features.code.editing.values import (
    Arguments,
    CodeEditError,
    ValueReader,
    equal_ast,
    short_source,
)
from app.source.generated import ClassText

_CONTAINERS = ("nn.ModuleList", "nn.ModuleDict", "nn.ParameterDict", "nn.Sequential")
STRUCTURE = "Layers are added and removed on the canvas"


class ConstructorReader(Struct, frozen=True):
    """Compares statements of `__init__` with edited ones. `sheet` is the name of the block, `text` its lines."""

    project: Whole
    ops: Catalog
    sheet: str
    text: ClassText
    reading: ValueReader

    @property
    def graph(self) -> Graph:
        return (
            self.project.blocks[self.sheet].graph if self.sheet else self.project.graph
        )

    def assigned(
        self, was: ast.expr, old: ast.expr, now: ast.expr, new: ast.expr
    ) -> Iterator[Change]:
        """Compare assignments of a module, or of a container of modules."""
        if not isinstance(was, ast.Attribute):
            if not equal_ast(was, now):
                raise CodeEditError("Rename the layer in the inspector", now)
            raise CodeEditError("Edit this one in the inspector", new)
        paths = self.paths()
        if not equal_ast(was, now):
            yield self._renamed(was, now, paths)
        yield from self._compare_module(was.attr, old, new, paths)

    def paths(self) -> dict[str, Node]:
        """Return the node of the module at each attribute path."""
        nodes = self.graph.nodes
        return {
            path: self.graph.owner(node)
            for node, path in self.text.modules.items()
            if node in nodes
        }

    def _renamed(
        self, was: ast.Attribute, now: ast.expr, paths: Mapping[str, Node]
    ) -> Change:
        if not (isinstance(now, ast.Attribute) and equal_ast(was.value, now.value)):
            raise CodeEditError(
                f"{short_source(was)} can be renamed; it remains an attribute of self",
                now,
            )
        return self.renamed(was.attr, now.attr, now, paths)

    def renamed(
        self, old: str, new: str, at: ast.AST, paths: Mapping[str, Node]
    ) -> Change:
        """Another name for the layer at an attribute. Raises CodeEditError."""
        if old not in paths:
            raise CodeEditError(
                f"{old} holds several layers: rename them one by one, as {old}.name, in the inspector",
                at,
            )
        used_names = {path.split(".")[0] for path in paths} | set(self.reading.names)
        check_layer_name(new, used_names, at)
        return RenameNode(self.sheet, paths[old].id, paths[old].name, new)

    # --- Modules and containers

    def _compare_module(
        self, path: str, old: ast.expr, new: ast.expr, paths: Mapping[str, Node]
    ) -> Iterator[Change]:
        if path in paths:
            yield from self._compare_constructor(
                paths[path], self.graph, old, new, self.text, self.sheet
            )
            return
        if equal_ast(old, new):
            return
        match old, new:
            case (
                ast.Call(func=was, args=[ast.List(elts=before)]),
                ast.Call(func=now, args=[ast.List(elts=after)]),
            ) if equal_ast(was, now):
                if len(before) != len(after):
                    raise CodeEditError(STRUCTURE, new)
                number = 0
                for element, other in zip(before, after, strict=True):
                    yield from self._compare_module(
                        f"{path}.{number}", *self._alike(element, other), paths
                    )
                    number += _count(element)
            case (
                ast.Call(func=was, args=[ast.Dict(keys=keys, values=before)]),
                ast.Call(func=now, args=[ast.Dict(keys=others, values=after)]),
            ) if equal_ast(was, now):
                if len(keys) != len(others) or not all(map(equal_ast, keys, others)):
                    raise CodeEditError(
                        "The keys are layer names: rename the layers in the inspector",
                        new,
                    )
                for key, element, other in zip(keys, before, after, strict=True):
                    assert isinstance(key, ast.Constant)
                    yield from self._compare_module(
                        f"{path}.{key.value!s}", element, other, paths
                    )
            case _:
                raise CodeEditError(STRUCTURE, new)

    def _alike(self, old: ast.expr, new: ast.expr) -> tuple[ast.expr, ast.expr]:
        """Compare one of several equal layers, each of which is a node."""
        if isinstance(old, ast.Starred) and not equal_ast(old, new):
            raise CodeEditError(
                "This line represents several identical nodes: change them in the inspector",
                new,
            )
        return old, new

    def _compare_constructor(
        self,
        node: Node,
        graph: Graph,
        old: ast.expr,
        new: ast.expr,
        text: ClassText,
        sheet: str,
    ) -> Iterator[Change]:
        """Compare the constructor of a node's module, with repetitions and freezing."""
        if equal_ast(old, new):
            return
        old, frozen = _thawed(old)
        new, freeze = _thawed(new)
        if frozen != freeze:
            yield SetFrozen(sheet, node.id, node.name, freeze)
        if node.repeat == 1:
            yield from self._one(node, graph, old, new, text, sheet)
            return
        (before, counts), (after, others) = _items(old), _items(new)
        if sum(counts) != node.repeat or len(before) != len(after):
            raise CodeEditError("The number of repetitions is the number in range", new)
        if counts != others:
            yield SetRepeat(sheet, node.id, node.name, sum(others))
        for module, other in zip(before, after, strict=True):
            yield from self._one(node, graph, module, other, text, sheet)

    def _one(
        self,
        node: Node,
        graph: Graph,
        old: ast.expr,
        new: ast.expr,
        text: ClassText,
        sheet: str,
    ) -> Iterator[Change]:
        """Compare one module: of a class, of torch, or an inlined `nn.Sequential`."""
        if equal_ast(old, new):
            return
        spec = self.ops.spec_of(graph, node)
        if not (isinstance(old, ast.Call) and isinstance(new, ast.Call)):
            raise CodeEditError(STRUCTURE, new)
        if not equal_ast(old.func, new.func):
            raise CodeEditError(
                f"{short_source(old.func)} is the type of the node: replace the node on the canvas",
                new.func,
            )
        if node.id in text.placed:
            yield from self._compare_sequential(
                spec.definition, old, new, text.placed[node.id][0]
            )
        elif spec.kind in ("parameter", "buffer"):
            yield from self._tensor(node, spec, old, new, sheet)
        else:
            reading = (
                self.reading
                if sheet == self.sheet
                else ValueReader({p: p for p in self._params(sheet)})
            )
            if spec.kind == "block":
                yield from self._instance(node, spec, old, new, sheet, reading)
                return
            arguments = Arguments(graph, node, spec, reading, at_call=False)
            for name, value in arguments.changes(old, new):
                yield SetParameter(sheet, node.id, node.name, name, value)

    def _params(self, sheet: str) -> list[str]:
        return (
            [param.name for param in self.project.blocks[sheet].params] if sheet else []
        )

    def _instance(
        self,
        node: Node,
        spec: OpSpec,
        old: ast.Call,
        new: ast.Call,
        sheet: str,
        reading: ValueReader,
    ) -> Iterator[Change]:
        """Compare an instance of a block: its exposed parameters. Other arguments are inferred."""
        argument_names = UniqueNames(reserved_variables())
        params_by_name = {
            argument_names.take(param.name): param for param in spec.params
        }
        before = {str(word.arg): word.value for word in old.keywords}
        after = {str(word.arg): word.value for word in new.keywords}
        if new.args:
            raise CodeEditError("Pass each argument by keyword", new.args[0])
        for name in {**before, **after}:
            was, now = before.get(name), after.get(name)
            if equal_ast(was, now):
                continue
            if name not in params_by_name:
                has = ", ".join(params_by_name) or "nothing"
                reason = (
                    "is inferred from the input and differs between the instances"
                    if was
                    else "is not a parameter"
                )
                raise CodeEditError(
                    f"{name} {reason}; {block_of(node.op)} exposes {has}", now or new
                )
            param = params_by_name[name]
            value = param.default if now is None else reading.value(param, now)
            yield SetParameter(sheet, node.id, node.name, param.name, value)

    def _compare_sequential(
        self, block: Block | None, old: ast.Call, new: ast.Call, text: ClassText
    ) -> Iterator[Change]:
        """Compare an inlined block, an `nn.Sequential`: its layers, for all its instances."""
        if block is None:
            raise CodeEditError(STRUCTURE, new)
        if len(old.args) != len(new.args) or new.keywords:
            raise CodeEditError(STRUCTURE, new)
        nodes = {
            int(path): block.graph.nodes[node]
            for node, path in text.modules.items()
            if node in block.graph.nodes
        }
        number = 0
        start = 0
        items = [
            (argument, other, _count(argument))
            for argument, other in zip(old.args, new.args, strict=True)
        ]
        for layer, other, count in items:
            start = max((key for key in nodes if key <= number), default=0)
            number += count
            if equal_ast(layer, other):
                continue
            node = nodes[start]
            (was, _), (now, others) = _items_of(layer), _items_of(other)
            if others != count:
                if node.repeat != count:
                    raise CodeEditError(
                        "The number of repetitions is the block's Repeat field in the inspector",
                        other,
                    )
                yield SetRepeat(block.name, node.id, node.name, others)
            was, frozen = _thawed(was)
            now, freeze = _thawed(now)
            if frozen != freeze:
                yield SetFrozen(block.name, node.id, node.name, freeze)
            yield from self._one(node, block.graph, was, now, text, block.name)

    def _tensor(
        self, node: Node, spec: OpSpec, old: ast.Call, new: ast.Call, sheet: str
    ) -> Iterator[Change]:
        """Compare a free parameter or a buffer: its shape or one number, if regenerating yields the edited code."""
        flags = {word.arg: word.value for word in new.keywords}
        for word in old.keywords:
            flags.setdefault(word.arg, ast.Constant(None))
        for name, tree in flags.items():
            param = spec.param(str(name))
            if param is None or param.kind != "bool":
                raise CodeEditError(
                    f"{spec.label} has no argument {name} here", tree if name else new
                )
            default = isinstance(tree, ast.Constant) and tree.value is None
            value = param.default if default else self.reading.value(param, tree)
            if value != node.params.get(param.name, param.default):
                yield SetParameter(sheet, node.id, node.name, param.name, value)
        if len(new.args) != 1 or len(old.args) != 1:
            raise CodeEditError(STRUCTURE, new)
        if equal_ast(old.args[0], new.args[0]):
            return
        match old.args[0], new.args[0]:
            case ast.Call(func=was, args=[_]), ast.Call(func=now, args=[numbers]) if (
                spec.key == "constant"
            ):
                value = spec.param("value")
                if value is not None and equal_ast(was, now):
                    yield SetParameter(
                        sheet,
                        node.id,
                        node.name,
                        "value",
                        self.reading.value(value, numbers),
                    )
                    return
        for name, value in _tried(node.params, new.args[0]):
            text = expression(spec.key, {**node.params, name: value})
            if equal_ast(ast.parse(text, mode="eval").body, new.args[0]):
                yield SetParameter(sheet, node.id, node.name, name, value)
                return
        raise CodeEditError(
            "Only one size or number at a time can be edited here; use the inspector for the rest",
            new,
        )


def _tried(params: Mapping[str, Any], tree: ast.expr) -> Iterator[tuple[str, Any]]:
    """Yield candidate values of a free tensor: consecutive sizes, or a number for another parameter."""
    numbers = [
        constant.value
        for constant in ast.walk(tree)
        if isinstance(constant, ast.Constant)
    ]
    for subtree in ast.walk(tree):
        items = (
            subtree.args
            if isinstance(subtree, ast.Call)
            else subtree.elts
            if isinstance(subtree, ast.Tuple)
            else []
        )
        sizes = [
            item.value
            for item in items
            if isinstance(item, ast.Constant) and type(item.value) is int
        ]
        for end in range(len(sizes), 0, -1):
            yield "shape", tuple(sizes[:end])
    for name in ("value", "std", "low", "high"):
        for number in numbers:
            if isinstance(number, int | float):
                yield name, float(number)
                yield name, -float(number)
    for fill in ("zeros", "ones", "normal", "uniform", "eye", "arange"):
        yield "fill", fill


def _thawed(tree: ast.expr) -> tuple[ast.expr, bool]:
    """Strip the call that freezes a module; return whether there was one."""
    match tree:
        case ast.Call(
            func=ast.Attribute(value=inner, attr="requires_grad_"),
            args=[ast.Constant(value=False)],
        ):
            return inner, True
    return tree, False


def _count(tree: ast.expr) -> int:
    return _items_of(tree)[1]


def _items_of(tree: ast.expr) -> tuple[ast.expr, int]:
    """Return an item of a module list and its repetitions: `*[nn.ReLU() for _ in range(3)]` is three."""
    inner = tree.value if isinstance(tree, ast.Starred) else tree
    if not isinstance(inner, ast.ListComp):
        return tree, 1
    match inner.generators[0].iter:
        case ast.Call(
            func=ast.Name(id="range"), args=[ast.Constant(value=int() as number)]
        ):
            return inner.elt, number
    raise CodeEditError("The number of repetitions must be an integer in range", tree)


def _items(tree: ast.expr) -> tuple[list[ast.expr], list[int]]:
    """Return the modules in the container of a repeated node, and their repetitions."""
    if not (
        isinstance(tree, ast.Call)
        and ast.unparse(tree.func) in _CONTAINERS
        and tree.args
    ):
        raise CodeEditError(STRUCTURE, tree)
    args = tree.args
    if len(args) == 1 and isinstance(args[0], ast.List):
        args = args[0].elts
    pairs = [_items_of(arg) for arg in args]
    return [element for element, _ in pairs], [count for _, count in pairs]
