"""Data dependence: values that Python reads while a model is traced, as a number, a bool or a length.

The example's value is used, and Python code that depends on it is specialised. If another batch would give another net,
that is an error, otherwise a remark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import fx
from torch.utils._pytree import tree_flatten

from app.builder.importer.remarks import Report
from app.builder.importer.tracing import grad_regions, source_lines
from app.builder.importer.tracing.frames import DEPENDS, DataDependentError, Frame

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
            remark = (
                f"A branch depends on requires_grad of a value ({source_lines.here()})"
            )
            self._tracer.doubt(
                grad_regions.GRAD_MODE,
                f"{remark}: the network takes the training branch.",
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
        location = source_lines.direct_reader()
        if location is None:
            return value  # read inside a torch function, as part of that call
        if not tracer.unseen(lambda: self._other.differs(node)):
            if self._of_sizes(node):
                self.report.number(location, value)
            return value
        remark = f"Code that depends on the number of samples ({location}) is fixed for {self._batch()} of them."
        tracer.doubt("what it does depends on the number of samples", remark)
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

    def _batch(self) -> int:
        leaves = tree_flatten(self._tracer.arrived[""])[0]
        return next(
            (
                leaf.shape[0]
                for leaf in leaves
                if isinstance(leaf, torch.Tensor) and leaf.dim()
            ),
            0,
        )


# --- Another batch


Compute = Callable[[str, Any, Any, Any], Any]
_UNKNOWN = object()


class OtherBatch:
    """Values of a trace for a batch of one more. `outside` maps a module's inputs to their sources, `frames` calls of
    entered modules to their frames."""

    def __init__(
        self,
        values: Mapping[fx.Node, Any],
        outside: Mapping[fx.Node, fx.Node],
        frames: Mapping[fx.Node, Frame],
        compute: Compute,
    ) -> None:
        self._values, self._outside, self._frames, self._compute = (
            values,
            outside,
            frames,
            compute,
        )
        self._found: dict[fx.Node, Any] = {}
        self._batch = 0

    def differs(self, node: fx.Node) -> bool:
        """Return whether a number differs there; False if it cannot be computed."""
        other = self._value(node)
        return other is not _UNKNOWN and other != self._values[node]

    def _value(self, node: fx.Node) -> Any:
        todo = [node]
        while todo:
            last = todo[-1]
            left = [
                source for source in self._sources(last) if source not in self._found
            ]
            if left and last not in self._found:
                todo += left
                continue
            if last not in self._found:
                self._found[last] = self._evaluate(last)
            todo.pop()
        return self._found[node]

    def _sources(self, node: fx.Node) -> list[fx.Node]:
        if node.op == "placeholder":
            return [self._outside[node]] if node in self._outside else []
        if node in self._frames:
            return [
                leaf for leaf in self._frames[node].outputs if isinstance(leaf, fx.Node)
            ]
        return node.all_input_nodes

    def _evaluate(self, node: fx.Node) -> Any:
        example = self._values.get(node, _UNKNOWN)
        if node.op == "placeholder":
            return (
                self._found[self._outside[node]]
                if node in self._outside
                else self._larger(example)
            )
        if node.op == "get_attr":
            return example
        if node in self._frames:
            leaves = self._frames[node].outputs
            return tuple(
                self._found[leaf] if isinstance(leaf, fx.Node) else leaf
                for leaf in leaves
            )
        if any(
            self._found[input_node] is _UNKNOWN for input_node in node.all_input_nodes
        ):
            return _UNKNOWN
        try:
            args, kwargs = fx.map_arg(
                (node.args, node.kwargs), lambda argument: self._found[argument]
            )
            return self._compute(node.op, node.target, args, kwargs)
        except (
            Exception
        ):  # valid only for the given batch; fails at run time with its own message
            return _UNKNOWN

    def _larger(self, example: Any) -> Any:
        if not isinstance(example, torch.Tensor) or not example.dim():
            return example
        self._batch = self._batch or example.shape[0]
        return (
            example.new_empty((example.shape[0] + 1, *example.shape[1:]))
            if example.shape[0] == self._batch
            else example
        )
