"""Constructor code of a class: single, repeated and contained modules, their initialisation and freezing."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from app.builder.codegen.call_code import CallWriter, wrapped
from app.builder.codegen.class_args import BlockClass, in_words_of
from app.builder.codegen.constructor_text import Line, Made, Owner, repeated
from app.builder.codegen.containers import Container, assigned, attribute, statements
from app.builder.codegen.free_tensors import place_of
from app.builder.plan import Step, registered

_MARGIN = "        "


class ConstructorWriter:
    """Writes the module assignments of `__init__`. `access` is the expression for each step's module, `roots` are the
    containers by attribute; `classes` are those of blocks, by block name."""

    def __init__(
        self,
        made: BlockClass,
        classes: Mapping[str, BlockClass],
        access: Mapping[str, str],
        roots: Mapping[str, Container],
    ) -> None:
        self._class, self._classes, self._access, self._roots = (
            made,
            classes,
            access,
            roots,
        )
        self._calls: dict[int, CallWriter] = {}

    def write(self) -> list[Line]:
        """Write the modules in registration order; a container comes where its first module would."""
        owning = {
            step.id: step
            for step in registered(self._class.steps, self._class.graph.nodes)
        }
        boxed = {
            node: (name, box)
            for name, box in self._roots.items()
            for node in box.steps()
        }
        lines: list[Line] = []
        written: set[str] = set()
        for node, step in owning.items():
            name, box = boxed.get(node, (node, None))
            if box is None:
                lines += assigned(
                    self._access[node], self._constructor(self._class, step, ())
                ).lines(_MARGIN)
                lines += self._inits(self._class, step, self._access[node], ())
            elif name not in written:
                written.add(name)
                lines += self._box(name, box, owning)
        return [
            *lines,
            *(line for step in owning.values() for line in self._ties(step)),
        ]

    def _ties(self, step: Step) -> list[Line]:
        """Write the assignments of tied parameters, after both modules are constructed."""
        lines: list[Line] = []
        for name, tie in step.node.tied.items():
            if tie.node in self._access:
                mine, other = (
                    place_of(self._access[step.id], name),
                    place_of(self._access[tie.node], tie.name),
                )
                expression = Made(other, (), "", ((step.id,),))
                lines += (
                    expression.framed(f"{mine} = ", "")
                    if name
                    else assigned(mine, expression)
                ).lines(_MARGIN)
        return lines

    def _box(self, name: str, box: Container, owning: Mapping[str, Step]) -> list[Line]:
        """Write a container and the initialisations of its modules."""

        def constructor_of(node: str) -> Made:
            constructor = self._constructor(self._class, owning[node], ())
            return (
                replace(constructor, head="", tail=")")
                if owning[node].spec.kind == "buffer"
                else constructor
            )

        lines = [
            line
            for statement in statements(box, attribute(name), constructor_of)
            for line in statement.lines(_MARGIN)
        ]
        inside = set(box.steps())
        for node, step in owning.items():
            if node in inside:
                lines += self._inits(self._class, step, self._access[node], ())
        return lines

    # --- What makes a module

    def _constructor(self, block_class: BlockClass, step: Step, prefix: Owner) -> Made:
        """Return the constructor expression of a step, with repetitions and freezing. `prefix` is the part's path."""
        end = ".requires_grad_(False)" if step.node.frozen else ""
        if step.node.repeat == 1:
            return (
                self._one(block_class, step, 0, prefix)
                .framed("", end)
                .owned((*prefix, step.id))
            )
        items = tuple(repeated(self._turns(block_class, step, prefix)))
        rows = any(item.rows for item in items)
        if self.chained(step):
            return Made("nn.Sequential(", items, f"){end}", ((*prefix, step.id),), rows)
        alone = (
            replace(items[0], head="[") if len(items) == 1 and items[0].times else None
        )
        return Made(
            "nn.ModuleList(",
            (alone or Made("[", items, "]", rows=rows),),
            f"){end}",
            ((*prefix, step.id),),
        )

    def _turns(self, block_class: BlockClass, step: Step, prefix: Owner) -> list[Made]:
        """Return the constructor of each repetition; equal consecutive ones are the same object."""
        turns, constructors = block_class.inner.get(step.id), list[Made]()
        for number in range(step.node.repeat):
            same = number and turns is not None and turns[number] is turns[number - 1]
            constructors.append(
                constructors[-1]
                if same
                else self._one(block_class, step, number, prefix)
            )
        return constructors

    def chained(self, step: Step) -> bool:
        """Return whether the repetitions can form an `nn.Sequential`: a single input and no other call arguments."""
        return len(step.refs()) == 1 and not self._writer(self._class).arguments(
            step, call=True
        )

    def _one(
        self, block_class: BlockClass, step: Step, number: int, prefix: Owner
    ) -> Made:
        """Return the constructor of one module: a class, or an inlined `nn.Sequential`."""
        turns = block_class.inner.get(step.id)
        if turns is not None:
            return self._sequential(
                turns[number], (*prefix, (step.id, turns[number].turn))
            )
        if step.spec.kind == "block":
            inner = self._classes[step.spec.target]
            keys = [(step.id, number, argument.name) for argument in inner.arguments]
            return Made(
                f"{inner.name}(",
                tuple(
                    block_class.texts[key] for key in keys if key in block_class.texts
                ),
            )
        calls = self._writer(block_class)
        return Made(
            f"{calls.constructor(step)}(",
            tuple(calls.arguments(step, call=False, number=number)),
        )

    def _sequential(self, block_class: BlockClass, prefix: Owner) -> Made:
        """Return the `nn.Sequential` of an inlined block; repeated nodes take one position per repetition."""
        steps = {step.id: step for step in block_class.steps}
        items: list[Made] = []
        for node in block_class.chain:
            step, owner = steps.get(node.id), (*prefix, node.id)
            if (
                step is None
            ):  # muted: a placeholder keeps the numbering of later modules
                items += repeated([Made("nn.Identity(", owners=(owner,))] * node.repeat)
                continue
            end = ".requires_grad_(False)" if node.frozen else ""
            items += repeated(
                [
                    turn.framed("", end).owned(owner)
                    for turn in self._turns(block_class, step, prefix)
                ]
            )
        return Made("nn.Sequential(", tuple(items), rows=True)

    def _writer(self, block_class: BlockClass) -> CallWriter:
        if id(block_class) not in self._calls:
            self._calls[id(block_class)] = CallWriter(
                block_class.results, {}, {}, block_class.texts, self._class.imported
            )
        return self._calls[id(block_class)]

    # --- Initialisation

    def _inits(
        self,
        block_class: BlockClass,
        step: Step,
        whose: str,
        prefix: Owner,
        loops: int = 0,
    ) -> list[Line]:
        """Write the `torch.nn.init` calls for a layer, and for those in an inlined block.

        `whose` is the module, or the container of its repetitions.
        """
        turns = block_class.inner.get(step.id)
        if not step.node.inits and not (turns and _initialises(turns[0])):
            return []
        owner = (*prefix, step.id)
        lines: list[Line] = []
        if step.node.repeat > 1:
            layer = self._loop_variable(loops)
            lines.append(Line(f"{_margin(loops)}for {layer} in {whose}:", (owner,)))
            whose, loops = layer, loops + 1
        for parameter, init in step.node.inits.items():
            target = f"{whose}.{parameter}" if parameter else whose
            values = {
                name: in_words_of(block_class.given, value)
                for name, value in init.params.items()
            }
            arguments = [
                target,
                *(
                    f"{name}={self._class.code(value)}"
                    for name, value in values.items()
                ),
            ]
            lines.append(
                Line(
                    wrapped(f"{_margin(loops)}nn.init.{init.name}(", arguments, ")"),
                    (owner,),
                )
            )
        if turns:
            lines += self._inner_inits(
                turns, whose, (*prefix, (step.id, 0)), loops, owner
            )
        return lines

    def _inner_inits(
        self,
        turns: list[BlockClass],
        whose: str,
        prefix: Owner,
        loops: int,
        outer: Owner,
    ) -> list[Line]:
        block_class, key, lines = turns[0], 0, list[Line]()
        steps = {step.id: step for step in block_class.steps}
        for node in block_class.chain:
            access = (
                f"{whose}[{key}]"
                if node.repeat == 1
                else f"{whose}[{key}:{key + node.repeat}]"
            )
            if node.id in steps:
                inner = self._inits(block_class, steps[node.id], access, prefix, loops)
                lines += [replace(line, owners=(*line.owners, outer)) for line in inner]
            key += node.repeat
        return lines

    def _loop_variable(self, loops: int) -> str:
        """Return `layer`, or a numbered name in nested loops."""
        argument_names = {argument.name for argument in self._class.arguments}
        names = (
            f"layer_{number}" if number > 1 else "layer"
            for number in range(1, len(argument_names) + loops + 2)
        )
        return [name for name in names if name not in argument_names][loops]


def _margin(loops: int) -> str:
    return _MARGIN + "    " * loops


def _initialises(block_class: BlockClass) -> bool:
    """Return whether an inlined block contains any initialisation."""
    if any(step.node.inits for step in block_class.steps):
        return True
    return any(_initialises(turns[0]) for turns in block_class.inner.values())
