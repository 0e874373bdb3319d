"""What every wire carries: each call of the plan run on meta tensors, in order.

Answers are kept by what determines them (op, parameters, arriving types), so an edit runs again only what it changes.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from app.builder import ops
from app.builder.calls import Failed, Ran, run
from app.builder.catalog import OpSpec, Param
from app.builder.literals import AUTO
from app.builder.params import ParamError, check_param
from app.builder.plan import Plan, Ref, Step
from app.builder.value_types import TensorType, TupleType, ValueType
from app.frozen import FrozenMap

_KEPT = 8192


@dataclass(frozen=True)
class StepResult:
    """`outcome` is None where something upstream is missing or broken, so nothing can be said of this call."""

    outcome: Ran | Failed | None
    resolved: FrozenMap[str, Any]
    inputs: FrozenMap[str, tuple[ValueType, ...]]


_memo: OrderedDict[tuple[Any, ...], Ran | Failed] = OrderedDict()
_memo_lock = threading.Lock()


def infer(plan: Plan) -> dict[str, StepResult]:
    """The result of every step, by node id."""
    results: dict[str, StepResult] = {}
    for step in plan.steps:
        results[step.id] = _infer_step(step, results)
    return results


def _infer_step(step: Step, results: dict[str, StepResult]) -> StepResult:
    inputs = {port: tuple(_value(ref, results) for ref in refs) for port, refs in step.args.items()}
    known = FrozenMap({port: values for port, values in inputs.items() if None not in values})
    resolved = resolve(step, known)  # type: ignore[arg-type]
    complete = all(port.name in known for port in step.spec.inputs if port.required or port.name in inputs)
    settled = all(resolved.get(p.name) is not AUTO and (not p.required or p.name in resolved) for p in step.spec.params)
    fitting = all(_kind(value) == port.kind for port in step.spec.inputs for value in known.get(port.name, ()))
    if step.spec.kind in ("unknown", "output") or not (complete and settled and fitting and _sound(step)):
        return StepResult(None, resolved, known)  # type: ignore[arg-type]
    return StepResult(_remembered(step.spec, resolved, known), resolved, known)  # type: ignore[arg-type]


def _value(ref: Ref, results: dict[str, StepResult]) -> ValueType | None:
    result = results.get(ref.node)
    if result is None or not isinstance(result.outcome, Ran) or ref.output >= len(result.outcome.outputs):
        return None
    return result.outcome.outputs[ref.output]


def _kind(value: ValueType | None) -> str:
    """The kind of port that the value fits."""
    return "tuple" if isinstance(value, TupleType) else "tensor"


def _sound(step: Step) -> bool:
    """Whether the node sets nothing but parameters that its op has, to values that they may have."""
    return all((param := step.spec.param(name)) and _allowed(param, value) for name, value in step.node.params.items())


def _allowed(param: Param, value: Any) -> bool:
    try:
        check_param(param, value)
    except ParamError:
        return False
    return True


def resolve(step: Step, inputs: FrozenMap[str, tuple[ValueType, ...]]) -> FrozenMap[str, Any]:
    """The node's parameters with every AUTO put in place as far as the arriving shapes tell.

    A value that its parameter may not have is left out: what is here can be written into source.
    """
    values = {}
    for param in step.spec.params:
        if param.name in step.node.params and _allowed(param, step.node.params[param.name]):
            values[param.name] = step.node.params[param.name]
        if param.auto and values.get(param.name, AUTO) is AUTO:
            values[param.name] = _arriving(step.spec.key, param.name, inputs)
    return FrozenMap(values)


def _arriving(key: str, param: str, inputs: FrozenMap[str, tuple[ValueType, ...]]) -> Any:
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


def _remembered(spec: OpSpec, params: FrozenMap[str, Any], inputs: FrozenMap[str, Any]) -> Ran | Failed:
    key = (spec.key, params, inputs)
    with _memo_lock:
        kept = _memo.get(key)
        if kept is not None:
            _memo.move_to_end(key)
            return kept
    outcome = run(spec, params, inputs)
    with _memo_lock:
        _memo[key] = outcome
        if len(_memo) > _KEPT:
            _memo.popitem(last=False)
    return outcome
