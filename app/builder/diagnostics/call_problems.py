"""Problems with the calls of a graph, each with its reason and cures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.builder.catalog import custom, custom_calls, init_checks
from app.builder.diagnostics.context import InferredGraph
from app.builder.diagnostics.problems import (
    Append,
    Cure,
    DropInit,
    InsertBefore,
    Keep,
    OpenLayers,
    Problem,
    RemoveNode,
    SetParam,
    Unshare,
    Untie,
)
from app.builder.explain.explain import explain, wire_cures
from app.builder.expressions import ExpressionError, computed
from app.builder.graph import Graph, Node
from app.builder.literals import AUTO
from app.builder.params import ParamError, check_node, missing
from app.builder.plan import HOLDING, Plan, Step
from app.builder.results import CallFailed, Ran, StepResult
from app.builder.rules import wirable_of
from app.builder.shapes.tied_shapes import shape_of
from app.builder.value_types import Dim, TensorType, ValueType, kind_of, kinds_fit
from app.util.formatting import shape_text
from app.util.language import tr, trn


def loop_problems(graph: Graph, walk: Plan) -> list[Problem]:
    if not walk.loops:
        return []
    names = " → ".join(graph.nodes[node].name for node in walk.loops[:6])
    reason = tr(
        "{names}: each needs another's output. Remove one of their wires.", names=names
    )
    return [
        Problem(
            "error",
            walk.loops[0],
            tr("These layers form a cycle, so forward has no order"),
            reason,
            code="cycle",
        )
    ]


def net_problems(sheet: InferredGraph) -> list[Problem]:
    if not sheet.graph.nodes:
        return [
            Problem(
                "error",
                None,
                tr("Nothing on the canvas yet"),
                tr("Drag a layer here, press Tab to search, or paste PyTorch code."),
                code="empty-canvas",
            )
        ]
    kinds = {node.op for node in sheet.graph.nodes.values()}
    is_block = sheet.given is not None
    problems = []
    if "input" not in kinds:
        problems.append(
            Problem(
                "error",
                None,
                tr("The block has no Input")
                if is_block
                else tr("The network has no Input"),
                tr("Drag an Input onto the canvas."),
                code="no-input",
            )
        )
    if "output" not in kinds:
        reason = tr("Drag an Output onto the canvas and connect the last layer to it.")
        ends = [
            step.node
            for step in sheet.walk.steps
            if step.spec.outputs and not sheet.graph.out_of(step.id)
        ]
        cures = tuple(
            Cure(
                tr("Add an Output after {layer}", layer=end.name),
                (Append(end.id, "output"),),
            )
            for end in reversed(ends)
            if end.op != "input"
        )[:3]
        problems.append(
            Problem(
                "error",
                None,
                tr("The block has no Output")
                if is_block
                else tr("The network has no Output"),
                reason,
                cures=cures,
                code="no-output",
            )
        )
    uncalled = [step.node for step in sheet.walk.steps if step.kept]
    return [*problems, _uncalled_note(uncalled)] if uncalled else problems


def _uncalled_note(nodes: list[Node]) -> Problem:
    """Report all uncalled modules in one note: they are kept on purpose."""
    names = ", ".join(node.name for node in nodes[:3]) + (
        f" {tr('and {number} more', number=len(nodes) - 3)}" if len(nodes) > 3 else ""
    )
    cure = Cure(
        tr("Leave out of the code"), tuple(Keep(node.id, False) for node in nodes)
    )
    reason = tr("The constructor creates them, so the state_dict has their keys.")
    return Problem(
        "info",
        nodes[0].id,
        trn(
            "{names} is not used by forward",
            "{names} are not used by forward",
            len(nodes),
            names=names,
        ),
        reason,
        cures=(cure,),
        code="unused-module",
    )


def _bad_ties(step: Step, sheet: InferredGraph) -> list[Problem]:
    """Report tied parameters whose shapes differ, or whose partner is missing."""
    if not step.node.tied:
        return []
    steps = {other.id: other for other in sheet.walk.steps if other.live}
    for name, tie in step.node.tied.items():
        other = steps.get(tie.node)
        mine = shape_of(step, sheet.results[step.id], name)
        theirs = (
            shape_of(other, sheet.results[other.id], tie.name)
            if other is not None
            else None
        )
        if mine is None or mine != theirs:
            whose = (
                sheet.graph.nodes[tie.node].name
                if tie.node in sheet.graph.nodes
                else tie.node
            )
            message = tr(
                "{first} cannot be {second}",
                first=_named(step.node.name, name),
                second=_named(whose, tie.name),
            )
            reason = tr(
                "One is {first}, and the other {second}; tied parameters must have the same shape.",
                first=_size(mine),
                second=_size(theirs),
            )
            cure = Cure(
                trn(
                    "Give {name} its own parameter",
                    "Give {name} its own parameters",
                    1,
                    name=step.node.name,
                ),
                (Untie(step.id, name),),
            )
            return [
                Problem(
                    "error", step.id, message, reason, cures=(cure,), code="tie-shapes"
                )
            ]
    return []


def _ties_note(step: Step, graph: Graph) -> list[Problem]:
    """Report the tied parameters of a node in one note: they are tied on purpose."""
    pairs = [
        (_named(step.node.name, name), _named(graph.nodes[tie.node].name, tie.name))
        for name, tie in step.node.tied.items()
    ]
    if not pairs:
        return []
    more = tr("and {number} more", number=len(pairs) - 1)
    more = f" {more}" if len(pairs) > 1 else ""
    cure = Cure(
        trn(
            "Give {name} its own parameter",
            "Give {name} its own parameters",
            len(pairs),
            name=step.node.name,
        ),
        tuple(Untie(step.id, name) for name in step.node.tied),
    )
    reason = tr(
        "Tied weights: one tensor under two names, counted once, with gradients from both uses."
    )
    return [
        Problem(
            "info",
            step.id,
            tr(
                "{first} is tied to {second}{more}",
                first=pairs[0][0],
                second=pairs[0][1],
                more=more,
            ),
            reason,
            cures=(cure,),
            code="tied-parameter",
        )
    ]


def _named(node: str, parameter: str) -> str:
    return f"{node}.{parameter}" if parameter else node


def _size(shape: tuple[int, ...] | None) -> str:
    return tr("not there") if shape is None else shape_text(shape, "a number")


def _kept_problems(step: Step, result: StepResult, graph: Graph) -> list[Problem]:
    """Report an uncalled module that cannot be constructed."""
    if isinstance(result.outcome, CallFailed):
        return [
            Problem(
                "error",
                step.id,
                tr("{name} cannot be constructed", name=step.node.name),
                result.outcome.error,
                code="constructor-failed",
            )
        ]
    if not isinstance(result.outcome, Ran):
        names = f" {tr('and')} ".join(
            name for name, value in result.resolved.items() if value is AUTO
        )
        reason = tr("No input to infer it from. Set it in the inspector.")
        return [
            Problem(
                "error",
                step.id,
                tr(
                    "{name} is constructed: set {names}",
                    name=step.node.name,
                    names=names or "parameters",
                ),
                reason,
                code="missing-parameter",
            )
        ]
    return _init_problems(step, result) or _ties_note(step, graph)


def step_problems(step: Step, sheet: InferredGraph) -> list[Problem]:
    results, graph = sheet.results, sheet.graph
    result = results[step.id]
    if not step.live:
        if step.spec.kind == "input" and sheet.given is not None:
            return []  # a block may have an input that it does not need yet
        reason = tr(
            "It is left out of the code. Connect it to an output, or remove it."
        )
        cures: tuple[Cure, ...] = (
            Cure(tr("Remove {name}", name=step.node.name), (RemoveNode(step.id),)),
        )
        if step.spec.kind in HOLDING:
            cures += (
                Cure(
                    tr("Keep {name} in the state_dict", name=step.node.name),
                    (Keep(step.id),),
                ),
            )
        return [
            Problem(
                "warning",
                step.id,
                tr("{name} is not connected to an output", name=step.node.name),
                reason,
                cures=cures,
                code="dead-branch",
            )
        ]
    if explanation := custom.why_not(step.spec):
        cure = Cure(
            tr("View the file"), (OpenLayers(step.id, custom.module_of(step.spec.key)),)
        )
        return [
            Problem("error", step.id, *explanation, cures=(cure,), code="layer-file")
        ]
    if step.spec.kind == "unknown":
        reason = tr(
            "It comes from another version or from layers that are missing here. Its data are kept in the file."
        )
        return [
            Problem(
                "error",
                step.id,
                tr("{op!r} is an unknown op", op=step.node.op),
                reason,
                code="unknown-op",
            )
        ]
    bad = (
        []
        if _is_port(step, sheet)
        else _param_problems(step, sheet.values or {}) or _bad_ties(step, sheet)
    )
    if bad:
        return bad
    if step.kept:
        return _kept_problems(step, result, graph)
    unconnected = [
        port
        for port in step.spec.inputs
        if port.required and port.name not in step.args
    ]
    if unconnected:
        names = f" {tr('and')} ".join(port.name for port in unconnected)
        message = tr(
            "No input connected to {names} of {name}", names=names, name=step.node.name
        )
        cures = wire_cures(step, tuple(port.name for port in unconnected), graph)
        reason = tr("Drag a wire from another layer to it.")
        return [
            Problem(
                "error",
                step.id,
                message,
                reason,
                port=unconnected[0].name,
                cures=cures,
                code="unconnected-input",
            )
        ]
    failed = next(
        (turn.outcome for turn in result.turns if isinstance(turn.outcome, CallFailed)),
        None,
    )
    if isinstance(result.outcome, CallFailed) or failed:
        error = (
            failed.error
            if failed
            else result.outcome.error
            if isinstance(result.outcome, CallFailed)
            else ""
        )
        if explanation := custom_calls.why_failed(step.spec, step.node.name, error):
            return [Problem("error", step.id, *explanation, code="call-failed")]
        return [
            explain(step, result if failed is None else _at_turn(result, failed), graph)
        ]
    misfit = _misfits(step, results, graph, any_kind=_is_port(step, sheet))
    if misfit:
        return misfit
    if result.outcome is None:
        return (
            _auto_problems(step, result)
            or _shared_problems(step, sheet)
            or _repeat_problems(step, result)
        )
    return _init_problems(step, result) or [
        *_warnings(step, result, sheet),
        *_ties_note(step, sheet.graph),
    ]


def _init_problems(step: Step, result: StepResult) -> list[Problem]:
    """Report initialisations that torch rejects, or of parameters that the layer lacks."""
    problems = []
    for name, init in step.node.inits.items():
        refusal = init_checks.refusal(step.spec, result.resolved, name, init)
        if refusal:
            message = tr(
                "{init} cannot initialise {name} of {node_name}",
                init=init.name,
                name=name,
                node_name=step.node.name,
            )
            cure = Cure(
                tr("Initialise {name} as PyTorch does", name=name),
                (DropInit(step.id, name),),
            )
            problems.append(
                Problem(
                    "error",
                    step.id,
                    message,
                    refusal,
                    torch_message=refusal,
                    cures=(cure,),
                    code="init-not-possible",
                )
            )
    return problems


def _at_turn(result: StepResult, failed: CallFailed) -> StepResult:
    """Return the result of the repetition that failed."""
    turn = next(turn for turn in result.turns if turn.outcome is failed)
    return StepResult(turn.outcome, turn.resolved, turn.inputs)


def _shared_problems(step: Step, sheet: InferredGraph) -> list[Problem]:
    """Report a shared module whose parameters do not fit this call's input."""
    if step.module not in sheet.graph.nodes or not sheet.results[step.id].inputs:
        return []
    called = next(
        (other.node for other in sheet.walk.steps if other.module == step.module),
        step.node,
    )
    if called.id == step.id:
        return []
    first = called.name
    arriving = next(iter(sheet.results[step.id].inputs.values()))[0]
    message = tr(
        "{name} shares its weights with {first}, whose parameters do not fit {arriving}",
        name=step.node.name,
        first=first,
        arriving=arriving,
    )
    cure = Cure(
        tr("Give {name} its own weights", name=step.node.name), (Unshare(step.id),)
    )
    return [
        Problem(
            "error",
            step.id,
            message,
            tr("One module has one set of weights."),
            cures=(cure,),
            code="shared-shapes",
        )
    ]


