"""Cost of each call for one sample: parameters, FLOPs, activation bytes, and receptive field.

Each call runs once on meta tensors while torch's own formulas (`torch.utils.flop_counter.flop_registry`) count matrix
products, convolutions and attention. Nothing else has a formula, biases included, so the counts are estimates, and a
call without any has no count, not 0. One multiply-add is 2 FLOP.

`FlopCounterMode` itself is not used: it hooks every module of the process, including those of other threads.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import FrameType
from typing import Any

import torch
from msgspec.structs import replace
from torch.utils.flop_counter import flop_registry

from app.builder.catalog.catalog import Catalog, OpSpec, catalog
from app.builder.graph import Graph
from app.builder.plan import Plan, Step, plan
from app.builder.results import Inside, Ran, StepResult
from app.builder.shapes.meta_calls import RECURRENT, TorchCall, one_step
from app.builder.shapes.network_cost import (
    COUNTED,
    MUTED,
    NO_CALL,
    NOT_COUNTED,
    UNKNOWN,
    CallCost,
    NetworkCost,
    NodeCost,
)
from app.builder.shapes.receptive_field import Receptive, field_after
from app.builder.shapes.shapes import infer
from app.builder.value_types import (
    NumberType,
    TensorType,
    TupleType,
    ValueType,
    sizes_at,
)
from app.util.frozen import FrozenMap
from app.util.lru import LruCache, Same
from app.util.torch_calls import KernelCalls

_KEPT = 8192
# Calls that put values elsewhere and compute none; views are known by their schema.
_MOVES = frozenset(
    "aten." + name
    for name in (
        "_unsafe_view",
        "cat",
        "clone",
        "copy_",
        "_to_copy",
        "empty",
        "empty_like",
        "new_empty",
        "stack",
        "zeros",
        "zeros_like",
        "unsafe_split",
        "full",
        "fill_",
        "zero_",
        "detach",
        "embedding",
        "index_select",
        "resize_",
    )
)


_memo: LruCache[CallCost] = LruCache(_KEPT)


def cost(graph: Graph, ops: Catalog | None = None) -> NetworkCost:
    """Measure the cost of every node. Never raises: nodes of unknown shape have unknown cost."""
    walk = plan(graph, ops or catalog())
    nodes = _costs(walk, infer(walk), {})[0]
    for node in graph.nodes.values():
        nodes.setdefault(
            node.id, NodeCost(state=MUTED if node.muted else UNKNOWN, live=False)
        )
    return NetworkCost(graph, FrozenMap(nodes))


_Fields = dict[str, Receptive | None]


def _costs(
    walk: Plan,
    results: Mapping[str, StepResult],
    input_fields: Mapping[str, Receptive | None],
) -> tuple[dict[str, NodeCost], _Fields]:
    """Return cost and receptive field of every step; `input_fields` has the receptive fields of a block's inputs."""
    costs: dict[str, NodeCost] = {}
    fields: _Fields = {}
    for step in walk.steps:
        result = results[step.id]
        arriving = [fields.get(ref.node) for ref in step.refs()]
        if step.id in input_fields:
            fields[step.id] = input_fields[step.id]
            costs[step.id] = NodeCost(0, NO_CALL, live=step.live)
        elif result.turns:
            costs[step.id], fields[step.id] = _cost_of_turns(step, result, arriving)
        else:
            if isinstance(result.outcome, Ran):
                given_back = result.outcome.outputs
                fields[step.id] = field_after(
                    step.spec, result.resolved, result.inputs, given_back, arriving
                )
            costs[step.id] = _node_cost(step, result, fields.get(step.id))
    return costs, fields


