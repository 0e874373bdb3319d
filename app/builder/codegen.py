"""The drawing as the text of a class that a careful person would write.

The text is what is trained, inspected and exported. Only identifiers made by `names` and literals that passed
`params.check_param` are written into it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from app.builder.call_code import WIDTH, CallWriter, wrapped
from app.builder.calls import Ran
from app.builder.literals import DType
from app.builder.names import Names, module_attributes, reserved_variables
from app.builder.plan import Plan, Ref, Step
from app.builder.shapes import StepResult
from app.builder.value_types import TensorType
from app.frozen import FrozenMap
from app.source import InputSpec, Source

_LETTERS = ("x", "y", "z", "u", "v", "w")
_OUTPUT_NAMES = {
    "(h_n, c_n)": "state",
    "h_n": "h_n",
    "c_1": "c",
    "attn_output_weights": "attn_weights",
    "indices": "indices",
}


def generate(plan: Plan, results: Mapping[str, StepResult]) -> Source:
    """The source of the live part of the plan, with the lines and the module of every node."""
    return _Writer(plan, results).write()


@dataclass(frozen=True)
class _Line:
    """One line or several, and the nodes that they were written for."""

    text: str
    nodes: tuple[str, ...] = ()


class _Writer:
    def __init__(self, plan: Plan, results: Mapping[str, StepResult]) -> None:
        self.steps = [step for step in plan.steps if step.live]
        self.results = results
        self.modules = self._module_names()
        names = Names(reserved_variables() | {"N"})
        self.inputs = self._input_names(names)
        self.outputs = self._output_names()
        self.variables = _variables(self.steps, self.inputs, names)
        self.calls = CallWriter(results, self.variables, self.modules)

    def write(self) -> Source:
        body = [line for step in self.steps for line in self._forward(step)]
        constructor = self._constructor()
        lines = [
            *self._imports(),
            _Line(""),
            _Line(""),
            _Line("class Net(nn.Module):"),
            *self._docstring(),
            _Line(""),
            *constructor,
            _Line(""),
            _Line(wrapped("    def forward(", ["self", *self.inputs.values()], "):"), tuple(self.inputs)),
            *body,
            self._return(),
        ]
        return self._source(lines)

    def _source(self, lines: list[_Line]) -> Source:
        text: list[str] = []
        places: dict[str, list[int]] = {step.id: [] for step in self.steps}
        for line in lines:
            for part in line.text.split("\n"):
                text.append(part)
                for node in line.nodes:
                    places[node].append(len(text))
        return Source(
            text="\n".join(text) + "\n",
            inputs=tuple(self._input_spec(step) for step in self.steps if step.spec.kind == "input"),
            outputs=tuple(self.outputs.values()),
            lines=FrozenMap({node: tuple(numbers) for node, numbers in places.items()}),
            modules=FrozenMap(self.modules),
        )

    def _module_names(self) -> dict[str, str]:
        names = Names(module_attributes())
        return {step.id: names.take(step.node.name) for step in self.steps if step.spec.kind == "module"}

    def _input_names(self, names: Names) -> dict[str, str]:
        """A lone input that nobody named is `x`; every other has its own name."""
        inputs = [step for step in self.steps if step.spec.kind == "input"]
        plain = len(inputs) == 1 and inputs[0].node.name.rstrip("0123456789").lower() in ("input", "")
        return {step.id: names.take("x" if plain else step.node.name, "x") for step in inputs}

    def _output_names(self) -> dict[str, str]:
        names = Names()
        return {step.id: names.take(step.node.name, "output") for step in self.steps if step.spec.kind == "output"}

    def _imports(self) -> list[_Line]:
        keys = {step.spec.key for step in self.steps}
        dtypes = any(isinstance(value, DType) for step in self.steps for value in self._written_values(step))
        lines = []
        if dtypes or any(key.startswith("torch.") for key in keys):
            lines.append(_Line("import torch"))
        if any(key.startswith("F.") for key in keys):
            lines.append(_Line("import torch.nn.functional as F"))
        return [*lines, _Line("from torch import nn")]

    def _written_values(self, step: Step) -> list[Any]:
        """Values of parameters that stand in the text."""
        if step.spec.kind in ("input", "output", "unknown"):
            return []
        return [self.results[step.id].resolved.get(param.name) for param in step.spec.params]

    def _docstring(self) -> list[_Line]:
        """What goes in and what comes out, with shapes."""
        given = [f"{name} {self._type_text(Ref(node, 0))}" for node, name in self.inputs.items()]
        ends = [step for step in self.steps if step.spec.kind == "output" and step.refs()]
        back = [f"{self.outputs[step.id]} {self._type_text(step.refs()[0])}" for step in ends]
        if len(back) == 1:
            back = [self._type_text(ends[0].refs()[0])]
        if not given and not back:
            return [_Line('    """A network under way."""')]
        takes, returns = " and ".join(given) or "nothing", " and ".join(back) or "nothing yet"
        line = f'    """Maps {takes} to {returns}."""'
        if len(line) <= WIDTH:
            return [_Line(line)]
        rows = ["    Args:", *(f"        {row}" for row in given)] if given else []
        rows += ["", "    Returns:", *(f"        {row}" for row in back)] if back else []
        return [_Line('    """The network, over batches of N samples.'), _Line(""), *map(_Line, rows), _Line('    """')]

    def _constructor(self) -> list[_Line]:
        lines = [_Line("    def __init__(self):"), _Line("        super().__init__()")]
        for step in self.steps:
            if step.spec.kind == "module":
                head = f"        self.{self.modules[step.id]} = {step.spec.key}("
                tail = ").requires_grad_(False)" if step.node.frozen else ")"
                lines.append(_Line(wrapped(head, self.calls.arguments(step, call=False), tail), (step.id,)))
        return lines

    def _forward(self, step: Step) -> list[_Line]:
        if step.spec.kind in ("input", "output"):
            return []
        targets = ", ".join(self.variables[Ref(step.id, i)] for i in range(self._returned(step)))
        if self._returned(step) == 1 and self._in_tuple(step):
            targets = f"({targets},)"  # a list of one
        text = f"        {targets} = " if targets else "        "
        text += "..." if step.spec.kind == "unknown" else self.calls.call(step, len(text))
        comment = self._shape_comment(step)
        if comment and "\n" not in text and len(text) + len(comment) + 2 <= WIDTH:
            text += f"  {comment}"
        return [_Line(text, (step.id,))]

    def _returned(self, step: Step) -> int:
        """How many values the call returns."""
        return step.spec.outputs_given(self.results[step.id].resolved)

    def _in_tuple(self, step: Step) -> bool:
        """Whether the call returns a tuple even of one value; a flag does away with the tuple."""
        param = step.spec.param(step.spec.outputs_by)
        return param is not None and param.kind != "bool"

    def _shape_comment(self, step: Step) -> str:
        """The shape on lines where it changes."""
        outcome = self.results[step.id].outcome
        if not isinstance(outcome, Ran):
            return ""
        named = [value for i, value in enumerate(outcome.outputs) if self.variables.get(Ref(step.id, i)) != "_"]
        if not named or not isinstance(named[0], TensorType):
            return ""
        before = [values[0] for values in self.results[step.id].inputs.values()]
        if before and isinstance(before[0], TensorType) and before[0].shape == named[0].shape:
            return ""
        return f"# {named[0].tuple_text}"

    def _return(self) -> _Line:
        ends = [step for step in self.steps if step.spec.kind == "output"]
        if not ends:
            return _Line("        ...  # connect an Output to return a value")
        values = [self.calls.argument(step, step.spec.inputs[0]) for step in ends]
        text = f"        return {', '.join(values)}"
        if len(text) > WIDTH:
            text = wrapped("        return (", values, ")")
        return _Line(text, tuple(step.id for step in ends))

    def _type_text(self, ref: Ref) -> str:
        result = self.results.get(ref.node)
        outcome = result.outcome if result else None
        if not isinstance(outcome, Ran) or ref.output >= len(outcome.outputs):
            return "of unknown shape"
        value = outcome.outputs[ref.output]
        if not isinstance(value, TensorType):
            return "a tuple"
        return value.tuple_text if value.dtype == "float32" else f"{value.tuple_text} of {value.dtype}"

    def _input_spec(self, step: Step) -> InputSpec:
        resolved = self.results[step.id].resolved
        dtype = resolved.get("dtype", step.spec.params[1].default)
        return InputSpec(self.inputs[step.id], tuple(resolved.get("shape", ())), dtype.name)


def _variables(steps: list[Step], inputs: dict[str, str], names: Names) -> dict[Ref, str]:
    """The variable of every value. One that is used for the last time gives its variable to the result, so that a
    chain reads `x = ...; x = ...` and only what lives on beside it has a name of its own. What has a telling name,
    an argument or a state, keeps it to itself.
    """
    uses = Counter(ref for step in steps for ref in step.refs())
    variables = {Ref(node, 0): name for node, name in inputs.items()}
    order = {name: i for i, name in enumerate(("x", *inputs.values(), *_LETTERS))}
    telling = {name for name in inputs.values() if name != "x"} | {"_"}
    for step in steps:
        if step.spec.kind in ("input", "output"):
            continue
        uses.subtract(step.refs())
        ended = {variables[ref] for ref in step.refs() if uses[ref] == 0 and ref in variables} - telling
        # Where branches meet, the trunk goes on.
        free = sorted(ended, key=lambda name: (order.get(name, len(order)), name))
        unused = [not uses[Ref(step.id, number)] for number in range(len(step.spec.outputs))]
        for number, port in enumerate(step.spec.outputs):
            ref = Ref(step.id, number)
            if len(unused) > 1 and unused[number] and not (number == 0 and all(unused)):
                variables[ref] = "_"
            elif free and number == 0:
                variables[ref] = free[0]
            elif port.name in _OUTPUT_NAMES:
                variables[ref] = names.take(_OUTPUT_NAMES[port.name])
                telling.add(variables[ref])
            else:
                variables[ref] = names.take(names.first_free(_LETTERS))
    return variables
