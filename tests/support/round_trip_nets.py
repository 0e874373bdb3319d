"""Random drawings of many ops, and the form in which a drawing and what was imported from its code are held together.

The form is the calls as `forward` makes them, each block and repeat looked into: op, parameters as they are once shapes
have settled them, which module is called (its path in the state_dict), and what each argument is. What a text cannot
say of a drawing is not in it:

- where nodes stand, comments, bends, and ids;
- names of functions, variables and blocks: a name of a module is its attribute, and so is in the form;
- the order of calls that do not wait for one another, and calls whose value nobody takes;
- a muted node, which is no call; a number that is typed at a node or wired to it; a default that is set or not;
- where a block begins and ends, if it owns no module: its calls are those of the sheet around it;
- whether equal modules in a row are one repeated node or several;
- which of two ops that read alike it is: `-x` is torch.neg and operator.neg.

Ops that change a value in place are left out: what they do hangs on the order of calls that do not wait for another.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace
from torch import nn

from app.builder.analysis import analyse, shapes_first
from app.builder.blocks import Block, with_blocks
from app.builder.catalog.catalog import Catalog, OpSpec, catalog
from app.builder.graph import Edge, Graph, Node
from app.builder.plan import Plan, Step
from app.builder.results import Analysis, Ran, StepResult
from app.builder.value_types import TensorType
from app.project.project import Project
from app.source.generated import ClassText, Source
from app.util.frozen import FrozenMap
from tests.support.builder_sheets import row_of

# What draws numbers of its own in any mode, and so gives others when calls change places.
_CHANCE = (
    "FractionalMaxPool",
    "rand",
    "bernoulli",
    "multinomial",
    "gumbel",
    "normal",
    "dropout",
)
# Ops that are one in a text of Python.
ALIKE = {"torch.neg": "operator.neg"}
NAMES = (
    "conv",
    "größe",
    "класс",
    "層",
    "class",
    "None",
    "self",
    "forward",
    "F",
    "torch",
    "nn",
    "training",
    "T_destination",
    "register_buffer",
    "x",
    "Net",
    "super",
    "__init__",
    "__private",
    "_",
    "a b",
    "3x3",
    "a.b",
    "layers.0",
    "layers.1",
    "layers.keys",
    "heads.left",
    "heads.keys",
    "deep.er.est",
    "1",
    "0",
    "half-size",
    "N",
    "input",
    "print",
    "float",
    "parameters",
    "state_dict",
    "buffers",
    "call_super_init",
    "dump_patches",
    "ﬁ",
    "x" * 90,
    "",
    "'; canary()",
    "\n",
)
SHAPES = ((3, 8, 8), (6, 8, 8), (4, 6), (12,), (4, 6), (2, 4, 6, 6))


def ops_of(project: Project) -> Catalog:
    return with_blocks(catalog(), project.blocks)


def drawn(seed: int, nodes: int = 12) -> Project:
    """A random drawing in which nothing is wrong."""
    chance = random.Random(seed)
    return _Drawing(chance, nodes).project()


class _Drawing:
    def __init__(self, chance: random.Random, count: int) -> None:
        self.chance, self.count = chance, count
        self.blocks = FrozenMap({block.name: block for block in self._blocks()})
        self.ops = with_blocks(catalog(), self.blocks)
        self.graph = Graph()
        self.pool = [spec for spec in self.ops.values() if _usable(spec)]
        self.made = [key for key in self.ops if key.startswith("block.")]

    def project(self) -> Project:
        for number in range(self.chance.randint(1, 3)):
            shape = self.chance.choice(SHAPES)
            self.graph = self.graph.with_node(
                Node(f"i{number}", "input", self._name(), FrozenMap(shape=shape))
            )
        tries = 0
        while len(self.graph.nodes) < self.count and tries < 6 * self.count:
            tries += 1
            self._try(f"n{len(self.graph.nodes)}")
        ends = [(node, 0) for node in self.graph.nodes if not self.graph.out_of(node)]
        for number, (node, output) in enumerate(
            ends[: 1 + len(ends) // 2] or [("i0", 0)]
        ):
            self.graph = self.graph.with_node(
                Node(f"o{number}", "output", self._name())
            )
            self.graph = self.graph.with_edge(Edge(node, output, f"o{number}", "input"))
        return Project(graph=self.graph, blocks=self.blocks)

    def _name(self) -> str:
        return (
            self.chance.choice(NAMES)
            if self.chance.random() < 0.6
            else f"node{len(self.graph.nodes)}"
        )

    def _try(self, new: str) -> None:
        """Put one more call on the canvas if it runs on what is there."""
        graph, spec = self.graph, self._spec()
        params = dict(spec.starting_params())
        before = list(self.answer.values.items())
        tensors = [
            key
            for key, value in before
            if isinstance(value, TensorType) and value.dtype == "float32"
        ]
        if spec.kind in ("parameter", "buffer"):
            shape = [
                size
                for size in self.answer.values[self.chance.choice(tensors)].shape[1:]
                if type(size) is int
            ]
            params["shape"] = tuple(shape[-2:]) or (1,)
        repeat = (
            self.chance.choice((1, 1, 2, 3)) if spec.kind in ("module", "block") else 1
        )
        node = Node(
            new, spec.key, self._name(), FrozenMap(params), repeat=repeat, frozen=False
        )
        alike = [
            n.id for n in graph.nodes.values() if n.op == spec.key and not n.shares
        ]
        if spec.kind in ("module", "block") and alike and self.chance.random() < 0.3:
            node = replace(
                node, shares=self.chance.choice(alike), params=FrozenMap(), repeat=1
            )
        graph = graph.with_node(node)
        for port in spec.inputs:
            if port.required or (
                spec.operand(port.name) is None and self.chance.random() < 0.1
            ):
                for index in range(2 if port.variadic else 1):
                    source, output = self.chance.choice(tensors)
                    graph = graph.with_edge(Edge(source, output, new, port.name, index))
        if spec.kind in ("parameter", "buffer"):  # what nobody takes is not written
            graph = graph.with_node(
                Node(
                    f"{new}m",
                    self.chance.choice(("operator.add", "operator.mul")),
                    self._name(),
                )
            )
            graph = graph.with_edge(
                Edge(self.chance.choice(tensors)[0], 0, f"{new}m", "input")
            )
            graph = graph.with_edge(Edge(new, 0, f"{new}m", "other"))
        answer = shapes_first(graph, self.ops)
        value = answer.values.get((f"{new}m" if f"{new}m" in graph.nodes else new, 0))
        small = isinstance(value, TensorType) and all(
            type(s) is not int or s <= 600 for s in value.shape
        )
        wrong = any(problem.node is not None for problem in answer.errors)
        if small and not wrong and value.shape and not isinstance(value.shape[0], int):
            self.graph = graph

    @property
    def answer(self) -> Analysis:
        return shapes_first(self.graph, self.ops)

    def _spec(self) -> OpSpec:
        dice = self.chance.random()
        if dice < 0.2:
            return self.ops[self.chance.choice(self.made)]
        if dice < 0.3:
            return self.ops["parameter"]
        if dice < 0.35:
            return self.ops["buffer"]
        return self.chance.choice(self.pool)

    def _blocks(self) -> list[Block]:
        """A chain that is a `nn.Sequential`, one that is a class, and one that has it twice."""
        chain = row_of(
            [
                ("a", "nn.Linear", "0", {"out_features": 6}),
                ("b", "nn.ReLU", "1", {}, {"repeat": 2}),
            ]
        )
        plain = row_of(
            [
                ("a", "nn.Linear", self.chance.choice(NAMES[:40]), {"out_features": 6}),
                ("b", "F.gelu", "act"),
                ("c", "nn.LayerNorm", self.chance.choice(NAMES[:40])),
            ]
        )
        twice = row_of(
            [
                ("p", "block.Plain", self.chance.choice(NAMES[:40])),
                ("q", "block.Plain", "again", {}, {"repeat": 2}),
            ]
        )
        return [Block("Chain", chain), Block("Plain", plain), Block("Twice", twice)]


def _usable(spec: OpSpec) -> bool:
    if (
        spec.kind not in ("module", "function", "method", "operator")
        or not spec.inputs
        or not spec.outputs
    ):
        return False
    if any(word in spec.key for word in _CHANCE) or spec.outputs_by:
        return False
    # A value in place, for all who have it.
    changes = spec.key.endswith("_") or spec.key in (
        "operator.setitem",
        "F.batch_norm",
        "F.instance_norm",
    )
    return spec.outputs[0].kind in ("tensor", "any") and not changes


# --- The form ---------------------------------------------------------------------------------------------------


def form(answer: Analysis, model: nn.Module) -> tuple[tuple[Any, ...], Counter[Any]]:
    """What the outputs are, and how often each call is made."""
    assert answer.walk is not None
    calls: Counter[Any] = Counter()
    part = answer.source.classes[""]
    given = {step.id: ("input", spec) for step, spec in _inputs(answer)}
    return _form(
        answer.walk, answer.results, part, "", _Text(answer.source, model), given, calls
    ), calls


@dataclass(frozen=True)
class _Text:
    """The text, and a module that was made of it."""

    source: Source
    model: nn.Module

    def settings(self, path: str, params: tuple[Any, ...]) -> tuple[Any, ...]:
        """What a layer is made with, as it keeps it: a default of its own reads there as a value that was given."""
        module: Any = self.model
        for name in path.split("."):
            module = getattr(module, name)
        if not isinstance(module, nn.Module):
            return params
        plain = {
            name: value
            for name, value in vars(module).items()
            if name[:1] != "_" and name != "training"
        }
        kept = {
            name: value
            for name, value in plain.items()
            if isinstance(value, bool | int | float | str | tuple)
        }
        return (
            type(module).__name__,
            *sorted((name, repr(value)) for name, value in kept.items()),
        )


def _inputs(answer: Analysis) -> list[tuple[Step, int]]:
    assert answer.walk is not None
    place = {node: i for i, node in enumerate(answer.graph.nodes)}
    steps = [
        step for step in answer.walk.steps if step.spec.kind == "input" and step.live
    ]
    return [
        (step, number)
        for number, step in enumerate(sorted(steps, key=lambda step: place[step.id]))
    ]


def _form(
    walk: Plan,
    results: Mapping[str, StepResult],
    part: ClassText,
    prefix: str,
    text: _Text,
    given: Mapping[str, Any],
    calls: Counter[Any],
) -> tuple[Any, ...]:
    known: dict[tuple[str, int], Any] = {}
    ends: list[Any] = []
    for step in walk.steps:
        if not step.live:
            continue
        args = {
            port: tuple(known[ref.node, ref.output] for ref in refs)
            for port, refs in step.args.items()
        }
        if step.spec.kind == "input":
            known[step.id, 0] = given[step.id]
        elif step.spec.kind == "output":
            ends += [value for values in args.values() for value in values]
        else:
            for number, value in enumerate(
                _called(step, results[step.id], part, prefix, text, args, calls)
            ):
                known[step.id, number] = value
    return tuple(ends)


def _called(
    step: Step,
    result: StepResult,
    part: ClassText,
    prefix: str,
    text: _Text,
    args: dict[str, Any],
    calls: Counter[Any],
) -> tuple[Any, ...]:
    """What each output of a step is, after all its repetitions."""
    port = step.spec.inputs[0].name if step.spec.inputs else ""
    found: tuple[Any, ...] = ()
    for number in range(step.node.repeat):
        if number:
            args = {**args, port: found[:1]}
        turn = (
            result.turns[min(number, len(result.turns) - 1)] if result.turns else result
        )
        if step.spec.definition is not None:
            inside = turn.inside
            inner = part.placed.get(step.id) or part.placed.get(step.module)
            block = (
                inner[min(number, len(inner) - 1)]
                if inner
                else text.source.classes[part.blocks[step.id]]
            )
            names = {node.name: node.id for node in step.spec.definition.inputs}
            given = {names[name]: values[0] for name, values in args.items()}
            path = f"{prefix}{part.module(step.id, number)}."
            found = _form(inside.plan, inside.results, block, path, text, given, calls)
            continue
        assert isinstance(result.outcome, Ran)
        own = prefix + part.module(step.id, number) if step.id in part.modules else ""
        params = _params(step, turn.resolved, args)
        said = (
            ALIKE.get(step.spec.key, step.spec.key),
            own,
            text.settings(own, params) if own else params,
        )
        call = (*said, hash(tuple(sorted(args.items(), key=str))))
        calls[call] += 1
        found = tuple((call, output) for output in range(len(result.outcome.outputs)))
    return found


def _params(
    step: Step, resolved: Mapping[str, Any], args: Mapping[str, Any]
) -> tuple[Any, ...]:
    """Every parameter with its value, as the call is given it."""
    return tuple(
        (param.name, repr(resolved.get(param.name, param.default)))
        for param in step.spec.params
        if param.name not in args
    )


def code_of(project: Project) -> Analysis:
    return analyse(project.graph, ops_of(project))
