"""Constructor arguments of block classes: whatever differs between instances.

Exposed parameters are arguments. So is any value inferred from input shapes that differs between two instances:
`in_channels` of a block that gets 32 channels here and 64 there.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from app.builder.blocks import Block
from app.builder.codegen.containers import Chains
from app.builder.expressions import Expr, ExpressionError, computed, expressions, mapped
from app.builder.graph import Graph, Node
from app.builder.literals import AUTO, to_code
from app.builder.names import UniqueNames, reserved_variables
from app.builder.plan import OWNING, Plan, Step, plan
from app.builder.results import Inside, StepResult
from app.builder.shapes.shapes import computed_plan, infer
from app.builder.shapes.size_dependence import followed
from app.util.frozen import FrozenMap

# Kinds that are attributes of the class itself rather than modules.
VALUES = ("parameter", "buffer")


class Argument(Struct, frozen=True):
    """One argument of a class. `values` has its value by inside; `param` is the exposed parameter's name, if it is."""

    name: str
    values: tuple[Any, ...]
    param: str = ""
    default: Any = None

    def declared(self) -> str:
        """Return the argument as declared in `def __init__`."""
        return f"{self.name}={to_code(self.default)}" if self.param else self.name


class BlockClass(Struct):
    """A class to generate, with the insides of all its instances. The network is one without a block, with one inside.

    An inlined block is one too, without a name, for each repetition of each instance: `insides` has its inside for each
    inside of the enclosing class. `chain` are its nodes, `given` its parameters in terms of the enclosing class; `turn`
    is the first repetition that it covers. `inner` has the inlined blocks in it, by instance and repetition; equal
    consecutive ones are the same object.
    """

    name: str
    graph: Graph
    block: Block | None
    insides: list[Inside]
    arguments: list[Argument] = []
    texts: dict[tuple[str, int, str], str] = {}
    stored: set[str] = set()
    imported: Mapping[str, str] = {}  # local names of custom classes, by op
    chain: tuple[Node, ...] = ()
    given: Mapping[str, Any] | None = None
    turn: int = 0
    inner: dict[str, list[BlockClass]] = {}
    renamed: dict[str, str] = {}

    @property
    def plan(self) -> Plan:
        return self.insides[0].plan

    @property
    def results(self) -> Mapping[str, StepResult]:
        return self.insides[0].results

    @property
    def steps(self) -> list[Step]:
        return [step for step in self.plan.steps if step.live]

    def argument_at(self, inside: Inside | None, argument: Argument) -> Any:
        """Return an argument's value for one instance, AUTO if unknown."""
        number = next(
            (i for i, other in enumerate(self.insides) if other is inside), None
        )
        return AUTO if number is None else argument.values[number]

    def with_inner(self) -> Iterator[BlockClass]:
        """Yield the class and every inlined block in it, at any depth."""
        yield self
        for turns in self.inner.values():
            for nested in {id(turn): turn for turn in turns}.values():
                yield from nested.with_inner()

    def code(self, value: Any, prefix: str = "") -> str:
        """Format a value with expressions over the class's parameters; `prefix` ("self.") is for `forward`, which reads
        attributes that the constructor stores."""
        for expression in expressions(value):
            if prefix:
                self.stored.update(
                    self.renamed.get(name, name) for name in expression.names
                )

        def written(value: Any) -> str:
            if (
                isinstance(value, tuple)
                and len(value) == 1
                and isinstance(value[0], _Text)
                and not prefix
            ):
                return str(value[0])  # of layers; a function may need a tuple
            if isinstance(value, tuple):
                items = ", ".join(map(written, value))
                return f"({items},)" if len(value) == 1 else f"({items})"
            return value if isinstance(value, _Text) else to_code(value)

        return written(
            mapped(
                value, lambda expression: _Text(expression.code(prefix, self.renamed))
            )
        )


class _Text(str):
    """Source already."""


def turns_of(
    result: StepResult, count: int
) -> Iterator[tuple[FrozenMap[str, Any], Inside | None]]:
    """Yield parameters and inside of every repetition; those not analysed repeat the last that was."""
    if not result.turns:
        yield from ((result.resolved, None) for _ in range(count))
        return
    for number in range(count):
        turn = result.turns[min(number, len(result.turns) - 1)]
        yield turn.resolved, turn.inside


def block_classes(
    walk: Plan, results: Mapping[str, StepResult], root: BlockClass
) -> list[BlockClass]:
    """Root and the classes of all blocks in it, those that others use first, their arguments settled."""
    collector = _Found(Chains(walk.catalog))
    collector.names.take(root.name)
    collector.collect(walk, results)
    collector.order.append(root)
    for block_class in collector.order:
        _Settling(block_class, collector).settle()
    return collector.order


