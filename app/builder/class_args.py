"""What the instances of a block differ in: the arguments of its class.

A parameter that a person exposed is one. So is whatever was taken from the arriving shape and came out differently at
two instances: `in_channels` of a block that stands behind 32 channels here and behind 64 there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from app.builder.blocks import Block
from app.builder.dependence import followed
from app.builder.expressions import computed, expressions, mapped
from app.builder.graph import Graph
from app.builder.literals import AUTO, to_code
from app.builder.names import Names, reserved_variables
from app.builder.plan import Plan, Step, plan
from app.builder.shapes import Inside, StepResult, computed_plan, infer
from app.frozen import FrozenMap

# What a class has as an attribute: modules, and values that it owns.
VALUES = ("parameter", "buffer")
OWNING = ("module", "block", "custom", *VALUES)


@dataclass(frozen=True)
class Argument:
    """One argument of a class. `values` has its value by inside; `param` is the exposed parameter's name, if it is."""

    name: str
    values: tuple[Any, ...]
    param: str = ""
    default: Any = None

    def declared(self) -> str:
        """As it stands in `def __init__`."""
        return f"{self.name}={to_code(self.default)}" if self.param else self.name


@dataclass
class BlockClass:
    """A class, and every inside that it stands for. The network itself is one without a block, of one inside."""

    name: str
    graph: Graph
    block: Block | None
    insides: list[Inside]
    arguments: list[Argument] = field(default_factory=list)
    texts: dict[tuple[str, int, str], str] = field(default_factory=dict)
    stored: set[str] = field(default_factory=set)
    imported: Mapping[str, str] = field(default_factory=dict)  # what the classes of files are called, by op
    _renamed: dict[str, str] = field(default_factory=dict)

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
        """The value of an argument for one instance, AUTO where nothing is known of it."""
        number = next((i for i, known in enumerate(self.insides) if known is inside), None)
        return AUTO if number is None else argument.values[number]

    def same(self, read: Any) -> bool:
        """Whether something read off an inside is the same in all of them."""
        first = read(self.insides[0])
        return all(read(inside) == first for inside in self.insides[1:])


def turns_of(result: StepResult, count: int) -> Iterator[tuple[FrozenMap[str, Any], Inside | None]]:
    """Parameters and inside of every repetition; of those that could not be looked into, those of the last that was."""
    if not result.turns:
        yield from ((result.resolved, None) for _ in range(count))
        return
    for number in range(count):
        turn = result.turns[min(number, len(result.turns) - 1)]
        yield turn.resolved, turn.inside


def block_classes(walk: Plan, results: Mapping[str, StepResult], root: BlockClass) -> list[BlockClass]:
    """Root and the classes of all blocks in it, those that others use first, their arguments settled."""
    names, found = Names(reserved_variables()), dict[str, BlockClass]()
    order: list[BlockClass] = []
    names.take(root.name)
    _collect(walk, results, found, order, names)
    order.append(root)
    for made in order:
        _settle(made, found)
    return order


def _collect(
    walk: Plan, results: Mapping[str, StepResult], found: dict[str, BlockClass], order: list[BlockClass], names: Names
) -> None:
    for step in walk.steps:
        block = step.spec.definition
        if block is None or not step.live:
            continue
        turns = [turn.inside for turn in results[step.id].turns if turn.inside is not None]
        known = found.get(block.name)
        if not turns and known is None:
            turns = [unknown_inside(step, block, walk)]
        for inside in turns:
            if known is None or not any(inside is other for other in known.insides):
                _collect(inside.plan, inside.results, found, order, names)
                known = found.get(block.name)
                if known is None:
                    known = found[block.name] = BlockClass(names.take(block.name), block.graph, block, [])
                    order.append(known)
                known.insides.append(inside)


def unknown_inside(step: Step, block: Block, walk: Plan) -> Inside:
    """The inside of a block of which nothing arrives."""
    assert walk.catalog is not None
    values = FrozenMap({p.name: step.node.params.get(p.name, p.default) for p in block.params})
    inner = computed_plan(plan(block.graph, walk.catalog), values)
    return Inside(inner, infer(inner, {}), values)


