"""Everything that is to be said of a graph: shapes, source and problems, from one plan."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Any

from app.builder.calls import Failed, Ran
from app.builder.catalog import Catalog, catalog
from app.builder.checks import structure
from app.builder.codegen import generate
from app.builder.explain import explain
from app.builder.graph import Graph
from app.builder.literals import AUTO
from app.builder.params import ParamError, check_node, missing
from app.builder.plan import Plan, Step, plan
from app.builder.problems import Cure, InsertBefore, Problem, RemoveNode, SetParam, apply_cure
from app.builder.shapes import StepResult, infer
from app.builder.value_types import Dim, TensorType, TupleType, ValueType
from app.frozen import FrozenMap
from app.source import Source

_CURES_TRIED = 16


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
        problems += _step_problems(step, results, graph)
    problems = _with_cures_that_work(problems, graph, ops)
    values = {
        (node, number): value
        for node, result in results.items()
        if isinstance(result.outcome, Ran)
        for number, value in enumerate(result.outcome.outputs)
    }
    values |= {(node, 0): values[ref.node, ref.output] for node, ref in walk.passed.items()
               if ref is not None and (ref.node, ref.output) in values}  # fmt: skip
    answer = Analysis(
        graph=graph,
        source=generate(walk, results, graph),
        values=FrozenMap(values),
        resolved=FrozenMap({node: result.resolved for node, result in results.items()}),
        problems=tuple(sorted(problems, key=lambda problem: problem.severity)),
        parameters=FrozenMap({n: r.outcome.parameters for n, r in results.items() if isinstance(r.outcome, Ran)}),
        live=frozenset(step.id for step in walk.steps if step.live),
        assumed=frozenset(
            n.id for n in graph.nodes.values() if n.op != "output" and not n.muted and _unknown(results.get(n.id))
        ),
    )
    if answer.runnable:  # what stops a network is said first
        more = structure(answer, ops, lambda mended: _runs(mended, ops))
        answer = replace(answer, problems=(*answer.problems, *more))
    return replace(answer, milliseconds=(time.perf_counter() - began) * 1000)


def _runs(graph: Graph, ops: Catalog) -> bool:
    """Whether every call that an output needs runs."""
    walk = plan(graph, ops)
    results = infer(walk)
    calls = [step for step in walk.steps if step.live and step.node.op != "output"]
    return all(isinstance(results[step.id].outcome, Ran) for step in calls)


def _unknown(result: StepResult | None) -> bool:
    return result is None or result.outcome is None


def _with_cures_that_work(problems: list[Problem], graph: Graph, ops: Catalog) -> list[Problem]:
    """The problems, with those cures alone after which the call runs. Tried on the first few: each costs a walk."""
    tried = 0
    checked = []
    for problem in problems:
        if problem.severity == "error" and problem.node is not None and problem.cures:
            tried += 1
            node, few = problem.node, tried <= _CURES_TRIED
            problem = replace(problem, cures=tuple(c for c in problem.cures if few and _cures(c, node, graph, ops)))
        checked.append(problem)
    return checked


def _cures(cure: Cure, node: str, graph: Graph, ops: Catalog) -> bool:
    """Whether the node's call runs once the cure is applied."""
    mended = apply_cure(graph, ops, cure)
    result = infer(plan(mended, ops)).get(node)
    if result is None:
        return False
    return bool(result.inputs) if mended.nodes[node].op == "output" else isinstance(result.outcome, Ran)


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


def _step_problems(step: Step, results: dict[str, StepResult], graph: Graph) -> list[Problem]:
    result = results[step.id]
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
        message = f"Nothing arrives at {names} of {step.node.name}"
        return [Problem("error", step.id, message, "Drag a wire from another layer to it.", port=unconnected[0].name)]
    if isinstance(result.outcome, Failed):
        return [explain(step, result, graph)]
    misfit = _misfits(step, results, graph)
    if misfit:
        return misfit
    if result.outcome is None:
        return _auto_problems(step, result)
    return _warnings(step, result)


def _misfits(step: Step, results: dict[str, StepResult], graph: Graph) -> list[Problem]:
    """Wires from an output that the call does not give, or that carry a tuple where a tensor is wanted."""
    for port in step.spec.inputs:
        for ref in step.args.get(port.name, ()):
            source, outcome = graph.nodes[ref.node], results[ref.node].outcome if ref.node in results else None
            if not isinstance(outcome, Ran):
                continue
            if ref.output >= len(outcome.outputs):
                message = f"{source.name} does not give output {ref.output}, which {step.node.name} takes"
                reason = f"With the parameters it has, {source.name} gives {len(outcome.outputs)} of its outputs."
                if source.op == "nn.MultiheadAttention":
                    cure = Cure("Set need_weights=True", (SetParam(source.id, "need_weights", True),))
                    return [Problem("error", step.id, message, reason, port=port.name, cures=(cure,))]
                return [Problem("error", step.id, message, reason, port=port.name)]
            kind = "tuple" if isinstance(outcome.outputs[ref.output], TupleType) else "tensor"
            if kind != port.kind:
                message = f"{source.name} gives a {kind}, {step.node.name} wants a {port.kind} as {port.name}"
                return [Problem("error", step.id, message, "Connect another output of it.", port=port.name)]
    return []


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
        message = f"{step.node.name} works with a batch of {result.outcome.fixed_batch} only"
        reason = "The size is written into it, and the last batch of an epoch may be smaller. Write -1 in its place."
        problems.append(Problem("warning", step.id, message, reason, cures=_any_batch(step)))
    if _batch_as_time(step, arriving):
        first = Cure("Set batch_first=True", (SetParam(step.id, "batch_first", True),))
        reason = f"With batch_first=False the first dimension of {arriving}, the batch, is read as the sequence."
        message = f"{step.node.name} reads the batch as a sequence"
        problems.append(Problem("warning", step.id, message, reason, cures=(first,)))
    if step.spec.key == "nn.Linear" and isinstance(arriving, TensorType) and len(arriving.shape) == 4:
        flatten = Cure("Insert Flatten", (InsertBefore(step.id, "input", "nn.Flatten"),))
        reason = f"Of {arriving} it mixes the last {arriving.shape[-1]} values only. Most networks flatten before."
        message = f"{step.node.name} works on the last dimension alone"
        problems.append(Problem("warning", step.id, message, reason, cures=(flatten,)))
    return problems


def _any_batch(step: Step) -> tuple[Cure, ...]:
    """-1 in the place of the batch size that is written into a view, where it has no -1 yet."""
    for param in step.spec.params:
        sizes = step.node.params.get(param.name)
        if isinstance(sizes, tuple) and -1 not in sizes:
            new = (-1, *sizes[1:])
            return (Cure(f"Set {param.name}={new}", (SetParam(step.id, param.name, new),)),)
    return ()


def _batch_as_time(step: Step, arriving: ValueType | None) -> bool:
    """torch's own default, batch_first=False, meets inputs whose first dimension is the batch."""
    return (
        step.spec.param("batch_first") is not None
        and not step.spec.value(step.node, "batch_first")
        and isinstance(arriving, TensorType)
        and len(arriving.shape) == 3
        and isinstance(arriving.shape[0], Dim)
    )
