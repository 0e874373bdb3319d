"""Source of a call: its arguments in the order and form that one would write by hand."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from app.builder.catalog import custom, ops
from app.builder.catalog.catalog import Param, Port
from app.builder.codegen import free_tensors
from app.builder.literals import AUTO, index_code, to_code
from app.builder.params import with_parts
from app.builder.plan import Ref, Step
from app.builder.results import StepResult

WIDTH = 100
_SIGNS = {
    "operator.add": "+",
    "operator.sub": "-",
    "operator.mul": "*",
    "operator.truediv": "/",
    "operator.floordiv": "//",
    "operator.mod": "%",
    "operator.pow": "**",
}
_TREES: dict[str, ast.operator] = {
    "operator.add": ast.Add(),
    "operator.sub": ast.Sub(),
    "operator.mul": ast.Mult(),
    "operator.truediv": ast.Div(),
    "operator.floordiv": ast.FloorDiv(),
    "operator.mod": ast.Mod(),
    "operator.pow": ast.Pow(),
}
_POWER = re.compile(
    r"(?<![\w.)\]])([\w.]+) \*\* (-?[\w.]+)(?![\w.(\[])"
)  # of names and numbers, it takes no blanks
# Shapes written as an int if they have one dimension.
_NUMBER_FOR_ONE = {"normalized_shape", "dim"}
_BY_NAME = re.compile(r"\w+=")
_PLAIN_TEXT = re.compile(r"[\w,.>-]+")


class CallWriter(Struct, frozen=True):
    """Writes calls of one class. `variables` names every value, `modules` is the expression for every module.

    `texts` has the parameters that are no literals, by node, repetition and name: arguments of the class and
    expressions over them.
    """

    results: Mapping[str, StepResult]
    variables: Mapping[Ref, str]
    modules: Mapping[str, str]
    texts: Mapping[tuple[str, int, str], str] = {}
    imported: Mapping[str, str] = {}  # what classes of files are called, by op

    def constructor(self, step: Step) -> str:
        """Return the callable that constructs a step's module, parameter or buffer."""
        key = step.spec.key
        return {"parameter": "nn.Parameter", "buffer": "nn.Buffer"}.get(
            step.spec.kind, self.imported.get(key, key)
        )

    def arguments(self, step: Step, call: bool, number: int = 0) -> list[str]:
        """Return literals: required ones by position, the rest by name where they differ from the default.

        `number` is the repetition of a repeated node. Wired values replace literals.
        """
        if step.spec.kind in ("parameter", "buffer"):
            return [] if call else self._free_tensor(step)
        written = []
        for param in step.spec.params:
            if param.call != call or param.name in step.spec.input_names:
                continue
            text = self._param_text(step, param, number)
            if text is not None:
                written.append(text if param.positional else f"{param.name}={text}")
        return written

    def _param_text(self, step: Step, param: Param, number: int = 0) -> str | None:
        """Return a parameter as source, None if it is the default."""
        result = self.results[step.id]
        resolved = (
            result.turns[min(number, len(result.turns) - 1)].resolved
            if result.turns
            else result.resolved
        )
        wires = self._wires(step, param.name)
        if param.name in wires:
            return wires[param.name]
        value = resolved.get(param.name, AUTO if param.auto else param.default)
        if (step.id, number, param.name) in self.texts:
            text = self.texts[step.id, number, param.name]
        elif param.required and param.name not in resolved:
            return "..."
        elif wires or param.required or param.auto or _differs(value, param):
            short = not wires and (
                step.spec.kind == "module" or param.name != "normalized_shape"
            )
            plain = _literal(param.name, value) if short else to_code(value)
            text = index_code(value) if param.kind == "index" else plain
        else:
            return None
        return with_parts(param, text, wires) if wires else text

    def literal(self, step: Step) -> str:
        """Return the typed number of a step as source."""
        return free_tensors.in_brackets(
            self._param_text(step, step.spec.params[0]) or "..."
        )

    def _wires(self, step: Step, param: str) -> dict[str, str]:
        """Return the variables wired to a parameter or its parts, by name of the port."""
        ports = [
            port
            for port in step.spec.inputs
            if port.wired and port.param == param and port.name in step.args
        ]
        return {port.name: self._variables_at(step, port)[0] for port in ports}

    def _free_tensor(self, step: Step) -> list[str]:
        """Return the arguments of `nn.Parameter` or `nn.Buffer`."""
        resolved = self.results[step.id].resolved
        texts = {
            name: text
            for (node, number, name), text in self.texts.items()
            if node == step.id and number == 0
        }
        flags = [
            p.name
            for p in step.spec.params
            if p.kind == "bool" and resolved.get(p.name, p.default) != p.default
        ]
        value = free_tensors.expression(step.spec.key, resolved, texts)
        return [value, *(f"{name}={resolved[name]}" for name in flags)]

    def call(self, step: Step, column: int) -> str:
        """Return the source of the call, wrapped to start at `column`."""
        spec = step.spec
        ports = [port for port in spec.inputs if not port.wired]
        arguments = [self.argument(step, port) for port in ports]
        if spec.kind == "operator":
            return self._operator(step, arguments, column)
        text = self._function_call(step, arguments, column)
        if any(len(line) + column > WIDTH for line in text.split("\n")):
            inner = " " * 12
            lists = [
                wrapped(f"{inner}[", self._variables_at(step, port), "]")[12:]
                for port in ports
            ]
            arguments = [
                lists[i] if port.variadic else arguments[i]
                for i, port in enumerate(ports)
            ]
            text = self._function_call(step, arguments, column)
        return text

    def _operator(self, step: Step, operands: list[str], column: int) -> str:
        """Return the source of an operator or of attribute access."""
        key = step.spec.key
        if key in _SIGNS:
            return _formula(operands[0], key, operands[1])
        if key == "operator.neg":
            return f"-{free_tensors.in_brackets(operands[0])}"
        if key == "operator.getitem":
            index = self._param_text(step, step.spec.params[0])
            return f"{operands[0]}[{index}]"
        if key == "torch.finfo":
            fact = self._param_text(step, step.spec.params[0]) or "..."
            return f"torch.finfo({operands[0]}.dtype).{ast.literal_eval(fact) if fact != '...' else fact}"
        if key == "Tensor.shape":
            return f"{operands[0]}.shape"
        if key == "tuple":
            items = self._variables_at(step, step.spec.inputs[0]) or ["..."]
            return wrapped("(", items, ",)" if len(items) == 1 else ")", before=column)
        if key == "operator.setitem":
            return f"{operands[0]}.clone()"
        return operands[0]  # the assignment's target unpacks a tuple

    def filled(self, step: Step, target: str) -> str:
        """Return the line that assigns values at an index of the clone that the call made."""
        index, value = (
            self._param_text(step, step.spec.params[0]),
            self.argument(step, step.spec.inputs[1]),
        )
        return f"{target}[{index}] = {value}"

    def _function_call(self, step: Step, texts: list[str], column: int) -> str:
        spec = step.spec
        if custom.is_function(spec):
            return wrapped(
                f"{self.imported.get(spec.key, spec.label)}.apply(",
                self._row(step),
                ")",
                before=column,
            )
        wired = _wired_arguments(step, texts)
        literals = [] if spec.kind == "block" else self._literals(step)
        if spec.kind == "method":
            function, arguments = f"{wired[0]}.{spec.label}", [*wired[1:], *literals]
        elif spec.kind in ("module", "block"):
            function, arguments = self.modules[step.id], [*wired, *literals]
        else:
            more = self._more(step, literals)
            when = f"{ops.IN_TRAINING.get(spec.key)}="
            literals = [
                f"{literal} if self.training else 0.0"
                if literal.startswith(when)
                else literal
                for literal in literals
            ]
            behind = spec.key in ops.LITERALS_FIRST or spec.key in ops.LIKE
            first, then = (literals, wired) if behind else (wired, literals)
            # Keyword arguments follow positional ones: the weight of F.layer_norm.
            function, arguments = (
                spec.key,
                sorted(
                    [*first, *then, *more], key=lambda text: bool(_BY_NAME.match(text))
                ),
            )
        return wrapped(f"{function}(", arguments, ")", before=column)

    @staticmethod
    def _more(step: Step, literals: list[str]) -> list[str]:
        """Return implied arguments: the mode of the net, and None for absent statistics."""
        key = step.spec.key
        explicit = any(text.startswith("training=") for text in literals)
        more = [ops.WRITTEN[key]] if key in ops.WRITTEN and not explicit else []
        missing = [
            name for name in ("running_mean", "running_var") if name not in step.args
        ]
        if (
            key == "F.batch_norm" and missing
        ):  # without statistics, those of the batch apply in any mode
            return [
                *(f"{name}=None" for name in missing),
                *([] if explicit else ["training=True"]),
            ]
        return more

    def counted(self, step: Step) -> str:
        """Return the lines that increment num_batches_tracked in training, "" without that buffer."""
        port = next(
            (
                port
                for port in step.spec.inputs
                if port.name == ops.COUNTED and port.name in step.args
            ),
            None,
        )
        if port is None:
            return ""
        return f"        if self.training:\n            {self.argument(step, port)}.add_(1)\n"

    def _row(self, step: Step) -> list[str]:
        """List the arguments of `Function.apply`, all positional."""
        layer = custom.class_of(step.spec)
        assert layer is not None
        arguments = {
            param.name: text
            for param in layer.params
            if (text := self._param_text(step, param)) is not None
        }
        ports = (
            port for port in layer.inputs if port.required or port.name in step.args
        )
        arguments |= {port.name: self.argument(step, port) for port in ports}
        return custom.row(
            layer, arguments, lambda param: _literal(param.name, param.default), "None"
        )

    def _literals(self, step: Step) -> list[str]:
        """List the literals of a call, with sizes spread as arguments where that is usual."""
        literals = self.arguments(step, call=step.spec.kind == "module")
        if step.spec.key == "torch.arange":
            return self._range(step)
        param = step.spec.param(ops.SPREAD_SIZES.get(step.spec.key, ""))
        text = self._param_text(step, param) if param else None
        if param is None or text is None:
            return literals
        sizes = _items(text)
        if sizes is None:  # a variable
            return [text, *literals[1:]]
        return [*sizes, *literals[1:]] if sizes else ["()", *literals[1:]]

    def _range(self, step: Step) -> list[str]:
        """List the arguments of `arange`: the start, if any, before the end."""
        texts = {
            param.name: self._param_text(step, param) for param in step.spec.params
        }
        first = [texts["start"] or "0"] if texts["start"] or texts["step"] else []
        more = [f"dtype={texts['dtype']}"] if texts["dtype"] else []
        return [
            *first,
            texts["end"] or "...",
            *([texts["step"]] if texts["step"] else []),
            *more,
        ]

    def argument(self, step: Step, port: Port) -> str:
        """Return the argument for a port: variables, or the literal in their place."""
        variables = self._variables_at(step, port)
        param = step.spec.operand(port.name)
        if not variables and param is not None and not port.required:
            return free_tensors.in_brackets(self._param_text(step, param) or "...")
        if step.spec.key in ops.LITERALS_FIRST:
            return ", ".join(variables) or "..."
        if port.variadic:
            return f"[{', '.join(variables)}]"
        text = variables[0] if variables else "..."
        return (
            f"{text}.device"
            if step.spec.key in ops.LIKE and port.name == "like"
            else text
        )

    def _variables_at(self, step: Step, port: Port) -> list[str]:
        return [self.variables.get(ref, "...") for ref in step.args.get(port.name, ())]


