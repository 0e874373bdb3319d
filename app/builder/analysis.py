"""Everything that is to be said of a graph: shapes, source and problems, from one plan."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from app.builder.catalog import Catalog, catalog
from app.builder.codegen import generate
from app.builder.explain import explain
from app.builder.graph import Graph
from app.builder.literals import AUTO
from app.builder.params import ParamError, check_node, missing
from app.builder.plan import Plan, Step, plan
from app.builder.problems import Cure, InsertBefore, Problem, RemoveNode
from app.builder.shapes import Failed, Ran, StepResult, infer
from app.builder.value_types import TensorType, ValueType
from app.frozen import FrozenMap
from app.source import Source


@dataclass(frozen=True)
class Analysis:
    """`values` holds the type on each output that is known, `resolved` the parameters with AUTO put in place.

    `parameters` counts the values of each node's module. `assumed` are the nodes of which nothing is known because
    something before them is missing or broken. `milliseconds` is how long it took.
    """

    graph: Graph
    source: Source
    values: FrozenMap[tuple[str, int], ValueType] = field(default_factory=FrozenMap)
    resolved: FrozenMap[str, FrozenMap[str, Any]] = field(default_factory=FrozenMap)
    problems: tuple[Problem, ...] = ()
    parameters: FrozenMap[str, int] = field(default_factory=FrozenMap)
    live: frozenset[str] = frozenset()
    assumed: frozenset[str] = frozenset()
    milliseconds: float = 0.0

    @property
    def errors(self) -> tuple[Problem, ...]:
        return tuple(problem for problem in self.problems if problem.severity == "error")

    @property
    def runnable(self) -> bool:
        """Whether the source can be run: nothing is wrong that would stop it."""
        return not self.errors

    @property
    def total_parameters(self) -> int:
        """Parameters of all nodes that are part of the network."""
        return sum(count for node, count in self.parameters.items() if node in self.live)

    def output_type(self) -> TensorType | None:
        """The type of what the only output returns, None if there are several or it is unknown."""
        outputs = [node.id for node in self.graph.nodes.values() if node.op == "output"]
        edges = self.graph.into(outputs[0]) if len(outputs) == 1 else ()
        value = self.values.get((edges[0].source, edges[0].output)) if edges else None
        return value if isinstance(value, TensorType) else None


def analyse(graph: Graph, ops: Catalog | None = None) -> Analysis:
    """Shapes, source and problems of a graph. Raises nothing: what is wrong is a problem in the answer."""
    began = time.perf_counter()
    ops = ops or catalog()
    walk = plan(graph, ops)
    results = infer(walk)
    problems = [*_loop_problems(graph, walk), *_net_problems(graph)]
    for step in walk.steps:
        problems += _step_problems(step, results[step.id], graph)
    values = {
        (node, number): value
        for node, result in results.items()
        if isinstance(result.outcome, Ran)
        for number, value in enumerate(result.outcome.outputs)
    }
    return Analysis(
        graph=graph,
        source=generate(walk, results),
        values=FrozenMap(values),
        resolved=FrozenMap({node: result.resolved for node, result in results.items()}),
        problems=tuple(sorted(problems, key=lambda problem: problem.severity)),
        parameters=FrozenMap({n: r.outcome.parameters for n, r in results.items() if isinstance(r.outcome, Ran)}),
        live=frozenset(step.id for step in walk.steps if step.live),
        assumed=frozenset(n for n, r in results.items() if r.outcome is None and graph.nodes[n].op != "output"),
        milliseconds=(time.perf_counter() - began) * 1000,
    )


def _loop_problems(graph: Graph, walk: Plan) -> list[Problem]:
    if not walk.loops:
        return []
    names = " → ".join(graph.nodes[node].name for node in walk.loops[:6])
    reason = f"{names}: each waits for another. Remove one of their wires."
    return [Problem("error", walk.loops[0], "These layers form a loop, so forward has no order", reason)]


def _net_problems(graph: Graph) -> list[Problem]:
    if not graph.nodes:
        return [Problem("error", None, "Nothing on the canvas yet", "Drag a layer here, or press Tab to search.")]
    kinds = {node.op for node in graph.nodes.values()}
    problems = []
    if "input" not in kinds:
        problems.append(Problem("error", None, "The network has no Input", "Drag an Input onto the canvas."))
    if "output" not in kinds:
        reason = "Drag an Output onto the canvas and connect the last layer to it."
        problems.append(Problem("error", None, "The network has no Output", reason))
    return problems


def _step_problems(step: Step, result: StepResult, graph: Graph) -> list[Problem]:
    if not step.live:
        reason = "It is left out of the code. Connect it on, or remove it."
        remove = Cure(f"Remove {step.node.name}", (RemoveNode(step.id),))
        return [Problem("warning", step.id, f"{step.node.name} does not reach an output", reason, cures=(remove,))]
    if step.spec.kind == "unknown":
        reason = "It was made with another version or with layers that are not here. Its data are kept in the file."
        return [Problem("error", step.id, f"{step.node.op!r} is not an op that this program knows", reason)]
    bad = _param_problems(step)
    if bad:
        return bad
    unconnected = [port for port in step.spec.inputs if port.required and port.name not in step.args]
    if unconnected:
        names = " and ".join(port.name for port in unconnected)
        reason = f"Drag a wire from another layer to {names} of {step.node.name}."
        return [Problem("error", step.id, f"{step.node.name} has no {names}", reason, port=unconnected[0].name)]
    if isinstance(result.outcome, Failed):
        return [explain(step, result, graph)]
    if result.outcome is None:
        return _auto_problems(step, result)
    return _warnings(step, result)


def _param_problems(step: Step) -> list[Problem]:
    try:
        check_node(step.spec, step.node)
    except ParamError as error:
        return [Problem("error", step.id, str(error), "Set it in the inspector.")]
    absent = missing(step.spec, step.node)
    if absent:
        names = " and ".join(absent)
        return [Problem("error", step.id, f"{step.node.name} wants {names}", "Set it in the inspector.")]
    return []


def _auto_problems(step: Step, result: StepResult) -> list[Problem]:
    """AUTO that finds no such dimension in a shape that is known."""
    open_params = [p.name for p in step.spec.params if p.auto and result.resolved.get(p.name) is AUTO]
    arrived = all(port.name in result.inputs for port in step.spec.inputs if port.required)
    if not open_params or not arrived:
        return []
    shape = next(iter(result.inputs.values()))[0]
    reason = "The dimension it is taken from is missing or is the batch. Set it in the inspector, or change the shape."
    message = f"{step.node.name} cannot take {open_params[0]} from {shape}"
    return [Problem("error", step.id, message, reason)]


def _warnings(step: Step, result: StepResult) -> list[Problem]:
    assert isinstance(result.outcome, Ran)
    problems = []
    arriving = next((values[0] for values in result.inputs.values()), None)
    if result.outcome.fixed_batch:
        reason = "It ran with one batch size and not with another; the last batch of an epoch may be smaller."
        problems.append(Problem("warning", step.id, f"{step.node.name} works with one batch size only", reason))
    if step.spec.key == "nn.Linear" and isinstance(arriving, TensorType) and len(arriving.shape) == 4:
        flatten = Cure("Insert Flatten", (InsertBefore(step.id, "input", "nn.Flatten"),))
        reason = f"Of {arriving} it mixes the last {arriving.shape[-1]} values only. Most networks flatten before."
        message = f"{step.node.name} works on the last dimension alone"
        problems.append(Problem("warning", step.id, message, reason, cures=(flatten,)))
    return problems