def _repeat_problems(step: Step, result: StepResult) -> list[Problem]:
    """Report a repeated node whose output cannot be its input."""
    ran = [turn.outcome for turn in result.turns if isinstance(turn.outcome, Ran)]
    if step.node.repeat == 1 or not ran or len(ran) == step.node.repeat:
        return []
    output_count = len(ran[-1].outputs)
    why = (
        tr("gives {output_count} outputs", output_count=output_count)
        if output_count != 1
        else tr("takes no input")
        if not step.spec.inputs
        else tr("stops")
    )
    message = tr(
        "{name} {why}, so it cannot be repeated {count} times",
        name=step.node.name,
        why=why,
        count=step.node.repeat,
    )
    return [
        Problem(
            "error",
            step.id,
            message,
            tr("A repeated layer takes one tensor and returns one. Set repeat to 1."),
            code="cannot-repeat",
        )
    ]


def _misfits(
    step: Step, results: Mapping[str, StepResult], graph: Graph, any_kind: bool = False
) -> list[Problem]:
    """Report wires from outputs that the call does not return, or that carry a tuple to a tensor port."""
    for port in step.spec.inputs:
        for ref in step.args.get(port.name, ()):
            source, outcome = (
                graph.nodes[ref.node],
                results[ref.node].outcome if ref.node in results else None,
            )
            if not isinstance(outcome, Ran):
                continue
            if ref.output >= len(outcome.outputs):
                message = tr(
                    "{source} has no output {number}, which {name} is connected to",
                    source=source.name,
                    number=ref.output,
                    name=step.node.name,
                )
                reason = tr(
                    "With its current parameters, {source} returns {count} outputs.",
                    source=source.name,
                    count=len(outcome.outputs),
                )
                cures = (
                    (
                        Cure(
                            tr("Set {name}={value}", name="need_weights", value=True),
                            (SetParam(source.id, "need_weights", True),),
                        ),
                    )
                    if source.op == "nn.MultiheadAttention"
                    else ()
                )
                return [
                    Problem(
                        "error",
                        step.id,
                        message,
                        reason,
                        port=port.name,
                        cures=cures,
                        code="missing-output",
                    )
                ]
            kind = kind_of(outcome.outputs[ref.output])
            if not any_kind and not kinds_fit(kind, port.kind):
                message = tr(
                    "{source} gives a {kind}, {name} expects a {wanted} as {port}",
                    source=source.name,
                    kind=kind,
                    name=step.node.name,
                    wanted=port.kind,
                    port=port.name,
                )
                return [
                    Problem(
                        "error",
                        step.id,
                        message,
                        tr("Connect another output of it."),
                        port=port.name,
                        code="wire-kind",
                    )
                ]
    return []