def _formula(left: str, key: str, right: str) -> str:
    """Join two operands with a sign, in brackets where precedence needs them.

    >>> _formula("7 - n % 7", "operator.mod", "7"), _formula("n", "operator.pow", "-0.5")
    ('(7 - n % 7) % 7', 'n**-0.5')
    """
    if key == "operator.pow" and left.startswith("-"):
        left = f"({left})"
    text = f"{left} {_SIGNS[key]} {right}"
    if " " in left or " " in right:
        trees = [ast.parse(operand, mode="eval").body for operand in (left, right)]
        if any(isinstance(tree, ast.BinOp) for tree in trees):
            text = ast.unparse(ast.BinOp(trees[0], _TREES[key], trees[1]))
    return _POWER.sub(r"\1**\2", text)


def wrapped(head: str, items: list[str], tail: str, before: int | None = None) -> str:
    """Lay out `head`, items and `tail` on one line, else the items on a separate line, else one per line.

    `before` is the width of the text before the head on a line of `forward`, whose margin is 8.

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
    return (
        f"{head}\n"
        + "".join(f"{margin}    {item},\n" for item in items)
        + f"{margin}{tail}"
    )


def _literal(param: str, value: Any) -> str:
    if param in _NUMBER_FOR_ONE and isinstance(value, tuple) and len(value) == 1:
        return to_code(value[0])
    if type(value) is str and _PLAIN_TEXT.fullmatch(value):
        return f'"{value}"'
    return to_code(value)


def _differs(value: Any, param: Param) -> bool:
    """Return whether a value differs from the default, type included: 1 is not True."""
    if param.positional and param.name == "p":  # dropout rates are always explicit
        return True
    return bool(
        value != param.default
        or (param.kind == "number" and type(value) is not type(param.default))
    )


def _items(text: str) -> list[str] | None:
    """Return the items of a tuple as source, None for anything else."""
    tree = ast.parse(text, mode="eval").body
    return (
        [ast.unparse(item) for item in tree.elts]
        if isinstance(tree, ast.Tuple)
        else None
    )


def _wired_arguments(step: Step, texts: list[str]) -> list[str]:
    """List the wired arguments: required ones and a single optional one by position, others by name."""
    ports = [port for port in step.spec.inputs if not port.wired]
    optional = [port for port in ports if not port.required]
    arguments = []
    for port, text in zip(ports, texts, strict=True):
        if port.name == ops.COUNTED:
            continue
        if step.spec.key in ops.LIKE:
            arguments.append(f"device={text}")
        elif port.named and not (port.required or port.name in step.args):
            continue
        elif port.named:
            arguments.append(f"{port.name}={text}")
        elif (
            port.required
            or step.spec.operand(port.name)
            or (len(optional) == 1 and port.name in step.args)
        ):
            arguments.append(text)
        elif port.name in step.args:
            arguments.append(f"{port.name}={text}")
    return arguments
