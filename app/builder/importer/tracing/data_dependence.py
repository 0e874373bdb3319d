"""Data dependence: values that Python reads while a model is traced, as a number, a bool or a length.

The example's value is used, Python code that depends on it is specialised, and a remark says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from app.builder.importer.remarks import Report
from app.builder.importer.tracing import source_lines
from app.builder.importer.tracing.frames import DEPENDS, DataDependentError

if TYPE_CHECKING:
    from app.builder.importer.tracing.tracing import Tracer


class Questions:
    """Answers such reads for one trace; remarks go to `report`."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer, self.report = tracer, Report()

    def truth(self, node: fx.Node) -> bool:
        """Return bool() of a traced value. Raises TraceError if the example does not determine it."""
        value = self._tracer.values[node]
        if node.target is getattr and node.args[1] == "requires_grad":
            return bool(
                self._tracer.gradients.learns(node.args[0], self._tracer.root)  # type: ignore[arg-type]
            )
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