def _is_port(step: Step, sheet: InferredGraph) -> bool:
    """Return whether a step is an input or output of a block, which accept any value."""
    return step.spec.kind in ("input", "output") and sheet.given is not None


def _param_problems(step: Step, values: Mapping[str, Any]) -> list[Problem]:
    for name, value in step.node.params.items():
        try:
            computed(value, values)
        except ExpressionError as error:
            where = tr("Set it in the inspector, or expose the parameter on the block.")
            return [
                Problem(
                    "error",
                    step.id,
                    f"{name} of {step.node.name}: {error}",
                    where,
                    code="expression",
                )
            ]
    try:
        check_node(step.spec, step.node)
    except ParamError as error:
        return [
            Problem(
                "error",
                step.id,
                str(error),
                tr("Set it in the inspector."),
                code="parameter-value",
            )
        ]
    absent = missing(step.spec, step.node)
    if absent:
        names = f" {tr('and')} ".join(absent)
        return [
            Problem(
                "error",
                step.id,
                f"{step.node.name} needs {names}",
                tr("Set it in the inspector."),
                code="missing-parameter",
            )
        ]
    there = {port.name for port in wirable_of(step.spec, step.node)}
    lost = [
        port.name for port in step.spec.inputs if port.wired and port.name not in there
    ]
    if lost:
        reason = tr(
            "A wire sets an element that the typed value does not have. Type a longer value, or remove the wire."
        )
        return [
            Problem(
                "error",
                step.id,
                tr("{name} has no {port}", name=step.node.name, port=lost[0]),
                reason,
                port=lost[0],
                code="missing-port",
            )
        ]
    return []


