"""Source of one class: the network or a block."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from app.builder.codegen.call_code import WIDTH, CallWriter, wrapped
from app.builder.codegen.class_args import VALUES, BlockClass
from app.builder.codegen.constructor_code import ConstructorWriter
from app.builder.codegen.constructor_text import Line
from app.builder.codegen.containers import attribute, containers
from app.builder.codegen.variables import filled_as_they_are, in_place, variables
from app.builder.codegen.whole_net import whole_net
from app.builder.literals import to_code
from app.builder.names import Paths, UniqueNames, module_attributes, reserved_variables
from app.builder.plan import OWNING, Ref, Step, registered
from app.builder.results import Inside, Ran
from app.builder.value_types import NumberType, TensorType
from app.source.generated import OutputSpec


class ClassWriter:
    """Writes one class. `classes` are those of the blocks in it, by name of the block."""

    def __init__(self, made: BlockClass, classes: Mapping[str, BlockClass]) -> None:
        self.made, self.classes = made, classes
        self.steps, self.results = made.steps, made.results
        self.modules = self._module_names()
        self.access, self._modules = self._reached()
        names = UniqueNames(reserved_variables() | {"N", *made.imported.values()})
        self.inputs = self._input_names(names)
        self.outputs = self._output_names()
        owned = {
            Ref(step.id, 0): self.access[step.id]
            for step in self.steps
            if step.spec.kind in VALUES
        }
        called = [step for step in self.steps if not step.kept]
        self.inline, self.fresh = (
            in_place(called, self.results),
            filled_as_they_are(called),
        )
        self.variables = variables(
            called, self.results, self.inputs, names, owned, self._in_place
        )
        self.calls = CallWriter(
            self.results, self.variables, self.access, made.texts, made.imported
        )
        self._whole = whole_net(self.steps) if made.block is None else None
        if self._whole is not None:
            self.modules = {self._whole.id: ""}

    def write(self) -> list[Line]:
        """Return the lines of the class."""
        if self._whole is not None:
            return self._derived(self._whole)
        body = [line for step in self.steps for line in self._forward(step)]
        return [
            Line(f"class {self.made.name}(nn.Module):"),
            *self._docstring(),
            Line(""),
            *self._constructor(),
            Line(""),
            Line.of_nodes(
                wrapped("    def forward(", ["self", *self.inputs.values()], "):"),
                *self.inputs,
            ),
            *body,
            *self._return(),
        ]

    def _derived(self, step: Step) -> list[Line]:
        """Write a network that is one custom layer as a subclass of its class, inheriting `forward`."""
        arguments = self.calls.arguments(step, call=False)
        heads = [
            Line.of_nodes(
                f"class {self.made.name}({self.calls.constructor(step)}):", step.id
            ),
            *self._docstring(),
        ]
        if not arguments:
            return heads
        super_call = Line.of_nodes(
            wrapped("        super().__init__(", arguments, ")"), step.id
        )
        return [*heads, Line(""), Line("    def __init__(self):"), super_call]

    def _in_place(self, step: Step, names: Mapping[Ref, str]) -> str:
        """Return the expression for an inlined step: a number, or the size of a variable."""
        writer = CallWriter(self.results, names, self.access, self.made.texts)
        return (
            writer.literal(step) if step.spec.kind == "number" else writer.call(step, 0)
        )

    # --- Names

    def _module_names(self) -> dict[str, str]:
        """Assign an attribute path to every module; nodes that share a module share the path."""
        owning, nodes = (
            [step for step in self.steps if step.spec.kind in OWNING],
            self.made.graph.nodes,
        )
        node_names = {
            step.module: nodes.get(step.module, step.node).name for step in owning
        }
        paths = Paths(module_attributes() | self.made.stored, node_names.values())
        paths_by_module = {
            module: paths.take(name) for module, name in node_names.items()
        }
        return {
            step.id: paths_by_module[step.module]
            for step in self.steps
            if step.module in paths_by_module
        }

    def _reached(self) -> tuple[dict[str, str], ConstructorWriter]:
        """Return the access expression of every node's module, and the constructor's writer."""
        first = {
            step.module: step for step in registered(self.steps, self.made.graph.nodes)
        }
        roots = containers(
            {
                step.id: (self.modules[step.id], step.spec.kind)
                for step in first.values()
            }
        )
        plain = {
            module: attribute(self.modules[step.id]) for module, step in first.items()
        }
        boxed = {
            node: text
            for name, box in roots.items()
            for node, text in box.reached(attribute(name)).items()
        }
        accesses = {
            module: boxed.get(step.id, plain[module]) for module, step in first.items()
        }
        access = {
            step.id: accesses[step.module]
            for step in self.steps
            if step.id in self.modules
        }
        return access, ConstructorWriter(self.made, self.classes, access, roots)

    def _input_names(self, names: UniqueNames) -> dict[str, str]:
        """Name the inputs: a single unnamed one is `x`, others keep their names."""
        inputs = [step for step in self.steps if step.spec.kind == "input"]
        if self.made.block is not None:  # all inputs, even unused ones
            inputs = [
                step for step in self.made.plan.steps if step.spec.kind == "input"
            ]
        plain = len(inputs) == 1 and inputs[0].node.name.rstrip(
            "0123456789"
        ).lower() in ("input", "")
        positions = {node: i for i, node in enumerate(self.made.graph.nodes)}
        inputs.sort(key=lambda step: positions.get(step.id, 0))
        return {
            step.id: names.take("x" if plain else step.node.name, "x")
            for step in inputs
        }

    def _output_names(self) -> dict[str, str]:
        names = UniqueNames()
        return {
            step.id: names.take(step.node.name, "output")
            for step in self.steps
            if step.spec.kind == "output"
        }

    # --- Docstring

    def _docstring(self) -> list[Line]:
        """Describe inputs and outputs with their shapes."""
        arguments = [
            f"{name} {self._type_text(Ref(node, 0))}"
            for node, name in self.inputs.items()
        ]
        ends = [
            step for step in self.steps if step.spec.kind == "output" and step.refs()
        ]
        back = [
            f"{self.outputs[step.id]} {self._type_text(step.refs()[0])}"
            for step in ends
        ]
        if len(back) == 1:
            only = self._type_text(ends[0].refs()[0])
            back = [f"a tensor {only}" if only.startswith("of ") else only]
        if not arguments and not back:
            return [Line('    """An incomplete network."""')]
        takes, returns = (
            " and ".join(arguments) or "nothing",
            " and ".join(back) or "nothing yet",
        )
        line = f'    """Maps {takes} to {returns}."""'
        if len(line) <= WIDTH:
            return [Line(line)]
        rows = (
            ["    Args:", *(f"        {row}" for row in arguments)] if arguments else []
        )
        rows += (
            ["", "    Returns:", *(f"        {row}" for row in back)] if back else []
        )
        subject = "network, over" if self.made.block is None else "block, over"
        return [
            Line(f'    """The {subject} batches of N samples.'),
            Line(""),
            *map(Line, rows),
            Line('    """'),
        ]

    def _type_text(self, ref: Ref) -> str:
        values = [self._value(inside, ref) for inside in self.made.insides]
        if None in values:
            return "of unknown shape"
        value = values[0]
        if isinstance(value, NumberType):
            return "a number"
        if not isinstance(value, TensorType):
            return "a tuple"
        shape = self._shape_text(values)
        return shape if value.dtype == "float32" else f"{shape} of {value.dtype}"

    def _shape_text(self, values: list[Any]) -> str:
        """Format the shape over all instances; a size that differs is the argument with its values, or `*`."""
        first = values[0].tuple_text
        if all(value == values[0] for value in values):
            return str(first)
        shapes = [
            value.shape if isinstance(value, TensorType) else () for value in values
        ]
        if any(len(shape) != len(shapes[0]) for shape in shapes):
            return "of several shapes"
        sizes = [self._size_text(column) for column in zip(*shapes, strict=True)]
        return f"({', '.join(sizes)}{',' * (len(sizes) == 1)})"

    def _size_text(self, column: tuple[Any, ...]) -> str:
        if all(size == column[0] for size in column):
            return str(column[0]).replace("−", "-")
        return next(
            (
                argument.name
                for argument in self.made.arguments
                if argument.values == column
            ),
            "*",
        )

    @staticmethod
    def _value(inside: Inside, ref: Ref) -> Any:
        result = inside.results.get(ref.node)
        outcome = result.outcome if result else None
        return (
            outcome.outputs[ref.output]
            if isinstance(outcome, Ran) and ref.output < len(outcome.outputs)
            else None
        )

    # --- Constructor

    def _constructor(self) -> list[Line]:
        declared = ["self", *(argument.declared() for argument in self.made.arguments)]
        lines = [
            Line(wrapped("    def __init__(", declared, "):")),
            Line("        super().__init__()"),
        ]
        lines += [
            Line(f"        self.{name} = {name}") for name in sorted(self.made.stored)
        ]
        return [*lines, *self._modules.write()]

    # --- Forward

    def _forward(self, step: Step) -> list[Line]:
        if (
            step.spec.kind in ("input", "output", *VALUES)
            or step.id in self.inline
            or step.kept
        ):
            return []
        if (
            step.spec.kind in OWNING
            and step.node.repeat > 1
            and not self._modules.chained(step)
        ):
            return [Line.of_nodes(self._loop(step), step.id)]
        targets = ", ".join(
            self.variables[Ref(step.id, i)] for i in range(self._returned(step))
        )
        if self._returned(step) == 1 and self._in_tuple(step):
            targets = f"({targets},)"  # a list of one
        text = f"        {targets} = " if targets else "        "
        text += (
            "..." if step.spec.kind == "unknown" else self.calls.call(step, len(text))
        )
        if step.spec.key == "operator.setitem":
            text = self._filled(step, targets, text)
        text = self.calls.counted(step) + text
        comment = self._shape_comment(step)
        if comment and "\n" not in text and len(text) + len(comment) + 2 <= WIDTH:
            text += f"  {comment}"
        return [Line.of_nodes(text, step.id)]

    def _filled(self, step: Step, target: str, copied: str) -> str:
        """Write the index assignment into a clone, or into the tensor itself if nothing else uses it."""
        filled = f"        {self.calls.filled(step, target)}"
        if step.id not in self.fresh:
            return f"{copied}\n{filled}"
        source = self.calls.argument(step, step.spec.inputs[0])
        return filled if source == target else f"        {target} = {source}\n{filled}"

    def _loop(self, step: Step) -> str:
        """Write a loop over repetitions that take several arguments, feeding each result to the next."""
        target = self.variables[Ref(step.id, 0)]
        first = self.variables.get(step.refs()[0], "...") if step.refs() else "..."
        begin = "" if first == target else f"        {target} = {first}\n"
        access = {**self.access, step.id: "layer"}
        inner = CallWriter(
            self.results, self.variables, access, self.made.texts, self.made.imported
        )
        if step.refs():  # the other arguments are constant over the loop, even if equal to the initial value
            port = next(port for port, refs in step.args.items() if refs)
            step = replace(
                step, args=step.args.set(port, (Ref(step.id, 0), *step.args[port][1:]))
            )
        loop = f"        for layer in {self.access[step.id]}:\n            {target} = {inner.call(step, 12)}"
        return begin + loop

    def _returned(self, step: Step) -> int:
        """Return how many values the call returns."""
        return step.spec.outputs_given(self.results[step.id].resolved)

    def _in_tuple(self, step: Step) -> bool:
        """Return whether the call returns a tuple even for one value; a flag that switches outputs off does not."""
        param = step.spec.param(step.spec.outputs_by)
        return param is not None and param.kind != "bool"

    def _shape_comment(self, step: Step) -> str:
        """Return a comment with the shape if the line changes it and it is the same at all instances."""
        outcome = self.results[step.id].outcome
        if not isinstance(outcome, Ran):
            return ""
        numbers = [
            i
            for i in range(len(outcome.outputs))
            if self.variables.get(Ref(step.id, i)) != "_"
        ]
        named = [outcome.outputs[i] for i in numbers]
        if not named or not isinstance(named[0], TensorType):
            return ""
        before = [values[0] for values in self.results[step.id].inputs.values()]
        if (
            before
            and isinstance(before[0], TensorType)
            and before[0].shape == named[0].shape
        ):
            return ""
        values = [
            self._value(inside, Ref(step.id, numbers[0]))
            for inside in self.made.insides
        ]
        if None in values:
            return ""
        text = self._shape_text(values)
        return f"# {text}" if text.startswith("(") else ""

    def _return(self) -> list[Line]:
        """Write the return statement, one per mode if outputs of the network depend on it."""
        ends = [step for step in self.steps if step.spec.kind == "output"]
        if not ends:
            return [Line("        ...  # connect an Output to return a value")]
        training, otherwise = (
            [step for step in ends if self._when(step) != not_in]
            for not_in in ("eval", "training")
        )
        if training == otherwise:
            return [self._returned_line(ends, "        ")]
        mode = Line.of_nodes(
            "        if self.training:",
            *(step.id for step in ends if self._when(step) != "always"),
        )
        return [
            mode,
            self._returned_line(training, " " * 12),
            self._returned_line(otherwise, "        "),
        ]

    def _returned_line(self, ends: list[Step], margin: str) -> Line:
        values = [self.calls.argument(step, step.spec.inputs[0]) for step in ends]
        keys = [self._key(step) for step in ends]
        brackets = ("(", ")")
        text = f"{margin}return {', '.join(values) or 'None'}"
        if ends and None not in keys and len(set(keys)) == len(keys):
            brackets = ("{", "}")
            values = [
                f"{key}: {value}" for key, value in zip(keys, values, strict=True)
            ]
            text = f"{margin}return {{{', '.join(values)}}}"
        if len(text) > WIDTH:
            text = wrapped(f"{margin}return {brackets[0]}", values, brackets[1])
        return Line.of_nodes(text, *(step.id for step in ends))

    def _when(self, step: Step) -> str:
        """Return the mode in which an output of the network is returned; blocks always return all."""
        if self.made.block is not None:
            return "always"
        return str(self.results[step.id].resolved.get("when", "always"))

    def _key(self, step: Step) -> str | None:
        """Return the dict key of an output of the network, as source."""
        key = (
            self.results[step.id].resolved.get("key")
            if self.made.block is None
            else None
        )
        return to_code(key) if key is not None else None

    @property
    def returned(self) -> tuple[str, ...]:
        """The outputs that are returned in training, in order."""
        ends = [step for step in self.steps if step.spec.kind == "output"]
        return tuple(
            self.outputs[step.id] for step in ends if self._when(step) != "eval"
        )

    @property
    def ends(self) -> tuple[OutputSpec, ...]:
        """All outputs, with their keys and the modes in which they are returned."""
        ends = [step for step in self.steps if step.spec.kind == "output"]
        keys = [
            self.results[step.id].resolved.get("key")
            if self.made.block is None
            else None
            for step in ends
        ]
        return tuple(
            OutputSpec(
                self.outputs[step.id],
                None if key is None else str(key),
                self._when(step),
            )
            for step, key in zip(ends, keys, strict=True)
        )
