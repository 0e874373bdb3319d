"""The drawing as the text of a class that a careful person would write.

The text is what is trained, inspected and exported. Only identifiers made by `names` and literals that passed
`params.check_param` are written into it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from app.builder.catalog import OpSpec, Param
from app.builder.literals import AUTO, to_code
from app.builder.names import Names, identifier, module_attributes, reserved_variables
from app.builder.plan import Plan, Ref, Step
from app.builder.shapes import Ran, StepResult
from app.builder.value_types import TensorType
from app.frozen import FrozenMap
from app.source import InputSpec, Source

WIDTH = 100
_SIGNS = {"operator.add": "+", "operator.sub": "-", "operator.mul": "*"}
_LETTERS = ("x", "y", "z", "u", "v", "w")
_OUTPUT_NAMES = {"(h_n, c_n)": "state", "h_n": "h_n", "attn_output_weights": "attn_weights"}


def generate(plan: Plan, results: Mapping[str, StepResult]) -> Source:
    """The source of the live part of the plan, with the lines and the module of every node."""
    return _Writer(plan, results).write()


@dataclass(frozen=True)
class _Line:
    text: str
    node: str | None = None


class _Writer:
    def __init__(self, plan: Plan, results: Mapping[str, StepResult]) -> None:
        self.steps = [step for step in plan.steps if step.live]
        self.results = results
        self.modules = self._module_names()
        names = Names(reserved_variables() | {"N"})
        self.inputs = self._input_names(names)
        self.variables = _variables(self.steps, self.inputs, names)

    def write(self) -> Source:
        body = [line for step in self.steps for line in self._forward(step)]
        returned = [self._return()]
        lines = [
            *self._imports(),
            _Line(""),
            _Line(""),
            _Line("class Net(nn.Module):"),
            *self._docstring(),
            _Line(""),
            *self._constructor(),
            _Line(""),
            _Line(f"    def forward({', '.join(['self', *self.inputs.values()])}):"),
            *body,
            *returned,
        ]
        return self._source(lines)

    def _source(self, lines: list[_Line]) -> Source:
        text: list[str] = []
        places: dict[str, list[int]] = {step.id: [] for step in self.steps}
        for line in lines:
            for part in line.text.split("\n"):
                text.append(part)
                if line.node is not None:
                    places[line.node].append(len(text))
        self._place_ends(text, places)
        return Source(
            text="\n".join(text) + "\n",
            inputs=tuple(self._input_spec(step) for step in self.steps if step.spec.kind == "input"),
            outputs=tuple(identifier(s.node.name, "output") for s in self.steps if s.spec.kind == "output"),
            lines=FrozenMap({node: tuple(numbers) for node, numbers in places.items()}),
            modules=FrozenMap(self.modules),
        )

    def _place_ends(self, text: list[str], places: dict[str, list[int]]) -> None:
        """Inputs stand on the line of the signature, outputs on the line of the return."""
        signature = next(i for i, line in enumerate(text, 1) if line.startswith("    def forward("))
        for step in self.steps:
            if step.spec.kind == "input":
                places[step.id].append(signature)
            elif step.spec.kind == "output":
                places[step.id].append(len(text))

    def _module_names(self) -> dict[str, str]:
        names = Names(module_attributes())
        return {step.id: names.take(step.node.name) for step in self.steps if step.spec.kind == "module"}

    def _input_names(self, names: Names) -> dict[str, str]:
        """A lone input that nobody named is `x`; every other has its own name."""
        inputs = [step for step in self.steps if step.spec.kind == "input"]
        plain = len(inputs) == 1 and inputs[0].node.name.rstrip("0123456789").lower() in ("input", "")
        return {step.id: names.take("x" if plain else step.node.name, "x") for step in inputs}

    def _imports(self) -> list[_Line]:
        code = "\n".join([*(self._construct(step) for step in self.steps), *map(self._call_text, self.steps)])
        lines = [_Line("import torch")] if "torch." in code else []
        lines.append(_Line("from torch import nn"))
        if any(step.spec.key.startswith("F.") for step in self.steps):
            lines.append(_Line("from torch.nn import functional as F"))
        return lines

    def _docstring(self) -> list[_Line]:
        """Shapes that go in and come out."""
        lines = []
        for step in self.steps:
            if step.spec.kind == "input":
                lines.append(f"{self.inputs[step.id]}: {self._type_text(Ref(step.id, 0))}")
        for step in self.steps:
            if step.spec.kind == "output" and step.refs():
                lines.append(f"returns {identifier(step.node.name, 'output')}: {self._type_text(step.refs()[0])}")
        if not lines:
            return [_Line('    """An empty network."""')]
        if len(lines) == 1:
            return [_Line(f'    """{lines[0]}"""')]
        return [_Line(f'    """{lines[0]}'), *(_Line(f"    {line}") for line in lines[1:]), _Line('    """')]

    def _constructor(self) -> list[_Line]:
        lines = [_Line("    def __init__(self):"), _Line("        super().__init__()")]
        for step in self.steps:
            if step.spec.kind == "module":
                lines.append(_Line(f"        self.{self.modules[step.id]} = {self._construct(step)}", step.id))
        return lines

    def _construct(self, step: Step) -> str:
        if step.spec.kind != "module":
            return ""
        arguments = self._arguments(step, call=False)
        text = f"{step.spec.key}({', '.join(arguments)})"
        if len(text) + 18 + len(self.modules[step.id]) <= WIDTH:
            return text
        inner = "".join(f"            {argument},\n" for argument in arguments)
        return f"{step.spec.key}(\n{inner}        )"

    def _arguments(self, step: Step, call: bool) -> list[str]:
        """Literals: required ones by position, the rest by name where they differ from the default."""
        resolved = self.results[step.id].resolved
        written = []
        for param in step.spec.params:
            if param.call != call:
                continue
            value = resolved.get(param.name, AUTO if param.auto else param.default)
            if param.positional and (param.required or param.auto or param.name in ("p",) or value != param.default):
                written.append(_literal(step.spec, param, value, param.name in resolved))
            elif param.name in resolved and (param.required or value != param.default):
                written.append(f"{param.name}={to_code(value)}")
            elif param.required:
                written.append(f"{param.name}=...")
        return written

    def _forward(self, step: Step) -> list[_Line]:
        if step.spec.kind in ("input", "output"):
            return []
        targets = ", ".join(self.variables[Ref(step.id, i)] for i in range(len(step.spec.outputs)))
        line = f"        {targets} = {self._call_text(step)}"
        comment = self._shape_comment(step)
        if comment and len(line) + len(comment) + 2 <= WIDTH:
            line += f"  {comment}"
        return [_Line(line, step.id)]

    def _call_text(self, step: Step) -> str:
        spec = step.spec
        if spec.kind in ("input", "output"):
            return ""
        taken = [self._argument(step, name) for name in (port.name for port in spec.inputs)]
        if spec.kind == "unknown":
            return "..."
        if spec.key in _SIGNS:
            return f"{taken[0][1]} {_SIGNS[spec.key]} {taken[1][1]}"
        given = _given(step, taken)
        literals = self._arguments(step, call=spec.kind == "module")
        if spec.kind == "method":
            size = self.results[step.id].resolved.get("size")
            literals = [", ".join(map(to_code, size))] if isinstance(size, tuple) else literals
            return f"{given[0]}.{spec.label}({', '.join(literals)})"
        function = f"self.{self.modules[step.id]}" if spec.kind == "module" else spec.key
        return f"{function}({', '.join([*given, *literals])})"

    def _argument(self, step: Step, name: str) -> tuple[str, str]:
        port = step.spec.input(name)
        refs = step.args.get(name, ())
        if port is not None and port.variadic:
            return name, f"[{', '.join(self._variable(ref) for ref in refs)}]"
        return name, self._variable(refs[0]) if refs else "..."

    def _variable(self, ref: Ref) -> str:
        return self.variables.get(ref, "...")

    def _shape_comment(self, step: Step) -> str:
        """The shape on lines where it changes."""
        outcome = self.results[step.id].outcome
        if not isinstance(outcome, Ran) or not isinstance(outcome.outputs[0], TensorType):
            return ""
        before = [values[0] for values in self.results[step.id].inputs.values()]
        now = outcome.outputs[0]
        if before and isinstance(before[0], TensorType) and before[0].shape == now.shape:
            return ""
        return f"# {now.tuple_text}"

    def _return(self) -> _Line:
        outputs = [step for step in self.steps if step.spec.kind == "output"]
        if not outputs:
            return _Line("        ...  # connect an Output to return a value")
        return _Line(f"        return {', '.join(self._argument(step, 'input')[1] for step in outputs)}")

    def _type_text(self, ref: Ref) -> str:
        result = self.results.get(ref.node)
        if result is None or not isinstance(result.outcome, Ran):
            return "shape unknown"
        value = result.outcome.outputs[ref.output]
        if not isinstance(value, TensorType):
            return "a tuple"
        return f"{value.dtype} of shape {value.tuple_text}"

    def _input_spec(self, step: Step) -> InputSpec:
        resolved = self.results[step.id].resolved
        dtype = resolved.get("dtype", step.spec.params[1].default)
        return InputSpec(self.inputs[step.id], tuple(resolved.get("shape", ())), dtype.name)


def _variables(steps: list[Step], inputs: dict[str, str], names: Names) -> dict[Ref, str]:
    """The variable of every value. One that is used for the last time gives its variable to the result, so that a
    chain reads `x = ...; x = ...` and only what lives on beside it has a name of its own.
    """
    uses = Counter(ref for step in steps for ref in step.refs())
    variables = {Ref(node, 0): name for node, name in inputs.items()}
    for step in steps:
        if step.spec.kind in ("input", "output"):
            continue
        uses.subtract(step.refs())
        dying = [variables[ref] for ref in step.refs() if uses[ref] == 0 and ref in variables]
        dying = [name for name in dying if name != "_"]
        for number, port in enumerate(step.spec.outputs):
            ref = Ref(step.id, number)
            if len(step.spec.outputs) > 1 and not uses[ref]:
                variables[ref] = "_"
            elif dying and number == 0:
                variables[ref] = dying[0]
            else:
                variables[ref] = names.take(_OUTPUT_NAMES.get(port.name) or names.first_free(_LETTERS))
    return variables


def _literal(spec: OpSpec, param: Param, value: Any, is_set: bool) -> str:
    return "..." if param.required and not is_set else to_code(value)


def _given(step: Step, taken: list[tuple[str, str]]) -> list[str]:
    """Wired arguments: by position as long as none is left out, by name after that."""
    given, by_name = [], False
    for name, text in taken:
        port = step.spec.input(name)
        if name not in step.args and port is not None and not port.required:
            by_name = True
            continue
        given.append(f"{name}={text}" if by_name else text)
    return given