def _settle(made: BlockClass, classes: Mapping[str, BlockClass]) -> None:
    """Find the arguments of a class and the text of every parameter that is not the same number everywhere."""
    names = Names(reserved_variables())
    for param in made.block.params if made.block else ():
        made._renamed[param.name] = name = names.take(param.name)
        values = tuple(inside.values.get(param.name, param.default) for inside in made.insides)
        made.arguments.append(Argument(name, values, param.name, param.default))
    follow = followed(made.block, made.insides[0]) if made.block else {}
    for step in made.steps:
        if step.module != step.id and step.module in made.results:
            continue  # written where it is called first
        if step.spec.kind == "block":
            _settle_instance(made, step, classes[step.spec.target], names)
        else:
            _settle_params(made, step, names, follow)
    made.arguments.sort(key=lambda argument: bool(argument.param))


def _raw(made: BlockClass, step: Step, name: str) -> Any:
    """The parameter as it is drawn, expressions and all."""
    node = made.graph.nodes.get(step.module) or made.graph.nodes[step.id]
    return node.params.get(name)


def _settle_params(made: BlockClass, step: Step, names: Names, follow: Mapping[tuple[str, str], Any]) -> None:
    columns = [list(turns_of(inside.results[step.id], step.node.repeat)) for inside in made.insides]
    for param in step.spec.params:
        raw = _raw(made, step, param.name)
        if not any(expressions(raw)):
            raw = follow.get((step.id, param.name))
            if raw is None or not _holds(made, raw, [column[0][0].get(param.name) for column in columns]):
                _settle_numbers(made, step, param.name, columns, names)
                continue
        text = _expression(made, raw, "self." if step.spec.kind not in OWNING or param.call else "")
        for number in range(step.node.repeat):
            made.texts[step.id, number, param.name] = text


def _holds(made: BlockClass, raw: Any, values: list[Any]) -> bool:
    """Whether an expression gives at every instance what was found there."""
    return all(computed(raw, inside.values) == value for inside, value in zip(made.insides, values, strict=True))


def _settle_numbers(made: BlockClass, step: Step, name: str, columns: list[Any], names: Names) -> None:
    """A parameter that came out differently at the instances is an argument."""
    for number in range(step.node.repeat):
        values = tuple(column[number][0].get(name, AUTO) for column in columns)
        if any(value != values[0] for value in values):
            made.texts[step.id, number, name] = _argument(made, values, name, names)


def _settle_instance(made: BlockClass, step: Step, inner: BlockClass, names: Names) -> None:
    columns = [list(turns_of(inside.results[step.id], step.node.repeat)) for inside in made.insides]
    for argument in inner.arguments:
        raw = _raw(made, step, argument.param) if argument.param else None
        for number in range(step.node.repeat):
            key = (step.id, number, argument.name)
            if argument.param:
                if raw is not None:
                    made.texts[key] = f"{argument.name}={_expression(made, raw, '')}"
                continue
            values = tuple(inner.argument_at(column[number][1], argument) for column in columns)
            same = all(value == values[0] for value in values)
            text = to_code(values[0]) if same else _argument(made, values, argument.name, names)
            made.texts[key] = f"{argument.name}={text}"


def _expression(made: BlockClass, raw: Any, prefix: str) -> str:
    """The text of a value with expressions; inside `forward` they read what the constructor kept."""
    for expression in expressions(raw):
        if prefix:
            made.stored.update(made._renamed.get(name, name) for name in expression.names)

    def written(value: Any) -> str:
        if isinstance(value, tuple) and len(value) == 1 and isinstance(value[0], _Text):
            return str(value[0])
        if isinstance(value, tuple):
            items = ", ".join(map(written, value))
            return f"({items},)" if len(value) == 1 else f"({items})"
        return value if isinstance(value, _Text) else to_code(value)

    return written(mapped(raw, lambda expression: _Text(expression.code(prefix, made._renamed))))


class _Text(str):
    """Source already."""


def _argument(made: BlockClass, values: tuple[Any, ...], stem: str, names: Names) -> str:
    """The argument of the class that has these values at its instances: one that is there, or a new one."""
    for argument in made.arguments:
        if argument.values == values:
            return argument.name
    made.arguments.append(Argument(names.take(stem), values))
    return made.arguments[-1].name