def unknown_inside(step: Step, block: Block, walk: Plan) -> Inside:
    """Return the inside of a block whose inputs are unknown."""
    assert walk.catalog is not None
    values = FrozenMap(
        {p.name: step.node.params.get(p.name, p.default) for p in block.params}
    )
    inner = computed_plan(plan(block.graph, walk.catalog), values)
    return Inside(inner, infer(inner, {}), values)


class _Found:
    """The classes of a network, in the order in which they are written, and which blocks have none."""

    def __init__(self, chains: Chains) -> None:
        self.chains = chains
        self.classes: dict[str, BlockClass] = {}
        self.order: list[BlockClass] = []
        self.names = UniqueNames(reserved_variables())
        self._seen: dict[int, Inside] = {}
        self._unknown: dict[tuple[int, str], tuple[Any, Inside]] = {}

    def collect(self, walk: Plan, results: Mapping[str, StepResult]) -> None:
        """Find the blocks on a sheet and in them."""
        for step in walk.steps:
            block = step.spec.definition
            if block is None or not step.live:
                continue
            turns = [
                turn.inside
                for turn in results[step.id].turns
                if turn.inside is not None
            ]
            if self.chains.chain_of(block) is not None:
                for inside in turns or [self.inside(step, walk, results, 0)]:
                    if id(inside) not in self._seen:
                        self._seen[id(inside)] = inside
                        self.collect(inside.plan, inside.results)
                continue
            block_class = self.classes.get(block.name)
            if not turns and block_class is None:
                turns = [unknown_inside(step, block, walk)]
            for inside in turns:
                if block_class is None or not any(
                    inside is other for other in block_class.insides
                ):
                    self.collect(inside.plan, inside.results)
                    block_class = self.classes.get(block.name)
                    if block_class is None:
                        block_class = BlockClass(
                            self.names.take(block.name), block.graph, block, []
                        )
                        self.classes[block.name] = block_class
                        self.order.append(block_class)
                    block_class.insides.append(inside)

    def inside(
        self, step: Step, walk: Plan, results: Mapping[str, StepResult], number: int
    ) -> Inside:
        """Return the inside of a repetition; a shared one if unknown."""
        turns = results[step.id].turns
        inside = turns[min(number, len(turns) - 1)].inside if turns else None
        if inside is not None:
            return inside
        key = id(results), step.id
        if key not in self._unknown:
            assert step.spec.definition is not None
            self._unknown[key] = (
                results,
                unknown_inside(step, step.spec.definition, walk),
            )
        return self._unknown[key][1]


