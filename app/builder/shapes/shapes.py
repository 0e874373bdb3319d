"""Shape inference: runs each call of a plan on meta tensors, in order.

Results are cached by op, parameters and input types, so an edit re-runs only what it affects.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from app.builder.catalog import ops
from app.builder.catalog.catalog import Catalog, OpSpec, Param
from app.builder.expressions import ExpressionError, computed, expressions
from app.builder.literals import AUTO
from app.builder.params import ParamError, check_param
from app.builder.plan import Plan, Ref, Step, plan
from app.builder.results import CallFailed, Inputs, Inside, Ran, StepResult, Turn
from app.builder.shapes.meta_calls import count_parameters, run
from app.builder.shapes.tied_shapes import shape_of as tied_shape
from app.builder.value_types import TensorType, ValueType, kind_of, kinds_fit
from app.util.frozen import FrozenMap
from app.util.lru import LruCache

_KEPT = 8192

_Made = dict[str, StepResult]  # by module, the first call of each


def infer(
    walk: Plan,
    input_types: Mapping[str, ValueType] | None = None,
    earlier: tuple[Plan, Mapping[str, StepResult]] | None = None,
) -> dict[str, StepResult]:
    """Infer the result of every step, by node id. `input_types` are the types of a block's inputs, by id, which have
    no shape themselves.

    `earlier` is a previous plan with its results. Results that an edit cannot have changed are the same objects.
    """
    results: dict[str, StepResult] = {}
    first_results: _Made = {}
    then = {step.id: step for step in earlier[0].steps} if earlier else {}
    old_results = earlier[1] if earlier else {}
    changed: set[str] = set()  # nodes whose result differs from the previous one
    for step in walk.steps:
        node = step.node.id
        old = old_results.get(node)
        alone = (
            not step.node.shares and step.module not in first_results
        )  # a shared module depends on its first call
        untouched = old is not None and then.get(node) is step and alone
        if (
            old is not None
            and untouched
            and (not changed or changed.isdisjoint(step.sources))
        ):
            results[node] = old
            if step.spec.kind in ("module", "block"):
                first_results.setdefault(step.module, old)
            continue
        if step.spec.kind == "input" and input_types is not None:
            value = input_types.get(node)
            results[node] = StepResult(
                Ran((value,)) if value is not None else None,
                step.node.params,
                FrozenMap(),
            )
        else:
            new = _infer_step(step, results, walk.catalog, first_results)
            results[node] = old if old is not None and old == new else new
        if results[node] is not old:
            changed.add(node)
    return results


def _infer_step(
    step: Step,
    results: dict[str, StepResult],
    catalog: Catalog | None,
    first_results: _Made,
) -> StepResult:
    """Infer a step; tied parameters are counted at their owner."""
    result = _inferred(step, results, catalog, first_results)
    if (
        not step.node.tied
        or not isinstance(result.outcome, Ran)
        or not result.outcome.parameters
    ):
        return result
    shapes = (tied_shape(step, result, name) for name in step.node.tied)
    twice = sum(math.prod(shape) for shape in shapes if shape is not None)
    return replace(
        result,
        outcome=replace(result.outcome, parameters=result.outcome.parameters - twice),
    )


def _inferred(
    step: Step,
    results: dict[str, StepResult],
    catalog: Catalog | None,
    first_results: _Made,
) -> StepResult:
    if step.kept and step.spec.kind == "module":
        return _infer_uncalled(step)
    inputs = {
        port: tuple(_value(ref, results) for ref in refs)
        for port, refs in step.args.items()
    }
    input_types: Inputs = FrozenMap(
        {port: values for port, values in inputs.items() if None not in values}  # type: ignore
    )
    complete = all(
        port.name in input_types
        for port in step.spec.inputs
        if port.required or port.name in inputs
    )
    first = first_results.get(step.module)
    if first is not None:
        step = replace(step, node=replace(step.node, params=_settled(step, first)))
    able = complete and step.spec.kind not in ("unknown", "output") and _sound(step)
    if step.spec.kind != "block" and step.node.repeat == 1:
        turn = _turn(step, input_types, able)
        result = StepResult(turn.outcome, turn.resolved, turn.inputs)
    else:
        result = _in_turns(step, input_types, able, catalog)
    if first is not None:
        return _once_more(result, first)
    if step.spec.kind in ("module", "block"):
        first_results.setdefault(step.module, result)
    return result


def _infer_uncalled(step: Step) -> StepResult:
    """Infer a module that is constructed and never called."""
    resolved = resolve(step, FrozenMap())
    able = _sound(step) and _settled_by(step, resolved)
    outcome = _remembered(step.spec, resolved, None) if able else None
    if isinstance(outcome, Ran):
        outcome = replace(outcome, parameters=outcome.parameters * step.node.repeat)
    return StepResult(outcome, resolved, FrozenMap())


def _settled(step: Step, first: StepResult) -> FrozenMap[str, Any]:
    """Return the parameters of a shared module, with AUTO as its first call resolved it."""
    auto = {
        p.name: first.resolved[p.name]
        for p in step.spec.params
        if p.auto and p.name in first.resolved
    }
    return step.node.params.update(auto)


def _once_more(result: StepResult, first: StepResult) -> StepResult:
    """Return the result of a further call of a module; unknown if it would need another module."""
    if _parameter_key(result) != _parameter_key(first):
        return replace(result, outcome=None)
    outcome = result.outcome
    return replace(
        result,
        outcome=replace(outcome, parameters=0) if isinstance(outcome, Ran) else outcome,
    )


def _parameter_key(result: StepResult) -> tuple[Any, ...]:
    """Return everything that determines the parameters of a step's modules."""
    if not result.turns:
        return (result.resolved,)
    return tuple(
        (
            turn.resolved,
            *(
                _parameter_key(turn.inside.results[step.id])
                for step in turn.inside.plan.steps
                if step.spec.kind in ("module", "block")
            ),
        )
        if turn.inside
        else (turn.resolved,)
        for turn in result.turns
    )


