"""Values that Python reads while a model is traced, and the remarks on what of the example the drawing fixes."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import fx, nn

from app.features.importing.compute.tracing import source_lines
from app.features.importing.compute.tracing.frames import DEPENDS, DataDependentError
from app.features.importing.compute.tracing.source_lines import SourceLine
from app.util.formatting import plural

if TYPE_CHECKING:
    from app.features.importing.compute.tracing.tracing import Tracer


_MOST = 4  # lines of one function that are named


class Report:
    """Remarks of one import, each once, in the order in which they came up."""

    def __init__(self) -> None:
        self._loops: dict[SourceLine, int] = {}
        self._sizes: dict[tuple[str, str], list[int]] = {}
        self._others: dict[str, None] = {}

    def add(self, remark: str) -> None:
        self._others.setdefault(remark)

    def number(self, location: SourceLine | None, value: int | float | bool) -> None:
        """Record that Python used a number derived from sizes, which the drawing fixes."""
        if location is None or (isinstance(value, bool) and is_check(location)):
            return
        if loops_at(location):
            count = self._loops.get(location, 0)
            self._loops[location] = (
                count + value if isinstance(value, bool) else max(count, int(value))
            )
        else:
            lines = self._sizes.setdefault((location.file, location.function), [])
            if location.line not in lines:
                lines.append(location.line)

    def sentences(self, example_shapes: str) -> tuple[str, ...]:
        """List all remarks, one sentence each; `example_shapes` are the shapes of the example."""
        loops = (
            f"Loop over {count} steps ({location}) was unrolled: the network always takes {count} steps."
            for location, count in self._loops.items()
            if count > 1
        )
        return (*loops, *self._size_sentences(example_shapes), *self._others)

    def _size_sentences(self, example_shapes: str) -> Iterator[str]:
        for (file, function), lines in self._sizes.items():
            named = ", ".join(map(str, sorted(lines)[:_MOST])) + (
                " and more" if len(lines) > _MOST else ""
            )
            where = (
                f"{function}, {plural(len(lines), 'line')} {named} of {Path(file).name}"
            )
            yield (
                f"A decision on sizes ({where}) was fixed as for {example_shapes}: "
                "other sizes may take another branch."
            )


def of_arguments(
    model: nn.Module, args: Collection[Any], kwargs: Collection[str]
) -> Iterator[str]:
    """Yield a remark if `forward` has optional arguments that were not passed."""
    try:
        parameters = list(inspect.signature(model.forward).parameters.values())
    except (TypeError, ValueError):
        return
    left = [
        parameter
        for number, parameter in enumerate(parameters)
        if parameter.default is not parameter.empty
        and parameter.name not in kwargs
        and (number >= len(args) or parameter.kind is parameter.KEYWORD_ONLY)
    ]
    if left:
        names = ", ".join(f"{omitted.name}={omitted.default!r:.30}" for omitted in left)
        yield f"{type(model).__name__}.forward was traced with {names}: the network has no such inputs."


def of_results(
    model: nn.Module, outputs: Collection[Any], changed: Collection[str]
) -> Iterator[str]:
    """Yield remarks on results and in-place changes that no output of a drawing represents."""
    plain = [repr(leaf)[:30] for leaf in outputs if not isinstance(leaf, fx.Node)]
    if plain and len(plain) < len(outputs):
        values = ", ".join(plain)
        name = type(model).__name__
        yield f"{name}.forward gives {values} besides its tensors: the network returns only the tensors."
    if changed:
        names = " and ".join(changed)
        yield f"{type(model).__name__}.forward changes {names} in place: the network does not change its inputs."


@cache
def _tree(file: str) -> ast.Module | None:
    try:
        return ast.parse(Path(file).read_text("utf-8"))
    except (OSError, SyntaxError, ValueError):
        return None


def _syntax_at(location: SourceLine) -> Iterator[ast.AST]:
    """Yield the syntax nodes on a line."""
    tree = _tree(location.file)
    for node in ast.walk(tree) if tree is not None else ():
        if (
            getattr(node, "lineno", location.line + 1)
            <= location.line
            <= (getattr(node, "end_lineno", None) or 0)
        ):
            yield node


def _within(node: ast.expr, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


@cache
def loops_at(location: SourceLine) -> bool:
    """Return whether a line determines how often a loop runs."""
    for node in _syntax_at(location):
        if isinstance(node, ast.For) and _within(node.iter, location.line):
            return True
        if isinstance(node, ast.While) and _within(node.test, location.line):
            return True
        if isinstance(
            node, ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp
        ) and any(
            _within(generator.iter, location.line) for generator in node.generators
        ):
            return True
    return False


@cache
def is_check(location: SourceLine) -> bool:
    """Return whether a branch on a line only decides about raising an error."""
    for node in _syntax_at(location):
        if isinstance(node, ast.Assert) and _within(node.test, location.line):
            return True
        if isinstance(node, ast.If) and _within(node.test, location.line):
            return not node.orelse and all(map(_only_reports, node.body))
    return False


def _only_reports(node: ast.stmt) -> bool:
    """Return whether a statement only raises, warns, logs or prints."""
    if isinstance(node, ast.Raise):
        return True
    called = (
        node.value.func
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
        else None
    )
    return getattr(called, "attr", getattr(called, "id", "")) in (
        "warn",
        "warning",
        "print",
        "info",
        "debug",
    )


class Questions:
    """Answers such reads for one trace; remarks go to `report`."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer, self.report = tracer, Report()

    def truth(self, node: fx.Node) -> bool:
        """Return bool() of a traced value. Raises TraceError if the example does not determine it."""
        value = self._tracer.values[node]
        if node.target is getattr and node.args[1] == "requires_grad":
            learning = self._tracer.gradients
            return learning.learns(node.args[0], self._tracer.root)  # type: ignore[arg-type]
        return bool(
            self.number(node, value if isinstance(value, torch.Tensor) else bool(value))
        )

    def number(self, node: fx.Node, value: Any) -> Any:
        """Return a value that Python reads, which specialises the trace to it. Raises TraceError for a tensor."""
        tracer = self._tracer
        if isinstance(value, torch.Tensor):
            raise DataDependentError(
                f"{tracer.where()} {DEPENDS} (a branch depends on a tensor)"
            )
        location = source_lines.direct_reader()
        if location is None:
            return value  # read inside a torch function, as part of that call
        if self._of_sizes(node):
            self.report.number(location, value)
        return value

    def _of_sizes(self, node: fx.Node) -> bool:
        """Return whether a number depends on sizes, and not only on rank, device or dtype."""
        todo, visited = [node], set[fx.Node]()
        while todo:
            current = todo.pop()
            if current in visited:
                continue
            visited.add(current)
            if (
                current.op == "placeholder"
                and current in self._tracer.gradients.outside
            ):
                todo.append(self._tracer.gradients.outside[current])
            elif isinstance(
                self._tracer.values[current], torch.Tensor | torch.Size
            ) or current.target in ("size", "numel"):
                return True
            elif current.target != "dim" and not (
                current.target is getattr
                and current.args[1] in ("ndim", "device", "dtype")
            ):
                todo += current.all_input_nodes
        return False