class _Settling:
    """Finds the arguments of a class, and the text of every parameter that is not the same number everywhere."""

    def __init__(self, made: BlockClass, found: _Found) -> None:
        self._made, self._found = made, found
        self._names = UniqueNames(reserved_variables())

    def settle(self) -> None:
        block_class = self._made
        for param in block_class.block.params if block_class.block else ():
            block_class.renamed[param.name] = name = self._names.take(param.name)
            values = tuple(
                inside.values.get(param.name, param.default)
                for inside in block_class.insides
            )
            block_class.arguments.append(
                Argument(name, values, param.name, param.default)
            )
        self._steps(block_class)
        block_class.arguments.sort(key=lambda argument: bool(argument.param))

    def _steps(self, block_class: BlockClass) -> None:
        """Settle the steps of the class, or of a block that is written in place in it."""
        follow = (
            followed(block_class.block, block_class.insides[0])
            if block_class.block
            else {}
        )
        visited: set[str] = set()
        for step in block_class.steps:
            if step.module in visited:
                continue  # written where it is called first
            visited.add(step.module)
            block = step.spec.definition if step.spec.kind == "block" else None
            chain = self._found.chains.chain_of(block) if block is not None else None
            if block is not None and chain is not None:
                self._in_place(block_class, step, block, chain)
            elif block is not None:
                self._instance(block_class, step, self._found.classes[block.name])
            else:
                self._params(block_class, step, follow)

    def _raw(self, block_class: BlockClass, step: Step, name: str) -> Any:
        """Return a parameter as set on the node, as an expression over the parameters of the class."""
        node = (
            block_class.graph.nodes.get(step.module) or block_class.graph.nodes[step.id]
        )
        return in_words_of(block_class.given, node.params.get(name))

    def _params(
        self, block_class: BlockClass, step: Step, follow: Mapping[tuple[str, str], Any]
    ) -> None:
        columns = [
            list(turns_of(inside.results[step.id], step.node.repeat))
            for inside in block_class.insides
        ]
        for param in step.spec.params:
            raw = self._raw(block_class, step, param.name)
            if not any(expressions(raw)):
                raw = in_words_of(block_class.given, follow.get((step.id, param.name)))
                inferred = [column[0][0].get(param.name) for column in columns]
                if not any(expressions(raw)) or not self._holds(raw, inferred):
                    self._numbers(block_class, step, param.name, columns)
                    continue
            text = self._made.code(
                raw, "self." if step.spec.kind not in OWNING or param.call else ""
            )
            for number in range(step.node.repeat):
                block_class.texts[step.id, number, param.name] = text

    def _holds(self, raw: Any, values: list[Any]) -> bool:
        """Return whether an expression evaluates to the found value at every instance."""
        insides = self._made.insides
        return all(
            computed(raw, inside.values) == value
            for inside, value in zip(insides, values, strict=True)
        )

    def _numbers(
        self, block_class: BlockClass, step: Step, name: str, columns: list[Any]
    ) -> None:
        """Make a parameter an argument if its value differs between instances."""
        for number in range(step.node.repeat):
            values = tuple(column[number][0].get(name, AUTO) for column in columns)
            if any(value != values[0] for value in values):
                block_class.texts[step.id, number, name] = self._argument(values, name)

    def _instance(self, block_class: BlockClass, step: Step, inner: BlockClass) -> None:
        columns = [
            list(turns_of(inside.results[step.id], step.node.repeat))
            for inside in block_class.insides
        ]
        for argument in inner.arguments:
            raw = (
                self._raw(block_class, step, argument.param) if argument.param else None
            )
            for number in range(step.node.repeat):
                key = (step.id, number, argument.name)
                if argument.param:
                    if raw is not None:
                        block_class.texts[key] = (
                            f"{argument.name}={self._made.code(raw)}"
                        )
                    continue
                values = tuple(
                    inner.argument_at(column[number][1], argument) for column in columns
                )
                same = all(value == values[0] for value in values)
                text = (
                    to_code(values[0])
                    if same
                    else self._argument(values, argument.name)
                )
                block_class.texts[key] = f"{argument.name}={text}"

    def _in_place(
        self, block_class: BlockClass, step: Step, block: Block, chain: tuple[Node, ...]
    ) -> None:
        """Inline a block without a class: values that differ become arguments of the enclosing class."""
        raw_params = {
            param.name: self._raw(block_class, step, param.name)
            for param in block.params
        }
        params = {
            param.name: param.default
            if raw_params[param.name] is None
            else raw_params[param.name]
            for param in block.params
        }
        turns: list[BlockClass] = []
        for number in range(step.node.repeat):
            column = [
                self._found.inside(step, inside.plan, inside.results, number)
                for inside in block_class.insides
            ]
            if turns and all(
                nested_inside is other
                for nested_inside, other in zip(column, turns[-1].insides, strict=True)
            ):
                turns.append(turns[-1])
                continue
            turns.append(
                BlockClass(
                    "",
                    block.graph,
                    block,
                    column,
                    chain=chain,
                    given=params,
                    turn=number,
                )
            )
            self._steps(turns[-1])
        block_class.inner[step.id] = turns

    def _argument(self, values: tuple[Any, ...], stem: str) -> str:
        """Return the argument with these values at the instances: an existing or a new one."""
        for argument in self._made.arguments:
            if argument.values == values:
                return argument.name
        self._made.arguments.append(Argument(self._names.take(stem), values))
        return self._made.arguments[-1].name


def in_words_of(params: Mapping[str, Any] | None, value: Any) -> Any:
    """Rewrite a value over an inlined block's parameters in terms of the enclosing class.

    None if it cannot be expressed. Without `params` the value is returned unchanged.

    >>> in_words_of({"channels": Expr("width + 1"), "times": 3}, (Expr("channels * 2"), Expr("times * 2")))
    (Expr(text='(width + 1) * 2'), 6)
    """
    try:
        return (
            value
            if params is None
            else mapped(value, lambda expression: _put(expression, params))
        )
    except ExpressionError:
        return None


def _put(expression: Expr, params: Mapping[str, Any]) -> Any:
    if not any(any(expressions(params.get(name))) for name in expression.names):
        return expression.evaluate(params)

    class Substitute(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.expr:
            if node.id not in expression.names:
                return node
            value = params.get(node.id)
            if isinstance(value, Expr):
                return ast.parse(value.text.strip(), mode="eval").body
            if type(value) is int or type(value) is float:
                return ast.Constant(value)
            raise ExpressionError(f"{node.id} is not a number")

    tree = ast.parse(expression.text.strip(), mode="eval").body
    if isinstance(tree, ast.Name):
        return params[tree.id]
    return Expr(ast.unparse(Substitute().visit(tree)))