def _cost_of_turns(
    step: Step, result: StepResult, arriving: list[Receptive | None]
) -> tuple[NodeCost, Receptive | None]:
    """Sum the cost over the repetitions of a module, or over the inside of a block."""
    parts: list[NodeCost] = []
    for turn in result.turns:
        field_now: Receptive | None = None
        if turn.inside is not None:
            ports = dict(zip(step.args, arriving, strict=False))
            block = step.spec.definition
            inputs = (
                {node.id: ports.get(node.name) for node in block.inputs}
                if block
                else {}
            )
            costs, fields = _inside(turn.inside, inputs)
            parts += [costs[inner.id] for inner in turn.inside.plan.steps if inner.live]
            ends = [
                inner
                for inner in turn.inside.plan.steps
                if inner.spec.kind == "output" and inner.refs()
            ]
            field_now = fields.get(ends[0].refs()[0].node) if ends else None
        elif isinstance(turn.outcome, Ran):
            field_now = field_after(
                step.spec, turn.resolved, turn.inputs, turn.outcome.outputs, arriving
            )
            turn_result = StepResult(turn.outcome, turn.resolved, turn.inputs)
            parts.append(_node_cost(step, turn_result, field_now))
        arriving = [field_now, *arriving[1:]]
    if not isinstance(result.outcome, Ran):
        return NodeCost(live=step.live), None
    return _summed(
        step, result.outcome, parts, arriving[0] if arriving else None
    ), arriving[0] if arriving else None


_insides: LruCache[tuple[dict[str, NodeCost], _Fields]] = LruCache(_KEPT)


def _inside(
    inside: Inside, inputs: Mapping[str, Receptive | None]
) -> tuple[dict[str, NodeCost], _Fields]:
    """Return the costs inside a block; cached, as instances share them."""
    key = (Same(inside), *inputs.items())
    return _insides.get_or_compute(
        key, lambda: _costs(inside.plan, inside.results, inputs)
    )


def _summed(
    step: Step, outcome: Ran, parts: list[NodeCost], receptive: Receptive | None
) -> NodeCost:
    counted = [turn_cost.flops for turn_cost in parts if turn_cost.flops is not None]
    calls = [
        turn_cost.call
        for turn_cost in parts
        if turn_cost.state in (COUNTED, NOT_COUNTED)
    ]
    call = CallCost(
        flops=sum(counted) if counted else None,
        gaps=tuple(sorted({gap for call in calls for gap in call.gaps})),
        in_step=all(call.in_step for call in calls),
        tried=all(call.tried for call in calls),
    )
    return NodeCost(
        parameters=outcome.parameters,
        state=COUNTED if counted else NOT_COUNTED if calls else NO_CALL,
        call=call,
        output=", ".join(map(str, outcome.outputs)),
        activation=sum(
            turn_cost.activation or 0 for turn_cost in parts if not turn_cost.shares
        ),
        receptive=receptive if receptive is not None and receptive.windows else None,
        live=step.live,
        frozen=step.node.frozen,
        untrained=outcome.parameters
        if step.node.frozen
        else sum(turn_cost.untrained for turn_cost in parts if turn_cost.live),
    )


def _node_cost(step: Step, result: StepResult, receptive: Receptive | None) -> NodeCost:
    if step.spec.kind == "output":
        return NodeCost(0, NO_CALL, live=step.live)
    if not isinstance(result.outcome, Ran):
        return NodeCost(live=step.live)
    outcome, call, state = result.outcome, CallCost(), NO_CALL
    if step.spec.kind not in ("input", "number", "parameter", "buffer"):
        call = _remembered(
            step.spec, result.resolved, result.inputs, outcome.fixed_batch
        )
        state = COUNTED if call.flops is not None else NOT_COUNTED
    return NodeCost(
        parameters=outcome.parameters,
        state=state,
        call=call,
        output=", ".join(map(str, outcome.outputs)),
        activation=sum(_bytes(value, outcome.fixed_batch) for value in outcome.outputs),
        receptive=receptive if receptive is not None and receptive.windows else None,
        live=step.live,
        frozen=step.node.frozen,
        untrained=outcome.parameters
        if step.node.frozen or result.resolved.get("requires_grad") is False
        else 0,
    )


def _bytes(value: ValueType, fixed_batch: int) -> int:
    """Return the bytes of a value for one sample."""
    if isinstance(value, TupleType):
        return sum(_bytes(item, fixed_batch) for item in value.items)
    if isinstance(value, NumberType):
        return 0
    size = getattr(torch, value.dtype).itemsize
    for length in value.with_batch(1):
        size *= length
    return size // (fixed_batch or 1)


