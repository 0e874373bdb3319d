"""Batch dependence: recompute numbers of a trace for a batch with one more sample."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import fx

from app.builder.importer.tracing.frames import Frame

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
            left = [one for one in self._sources(last) if one not in self._found]
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
        known = self._values.get(node, _UNKNOWN)
        if node.op == "placeholder":
            return (
                self._found[self._outside[node]]
                if node in self._outside
                else self._larger(known)
            )
        if node.op == "get_attr":
            return known
        if node in self._frames:
            leaves = self._frames[node].outputs
            return tuple(
                self._found[leaf] if isinstance(leaf, fx.Node) else leaf
                for leaf in leaves
            )
        if any(self._found[one] is _UNKNOWN for one in node.all_input_nodes):
            return _UNKNOWN
        try:
            args, kwargs = fx.map_arg(
                (node.args, node.kwargs), lambda one: self._found[one]
            )
            return self._compute(node.op, node.target, args, kwargs)
        except (
            Exception
        ):  # valid only for the given batch; fails at run time with its own message
            return _UNKNOWN

    def _larger(self, known: Any) -> Any:
        if not isinstance(known, torch.Tensor) or not known.dim():
            return known
        self._batch = self._batch or known.shape[0]
        return (
            known.new_empty((known.shape[0] + 1, *known.shape[1:]))
            if known.shape[0] == self._batch
            else known
        )