def _auto_problems(step: Step, result: StepResult) -> list[Problem]:
    """AUTO that finds no such dimension in a shape that is known."""
    open_params = [
        p.name
        for p in step.spec.params
        if p.auto and result.resolved.get(p.name) is AUTO
    ]
    arrived = all(
        port.name in result.inputs for port in step.spec.inputs if port.required
    )
    if not open_params or not arrived:
        return []
    shape = next(iter(result.inputs.values()))[0]
    reason = tr(
        "The dimension to infer it from is missing or is the batch. Set it in the inspector, or change the "
        "shape."
    )
    message = tr(
        "{name} cannot infer {parameter} from {shape}",
        name=step.node.name,
        parameter=open_params[0],
        shape=shape,
    )
    return [Problem("error", step.id, message, reason, code="cannot-infer")]


def _channels_first(step: Step, sheet: InferredGraph) -> bool:
    """Return whether a picture arrives channels first, as convolutions leave it; not after a permute."""
    steps = {other.id: other for other in sheet.walk.steps}
    at: Step | None = step
    while at is not None and at.refs():
        at = steps.get(at.refs()[0].node)
        if at is None or at.spec.key in ("nn.LayerNorm", "F.layer_norm"):
            return False
        if (
            at.spec.category == "conv"
            or "Pool" in at.spec.key
            or at.spec.kind == "input"
        ):
            return at.spec.kind != "input" or sheet.given is None
        if at.spec.category not in ("act", "drop", "norm"):
            return False
    return False