# --- Counting


def _remembered(
    spec: OpSpec, params: FrozenMap[str, Any], inputs: FrozenMap[str, Any], fixed: int
) -> CallCost:
    key = (spec.key, spec.target, params, inputs)
    return _memo.get_or_compute(key, lambda: _counted(spec, params, inputs, fixed))


def _counted(
    spec: OpSpec,
    params: FrozenMap[str, Any],
    inputs: FrozenMap[str, tuple[ValueType, ...]],
    fixed: int,
) -> CallCost:
    """Count the call with one sample; if it needs a larger batch, return the share of one sample.

    BatchNorm of single values rejects a batch of 1, and a view may have a literal batch size.
    """
    step_inputs, _ = one_step(spec, params, inputs)
    counters: dict[int, _Counter] = {}
    with torch.no_grad(), torch.device("meta"):
        call = TorchCall.resolve(spec, params)
        for batch in (fixed,) if fixed else (1, 2):
            counter = _Counter()
            try:
                counter.watch(call, step_inputs, batch)
            except (
                Exception
            ):  # this batch size is rejected; the shapes are known, so another one runs
                continue
            counters[batch] = counter
    if not counters:
        return CallCost(tried=False)
    batch, counter = next(iter(counters.items()))
    steps = _steps(spec, params, inputs, batch)
    in_step = (
        1 not in counters
        or 2 not in counters
        or counters[2].flops == 2 * counters[1].flops
    )
    return CallCost(
        flops=counter.flops * steps // batch if counter.formulas else None,
        gaps=tuple(sorted(counter.gaps)),
        shares=counter.shares,
        in_step=in_step,
    )


def _steps(
    spec: OpSpec, params: FrozenMap[str, Any], inputs: FrozenMap[str, Any], batch: int
) -> int:
    """Return the sequence length of a recurrent layer, which was measured for one step."""
    value = inputs["input"][0] if spec.key in RECURRENT else None
    if not isinstance(value, TensorType) or len(value.shape) not in (2, 3):
        return 1
    time_dim = 1 if len(value.shape) == 3 and params.get("batch_first") else 0
    return sizes_at(value.shape, batch)[time_dim]


class _Counter(KernelCalls):
    """Adds up torch's formulas over every operation that runs under it, on this thread alone."""

    def __init__(self) -> None:
        super().__init__()
        self.flops = 0
        self.formulas = 0
        self.gaps: set[str] = set()
        self.shares = False

    def watch(
        self, call: TorchCall, inputs: FrozenMap[str, tuple[ValueType, ...]], batch: int
    ) -> None:
        """Run the call and count. Raises what torch raises."""

        def watched(*args: Any, **kwargs: Any) -> Any:
            with self:
                output = call.target(*args, **kwargs)
            memories = _memories(output)
            self.shares = bool(memories) and memories <= _memories(
                [*args, *kwargs.values()]
            )
            return output

        replace(call, target=watched)(inputs, batch, "meta")

    def visit(self, func: Any, args: Any, kwargs: Any, frame: FrameType) -> Any:
        formula = flop_registry.get(func._overloadpacket)
        if formula is None and func is not torch.ops.prim.device.default:
            with self:
                output = func.decompose(*args, **kwargs)
            if output is not NotImplemented:
                return output
        output = func(*args, **kwargs)
        if formula is not None:
            self.flops += formula(*args, **kwargs, out_val=output)
            self.formulas += 1
        elif not func.is_view and str(func._overloadpacket) not in _MOVES:
            self.gaps.add(str(func._overloadpacket))
        return output


def _memories(values: Any) -> set[int]:
    """Return the ids of the storages of nested tensors."""
    if isinstance(values, torch.Tensor):
        return {values.untyped_storage()._cdata}
    if isinstance(values, tuple | list):
        return {memory for value in values for memory in _memories(value)}
    return set()
