"""The text of one call: what is given to it, in the order and the form that a careful person would write."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from app.builder import ops
from app.builder.catalog import Port
from app.builder.literals import AUTO, to_code
from app.builder.plan import Ref, Step
from app.builder.shapes import StepResult

WIDTH = 100
_SIGNS = {"operator.add": "+", "operator.sub": "-", "operator.mul": "*", "operator.truediv": "/"}
# Shapes that people write as a number when they have one dimension.
_NUMBER_FOR_ONE = {"normalized_shape", "dim"}
_PLAIN_TEXT = re.compile(r"[\w,.>-]+")


@dataclass(frozen=True)
class CallWriter:
    """Writes calls of one class. `variables` names every value, `modules` the attribute of every module.

    `texts` has the parameters, by node, repetition and name, that are no literals: arguments of the class and what is
    computed from them.
    """

    results: Mapping[str, StepResult]
    variables: Mapping[Ref, str]
    modules: Mapping[str, str]
    texts: Mapping[tuple[str, int, str], str] = field(default_factory=dict)

    def constructor(self, step: Step) -> str:
        """What makes the module of a step."""
        return step.spec.key

    def arguments(self, step: Step, call: bool, number: int = 0) -> list[str]:
        """Literals: required ones by position, the rest by name where they differ from the default.

        `number` counts the repetitions of a repeated node.
        """
        result = self.results[step.id]
        resolved = result.turns[min(number, len(result.turns) - 1)].resolved if result.turns else result.resolved
        written = []
        for param in step.spec.params:
            if param.call != call:
                continue
            value = resolved.get(param.name, AUTO if param.auto else param.default)
            if (step.id, number, param.name) in self.texts:
                text = self.texts[step.id, number, param.name]
            elif param.required and param.name not in resolved:
                text = "..."
            elif param.required or param.auto or value != param.default or (param.positional and param.name == "p"):
                text = _literal(param.name, value)
            else:
                continue
            written.append(text if param.positional else f"{param.name}={text}")
        return written

    def call(self, step: Step, column: int) -> str:
        """The call, from `column` on."""
        spec = step.spec
        taken = [self.argument(step, port) for port in spec.inputs]
        if spec.key in _SIGNS:
            return f"{taken[0]} {_SIGNS[spec.key]} {taken[1]}"
        text = self._function_call(step, taken, column)
        if any(len(line) + column > WIDTH for line in text.split("\n")):
            inner = " " * 12
            lists = [wrapped(f"{inner}[", self._variables_at(step, port), "]")[12:] for port in spec.inputs]
            taken = [lists[i] if port.variadic else taken[i] for i, port in enumerate(spec.inputs)]
            text = self._function_call(step, taken, column)
        return text

    def _function_call(self, step: Step, taken: list[str], column: int) -> str:
        spec = step.spec
        given = _given(step, taken)
        literals = [] if spec.kind == "block" else self.arguments(step, call=spec.kind == "module")
        if spec.kind == "method":
            size = self.results[step.id].resolved.get("size")
            literals = list(map(to_code, size)) if isinstance(size, tuple) else literals
            function, arguments = f"{given[0]}.{spec.label}", literals
        elif spec.kind in ("module", "block"):
            function, arguments = f"self.{self.modules[step.id]}", [*given, *literals]
        else:
            more = [ops.WRITTEN[spec.key]] if spec.key in ops.WRITTEN else []
            first, then = (literals, given) if spec.key in ops.LITERALS_FIRST else (given, literals)
            function, arguments = spec.key, [*first, *then, *more]
        return wrapped(f"{function}(", arguments, ")", before=column)

    def argument(self, step: Step, port: Port) -> str:
        variables = self._variables_at(step, port)
        if step.spec.key in ops.LITERALS_FIRST:
            return ", ".join(variables) or "..."
        if port.variadic:
            return f"[{', '.join(variables)}]"
        return variables[0] if variables else "..."

    def _variables_at(self, step: Step, port: Port) -> list[str]:
        return [self.variables.get(ref, "...") for ref in step.args.get(port.name, ())]


def wrapped(head: str, items: list[str], tail: str, before: int | None = None) -> str:
    """`head`, items and `tail` on one line, else the items on a line of their own, else each on one.

    `before` counts what stands before the head on a line of `forward`, whose margin is 8.

    >>> wrapped("f(", ["a", "b"], ")")
    'f(a, b)'
    >>> print(wrapped("    fc = Linear(", ["a" * 84, "b"], ")").replace("a" * 84, "aa"))
        fc = Linear(
            aa, b
        )
    """
    line = f"{head}{', '.join(items)}{tail}"
    if not items or ("\n" not in line and len(line) + (before or 0) <= WIDTH):
        return line
    margin = " " * (len(head) - len(head.lstrip()) if before is None else 8)
    together = f"{margin}    {', '.join(items)}"
    if "\n" not in together and len(together) <= WIDTH:
        return f"{head}\n{together}\n{margin}{tail}"
    return f"{head}\n" + "".join(f"{margin}    {item},\n" for item in items) + f"{margin}{tail}"


def _literal(param: str, value: Any) -> str:
    if param in _NUMBER_FOR_ONE and isinstance(value, tuple) and len(value) == 1:
        return to_code(value[0])
    if type(value) is str and _PLAIN_TEXT.fullmatch(value):
        return f'"{value}"'
    return to_code(value)


def _given(step: Step, taken: list[str]) -> list[str]:
    """Wired arguments: required ones by position, and so a single optional one behind them; others by name."""
    optional = [port for port in step.spec.inputs if not port.required]
    given = []
    for port, text in zip(step.spec.inputs, taken, strict=True):
        if port.named:
            given.append(f"{port.name}={text}")
        elif port.required or (len(optional) == 1 and port.name in step.args):
            given.append(text)
        elif port.name in step.args:
            given.append(f"{port.name}={text}")
    return given