def _turn(step: Step, inputs: Inputs, able: bool) -> Turn:
    """Infer one call of one module or function."""
    resolved = resolve(step, inputs)
    arriving = [
        (port, value)
        for port in step.spec.inputs
        for value in inputs.get(port.name, ())
    ]
    fitting = all(kinds_fit(kind_of(value), port.kind) for port, value in arriving)
    if not (able and _settled_by(step, resolved) and fitting):
        return Turn(None, resolved, inputs)
    return Turn(_remembered(step.spec, resolved, inputs), resolved, inputs)


def _in_turns(
    step: Step, inputs: Inputs, able: bool, catalog: Catalog | None
) -> StepResult:
    """Infer a block or a repeated node: each output is the next repetition's first input."""
    turns: list[Turn] = []
    port = step.spec.inputs[0].name if step.spec.inputs else ""
    for _ in range(step.node.repeat):
        if turns and turns[-1].inputs == inputs:
            turns.append(turns[-1])
        else:
            turns.append(
                _block(step, inputs, able, catalog)
                if step.spec.definition
                else _turn(step, inputs, able)
            )
        last = turns[-1].outcome
        if step.node.repeat > 1 and not (
            isinstance(last, Ran) and len(last.outputs) == 1 and port in inputs
        ):
            break
        if isinstance(last, Ran) and port:
            inputs = inputs.set(port, last.outputs[:1])
    complete = len(turns) == step.node.repeat
    outcome = (
        turns[-1].outcome
        if complete or not isinstance(turns[-1].outcome, Ran)
        else None
    )
    if isinstance(outcome, Ran):
        numbers = [turn.outcome for turn in turns if isinstance(turn.outcome, Ran)]
        fixed = next((ran.fixed_batch for ran in numbers if ran.fixed_batch), 0)
        outcome = Ran(outcome.outputs, sum(ran.parameters for ran in numbers), fixed)
    return StepResult(outcome, turns[0].resolved, turns[0].inputs, tuple(turns))


def _block(step: Step, inputs: Inputs, able: bool, catalog: Catalog | None) -> Turn:
    """Infer the inside of a block; cached by parameters and input types."""
    block = step.spec.definition
    assert block is not None and catalog is not None
    resolved = FrozenMap(
        {p.name: step.node.params.get(p.name, p.default) for p in step.spec.params}
    )
    if not able:
        return Turn(None, resolved, inputs)
    key = (block, step.spec.contains, resolved, inputs)
    cached = _insides.get(key)
    if cached is not None and cached[0] is catalog:
        return cached[1]
    walk = computed_plan(plan(block.graph, catalog), resolved)
    results = infer(
        walk,
        {node.id: inputs[node.name][0] for node in block.inputs if node.name in inputs},
    )
    turn = Turn(
        _given_back(walk, results), resolved, inputs, Inside(walk, results, resolved)
    )
    _insides.put(key, (catalog, turn))
    return turn


