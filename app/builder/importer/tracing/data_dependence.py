"""Data dependence: values that Python reads while a model is traced, as a number, a bool or a length.

The example's value is used, and Python code that depends on it is specialised. If another batch would give another net,
that is an error, otherwise a remark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import fx
from torch.utils._pytree import tree_flatten

from app.builder.importer.remarks import Report
from app.builder.importer.state.batch_dependence import OtherBatch
from app.builder.importer.tracing import grad_regions, source_lines
from app.builder.importer.tracing.frames import DEPENDS, DataDependentError

if TYPE_CHECKING:
    from app.builder.importer.tracing.tracing import Tracer


class Questions:
    """Answers such reads for one trace; remarks go to `report`."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer, self.report = tracer, Report()
        self._other = OtherBatch(
            tracer.values, tracer.gradients.outside, tracer.entered, tracer.silently
        )

    def truth(self, node: fx.Node) -> bool:
        """Return bool() of a traced value. Raises TraceError if the example does not determine it."""
        value = self._tracer.values[node]
        if node.target is getattr and node.args[1] == "requires_grad":
            return self._learns(node.args[0])  # type: ignore[arg-type]
        return bool(
            self.number(node, value if isinstance(value, torch.Tensor) else bool(value))
        )

    def _learns(self, node: fx.Node) -> bool:
        if node.op != "get_attr":
            words = (
                f"A branch depends on requires_grad of a value ({source_lines.here()})"
            )
            self._tracer.doubt(
                grad_regions.GRAD_MODE,
                f"{words}: the network takes the training branch.",
            )
        return bool(self._tracer.gradients.learns(node, self._tracer.root))

    def number(self, node: fx.Node, value: Any) -> Any:
        """Return a value that Python reads, which specialises the trace to it. Raises TraceError if that is wrong for
        other batches."""
        tracer = self._tracer
        if isinstance(value, torch.Tensor):
            raise DataDependentError(
                f"{tracer.where()} {DEPENDS} (a branch depends on a tensor)"
            )
        place = source_lines.direct_reader()
        if place is None:
            return value  # read inside a torch function, as part of that call
        if not tracer.unseen(lambda: self._other.differs(node)):
            if self._of_sizes(node):
                self.report.number(place, value)
            return value
        words = f"Code that depends on the number of samples ({place}) is fixed for {self._batch()} of them."
        tracer.doubt("what it does depends on the number of samples", words)
        return value

    def _of_sizes(self, node: fx.Node) -> bool:
        """Return whether a number depends on sizes, and not only on rank, device or dtype."""
        todo, seen = [node], set[fx.Node]()
        while todo:
            one = todo.pop()
            if one in seen:
                continue
            seen.add(one)
            if one.op == "placeholder" and one in self._tracer.gradients.outside:
                todo.append(self._tracer.gradients.outside[one])
            elif isinstance(
                self._tracer.values[one], torch.Tensor | torch.Size
            ) or one.target in ("size", "numel"):
                return True
            elif one.target != "dim" and not (
                one.target is getattr and one.args[1] in ("ndim", "device", "dtype")
            ):
                todo += one.all_input_nodes
        return False

    def _batch(self) -> int:
        given = tree_flatten(self._tracer.arrived[""])[0]
        return next(
            (
                one.shape[0]
                for one in given
                if isinstance(one, torch.Tensor) and one.dim()
            ),
            0,
        )