def _warnings(step: Step, result: StepResult, sheet: InferredGraph) -> list[Problem]:
    assert isinstance(result.outcome, Ran)
    problems = []
    arriving = next((values[0] for values in result.inputs.values()), None)
    if result.outcome.fixed_batch:
        message = tr(
            "{name} works with a batch size of {size} only",
            name=step.node.name,
            size=result.outcome.fixed_batch,
        )
        reason = tr(
            "The batch size is hard-coded, and the last batch of an epoch may be smaller. Use -1 instead."
        )
        problems.append(
            Problem(
                "warning",
                step.id,
                message,
                reason,
                cures=_any_batch(step),
                code="fixed-batch",
            )
        )
    if _batch_as_time(step, arriving):
        first = Cure(
            tr("Set {name}={value}", name="batch_first", value=True),
            (SetParam(step.id, "batch_first", True),),
        )
        reason = tr(
            "With batch_first=False the first dimension of {arriving}, the batch, is read as the sequence.",
            arriving=arriving,
        )
        message = tr("{name} reads the batch as a sequence", name=step.node.name)
        problems.append(
            Problem(
                "warning",
                step.id,
                message,
                reason,
                cures=(first,),
                code="batch-as-sequence",
            )
        )
    picture = (
        arriving
        if isinstance(arriving, TensorType) and len(arriving.shape) == 4
        else None
    )
    if step.spec.key == "nn.Linear" and picture and _channels_first(step, sheet):
        flatten = Cure(
            tr("Insert {layer}", layer="Flatten"),
            (InsertBefore(step.id, "input", "nn.Flatten"),),
        )
        reason = tr(
            "It acts on the last {count} values. Most networks flatten first.",
            count=picture.shape[-1],
        )
        message = tr("{name} acts on the last dimension only", name=step.node.name)
        problems.append(
            Problem(
                "warning",
                step.id,
                message,
                reason,
                cures=(flatten,),
                code="linear-on-picture",
            )
        )
    return problems


def _any_batch(step: Step) -> tuple[Cure, ...]:
    """-1 in the place of the batch size that is written into a view, where it has no -1 yet."""
    for param in step.spec.params:
        sizes = step.node.params.get(param.name)
        if isinstance(sizes, tuple) and -1 not in sizes:
            new = (-1, *sizes[1:])
            return (
                Cure(
                    tr("Set {name}={value}", name=param.name, value=new),
                    (SetParam(step.id, param.name, new),),
                ),
            )
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