def _given_back(walk: Plan, results: Mapping[str, StepResult]) -> Ran | None:
    """Return the outputs of a block, if all are known."""
    ends = [step for step in walk.steps if step.spec.kind == "output"]
    values = [_value(step.refs()[0], results) if step.refs() else None for step in ends]
    outcomes = [results[step.id].outcome for step in walk.steps if step.live]
    if not ends or None in values:
        return None
    ran = [outcome for outcome in outcomes if isinstance(outcome, Ran)]
    fixed = next((outcome.fixed_batch for outcome in ran if outcome.fixed_batch), 0)
    return Ran(tuple(values), sum(outcome.parameters for outcome in ran), fixed)  # type: ignore[arg-type]


def computed_plan(walk: Plan, values: Mapping[str, Any]) -> Plan:
    """Evaluate the expressions of a plan; a step whose expression fails keeps it and does not run."""
    return replace(walk, steps=tuple(_computed(step, values) for step in walk.steps))


def _computed(step: Step, values: Mapping[str, Any]) -> Step:
    params = {}
    for name, value in step.node.params.items():
        with contextlib.suppress(ExpressionError):
            value = computed(value, values)
        params[name] = value
    same = all(params[name] is value for name, value in step.node.params.items())
    return (
        step
        if same
        else replace(step, node=replace(step.node, params=FrozenMap(params)))
    )


def _value(ref: Ref, results: Mapping[str, StepResult]) -> ValueType | None:
    result = results.get(ref.node)
    if (
        result is None
        or not isinstance(result.outcome, Ran)
        or ref.output >= len(result.outcome.outputs)
    ):
        return None
    return result.outcome.outputs[ref.output]


def _settled_by(step: Step, resolved: Mapping[str, Any]) -> bool:
    """Return whether every required parameter is typed, inferred or wired."""
    wired = {port.param for port in step.spec.inputs if port.wired}
    return all(
        resolved.get(param.name) is not AUTO
        and (not param.required or param.name in resolved or param.name in wired)
        for param in step.spec.params
    )


def _sound(step: Step) -> bool:
    """Return whether all parameters of the node exist in its op and have valid values."""
    return all(
        (param := step.spec.param(name))
        and _allowed(param, value)
        and not any(expressions(value))
        for name, value in step.node.params.items()
    )


def _allowed(param: Param, value: Any) -> bool:
    try:
        check_param(param, value)
    except ParamError:
        return False
    return True


def resolve(step: Step, inputs: Inputs) -> FrozenMap[str, Any]:
    """Return the node's parameters with AUTO resolved as far as the input shapes allow.

    Invalid values are left out, so that the result is safe to write into source.
    """
    values = {}
    for param in step.spec.params:
        if param.name in step.node.params and _allowed(
            param, step.node.params[param.name]
        ):
            values[param.name] = step.node.params[param.name]
        if param.auto and values.get(param.name, AUTO) is AUTO:
            values[param.name] = _arriving(step.spec.key, param.name, inputs)
    return FrozenMap(values)


def _arriving(
    key: str, param: str, inputs: FrozenMap[str, tuple[ValueType, ...]]
) -> Any:
    port, index = ops.AUTO_RULES[key, param]
    arriving = inputs.get(port)
    if not arriving or not isinstance(arriving[0], TensorType):
        return AUTO
    shape = arriving[0].shape
    if isinstance(index, int):
        if not -len(shape) <= index < len(shape):
            return AUTO
        size = shape[index]
        return size if isinstance(size, int) and size > 0 else AUTO
    sizes = shape[index]
    return sizes if sizes and all(isinstance(size, int) for size in sizes) else AUTO


_memo: LruCache[Ran | CallFailed] = LruCache(_KEPT)
_insides: LruCache[tuple[Catalog, Turn]] = LruCache(_KEPT)


def _remembered(
    spec: OpSpec, params: FrozenMap[str, Any], inputs: FrozenMap[str, Any] | None
) -> Ran | CallFailed:
    """Run a call, or with no inputs construct an uncalled module; cached."""
    key = (spec.key, spec.target, params, repr(params) if spec.exact else "", inputs)
    return _memo.get_or_compute(
        key,
        lambda: (
            run(spec, params, inputs)
            if inputs is not None
            else count_parameters(spec, params)
        ),
    )
