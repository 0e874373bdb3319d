"""Values of an analysis: the result of each call on meta tensors, and shapes, source and problems of a graph."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from msgspec import Struct

from app.builder.diagnostics.problems import Problem
from app.builder.graph import Graph, Node
from app.builder.plan import Plan
from app.builder.shapes.network_cost import NetworkCost
from app.builder.value_types import TensorType, ValueType
from app.source.generated import Path, Source
from app.util.frozen import FrozenMap, Shared, equal_in


class CallFailed(Struct, frozen=True):
    """The call fails: torch's message on meta tensors and, if small enough to try, on real ones.

    `dtype` is True if the shapes fit and only the dtypes do not.
    """

    error: str
    real_error: str = ""
    dtype: bool = False


class Ran(Shared, frozen=True):
    """The call runs: types of its outputs and how many parameters its module has.

    `fixed_batch` is the only batch size that it runs with, 0 where it runs with any.
    """

    outputs: tuple[ValueType, ...]
    parameters: int = 0
    fixed_batch: int = 0


Inputs = FrozenMap[str, tuple[ValueType, ...]]


class Inside(Shared, frozen=True):
    """Shapes inside one instance of a block, given its inputs. Expressions in the steps are evaluated.

    `values` are the parameters of the block at that instance.
    """

    plan: Plan
    results: Mapping[str, StepResult]
    values: FrozenMap[str, Any] = FrozenMap()


class Turn(Shared, frozen=True):
    """One repetition of a repeated node, or the single instance of a block."""

    outcome: Ran | CallFailed | None
    resolved: FrozenMap[str, Any]
    inputs: Inputs
    inside: Inside | None = None


class StepResult(Shared, frozen=True):
    """Result of one call; `outcome` is None if something upstream is missing or failed.

    `turns` has one entry per repetition of a block or repeated node; `resolved` and `inputs` are those of the first.
    The parameters of a shared module are counted at its first call.
    """

    outcome: Ran | CallFailed | None
    resolved: FrozenMap[str, Any]
    inputs: Inputs
    turns: tuple[Turn, ...] = ()


HOW = (
    "walk",
    "results",
    "quiet",
    "cost",
)  # fields of Analysis: how its values were computed


class Analysis(Shared, frozen=True, dict=True):
    """`values` maps each known output to its type, `resolved` the parameters with AUTO filled in.

    `parameters` counts the values of each node's module. `assumed` are nodes of unknown type, because an upstream one
    is missing or failed. `milliseconds` is the time taken. A `partial` analysis lacks the source and the checks of a
    sound net. `inside` is the analysis of the open block, at `path`. `cost` is that of a small net, if it was measured.
    """

    graph: Graph
    source: Source
    values: FrozenMap[tuple[str, int], ValueType] = FrozenMap()
    resolved: FrozenMap[str, FrozenMap[str, Any]] = FrozenMap()
    problems: tuple[Problem, ...] = ()
    parameters: FrozenMap[str, int] = FrozenMap()
    live: frozenset[str] = frozenset()
    assumed: frozenset[str] = frozenset()
    milliseconds: float = 0.0
    partial: bool = False
    path: Path = ()
    inside: Analysis | None = None
    walk: Plan | None = None
    results: Mapping[str, StepResult] = {}
    quiet: frozenset[str] = frozenset()
    cost: NetworkCost | None = None

    def __eq__(self, other: object) -> bool:
        """Compare what is known of the net, not how it came to be known."""
        return equal_in(
            (name for name in self.__struct_fields__ if name not in HOW), self, other
        )

    def __hash__(self) -> int:
        return hash((self.graph, self.path))

    @property
    def sheet(self) -> Analysis:
        return self.inside or self

    @property
    def errors(self) -> tuple[Problem, ...]:
        return tuple(
            problem for problem in self.problems if problem.severity == "error"
        )

    @property
    def runnable(self) -> bool:
        """True if no error prevents running the source."""
        return not self.errors and not self.partial

    @property
    def total_parameters(self) -> int:
        """Parameters of all nodes that are part of the network."""
        return sum(
            count for node, count in self.parameters.items() if node in self.live
        )

    @cached_property
    def frozen_parameters(self) -> int:
        """Those of them that do not train; of an opened model they are not known, and counted as trainable."""
        steps = self.walk.steps if self.walk is not None else ()
        return sum(
            _frozen(self.graph.nodes.get(step.id, step.node), self.results[step.id])
            for step in steps
            if step.live and step.id in self.results
        )

    def output_type(self) -> TensorType | None:
        """Return the type of the only output; None if several or unknown."""
        nodes = [node for node in self.graph.nodes.values() if node.op == "output"]
        edges = self.graph.into(nodes[0].id) if len(nodes) == 1 else ()
        value = self.values.get((edges[0].source, edges[0].output)) if edges else None
        return value if isinstance(value, TensorType) else None


def _frozen(node: Node, result: StepResult) -> int:
    """Return how many parameters of a call do not train."""
    if not isinstance(result.outcome, Ran) or not result.outcome.parameters:
        return 0
    if node.frozen or result.resolved.get("requires_grad") is False:
        return result.outcome.parameters
    insides = [turn.inside for turn in result.turns if turn.inside is not None]
    return sum(
        _frozen(step.node, inside.results[step.id])
        for inside in insides
        for step in inside.plan.steps
        if step.live
    )


def known(
    graph: Graph,
    walk: Plan,
    results: Mapping[str, StepResult],
    before: Analysis | None = None,
) -> Analysis:
    """Build an analysis, without problems, from the results of a sheet's calls. Only looks up what differs from the
    analysis `before`, so it is cheap."""
    changed = _changed(walk, results, before) if before is not None else None
    if before is not None and changed is not None:
        outcomes = {
            node: result.outcome
            for node, result in changed.items()
            if isinstance(result.outcome, Ran)
        }
        return Analysis(
            graph=graph,
            source=Source(""),
            values=before.values.update(
                {
                    (node, number): value
                    for node, ran in outcomes.items()
                    for number, value in enumerate(ran.outputs)
                }
            ),
            resolved=before.resolved.update(
                {node: result.resolved for node, result in changed.items()}
            ),
            parameters=before.parameters.update(
                {node: ran.parameters for node, ran in outcomes.items()}
            ),
            partial=True,
            walk=walk,
            results=results,
        )
    values = {
        (node, number): value
        for node, result in results.items()
        if isinstance(result.outcome, Ran)
        for number, value in enumerate(result.outcome.outputs)
    }
    values |= {
        (node, 0): values[ref.node, ref.output]
        for node, ref in walk.passed.items()
        if ref is not None and (ref.node, ref.output) in values
    }
    return Analysis(
        graph=graph,
        source=Source(""),
        values=FrozenMap(values),
        resolved=FrozenMap({node: result.resolved for node, result in results.items()}),
        parameters=FrozenMap(
            {
                n: r.outcome.parameters
                for n, r in results.items()
                if isinstance(r.outcome, Ran)
            }
        ),
        partial=True,
        walk=walk,
        results=results,
    )


def _changed(
    walk: Plan, results: Mapping[str, StepResult], before: Analysis
) -> dict[str, StepResult] | None:
    """Return the results that differ from those of another analysis, None if calls or outputs came or went."""
    if (
        walk.passed
        or before.walk is None
        or before.walk.passed
        or results.keys() != before.results.keys()
    ):
        return None
    changed = {
        node: result
        for node, result in results.items()
        if before.results[node] is not result
    }
    return (
        changed
        if all(
            _outputs(result) == _outputs(before.results[node])
            for node, result in changed.items()
        )
        else None
    )


def _outputs(result: StepResult) -> int:
    """Return how many outputs a call has, -1 if it does not run."""
    return len(result.outcome.outputs) if isinstance(result.outcome, Ran) else -1
