"""A graph with its shapes, and the means to re-infer a modified one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from app.builder.blocks import Block
from app.builder.catalog.catalog import Catalog
from app.builder.expressions import expressions
from app.builder.graph import Graph
from app.builder.plan import Plan, plan
from app.builder.results import Inside, Ran, StepResult
from app.builder.shapes.shapes import computed_plan, infer
from app.builder.value_types import ValueType


class InferredGraph(Struct, frozen=True):
    """A graph and its inferred results. `given` are a block's inputs, `values` its parameters; both are None for the
    network. Calls of nodes in `quiet` are known to have no problems."""

    graph: Graph
    walk: Plan
    results: Mapping[str, StepResult]
    ops: Catalog
    given: Mapping[str, ValueType] | None = None
    values: Mapping[str, Any] | None = None
    quiet: frozenset[str] = frozenset()

    @classmethod
    def network(
        cls, graph: Graph, ops: Catalog, earlier: InferredGraph | None = None
    ) -> InferredGraph:
        """Infer a network; results unchanged since `earlier`, a previous version, are reused."""
        walk = plan(graph, ops, (earlier.graph, earlier.walk) if earlier else None)
        old_steps = (
            {step.node.id: step for step in earlier.walk.steps} if earlier else {}
        )
        new = [step for step in walk.steps if old_steps.get(step.node.id) is not step]
        if any(any(map(_computes, step.node.params.values())) for step in new):
            walk = computed_plan(walk, {})
        if earlier is None:
            return cls(graph, walk, infer(walk), ops)
        results = infer(walk, None, (earlier.walk, earlier.results))
        loud = {step.node.id for step in new}
        loud |= {
            node
            for node, result in results.items()
            if earlier.results.get(node) is not result
        }
        return cls(
            graph, walk, results, ops, quiet=earlier.quiet.intersection(results) - loud
        )

    @classmethod
    def block(cls, block: Block, inside: Inside, ops: Catalog) -> InferredGraph:
        outcomes = (
            (node.id, inside.results[node.id].outcome)
            for node in block.inputs
            if node.id in inside.results
        )
        input_types = {
            node: outcome.outputs[0]
            for node, outcome in outcomes
            if isinstance(outcome, Ran)
        }
        return cls(
            block.graph, inside.plan, inside.results, ops, input_types, inside.values
        )

    def again(self, graph: Graph) -> tuple[Plan, Mapping[str, StepResult]]:
        """Another graph in the place of this one."""
        walk = plan(graph, self.ops)
        if self.values is not None:
            walk = computed_plan(walk, self.values)
        return walk, infer(walk, self.given)

    def runs(self, graph: Graph) -> bool:
        """Return whether every call that an output needs runs."""
        walk, results = self.again(graph)
        calls = [step for step in walk.steps if step.live and step.node.op != "output"]
        return all(isinstance(results[step.id].outcome, Ran) for step in calls)


def _computes(value: Any) -> bool:
    return any(expressions(value))
