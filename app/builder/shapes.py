"""What every wire carries, found by running each call on meta tensors: torch's own rules, no memory.

Each call runs with two batch sizes; a dimension that differs depends on N. Answers are kept by what determines them
(op, parameters, arriving types), so an edit runs again only what it changes.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import torch

from app.builder import ops
from app.builder.catalog import OpSpec
from app.builder.introspect import find
from app.builder.literals import AUTO, DType
from app.builder.plan import Plan, Ref, Step
from app.builder.value_types import Dim, TensorType, TupleType, ValueType
from app.frozen import FrozenMap

BATCHES = (64, 96)
_KEPT = 8192
_LARGEST_REAL = 1 << 22


@dataclass(frozen=True)
class Failed:
    """The call does not run: torch's words, from meta tensors and, where it was small enough to try, from real ones."""

    error: str
    real_error: str = ""


@dataclass(frozen=True)
class Ran:
    """The call runs: types of its outputs and how many parameters its module has.

    `fixed_batch` says that it ran with one batch size and not with another.
    """

    outputs: tuple[ValueType, ...]
    parameters: int = 0
    fixed_batch: bool = False


@dataclass(frozen=True)
class StepResult:
    """`outcome` is None where something upstream is missing or broken, so nothing can be said of this call."""

    outcome: Ran | Failed | None
    resolved: FrozenMap[str, Any]
    inputs: FrozenMap[str, tuple[ValueType, ...]]


_memo: OrderedDict[tuple[Any, ...], Ran | Failed] = OrderedDict()


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
    if step.spec.kind in ("unknown", "output") or not complete or not settled:
        return StepResult(None, resolved, known)  # type: ignore[arg-type]
    return StepResult(_remembered(step.spec, resolved, known), resolved, known)  # type: ignore[arg-type]


def _value(ref: Ref, results: dict[str, StepResult]) -> ValueType | None:
    result = results.get(ref.node)
    if result is None or not isinstance(result.outcome, Ran) or ref.output >= len(result.outcome.outputs):
        return None
    return result.outcome.outputs[ref.output]


def resolve(step: Step, inputs: FrozenMap[str, tuple[ValueType, ...]]) -> FrozenMap[str, Any]:
    """The node's parameters with every AUTO put in place as far as the arriving shapes tell."""
    values = dict(step.node.params)
    for param in step.spec.params:
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
    if key in _memo:
        _memo.move_to_end(key)
        return _memo[key]
    outcome = _memo[key] = run(spec, params, inputs)
    if len(_memo) > _KEPT:
        _memo.popitem(last=False)
    return outcome


def run(spec: OpSpec, params: FrozenMap[str, Any], inputs: FrozenMap[str, tuple[ValueType, ...]]) -> Ran | Failed:
    """Run one call on meta tensors with both batch sizes."""
    if spec.kind == "input":
        shape = tuple(params["shape"])
        return Ran((TensorType((Dim(1), *shape), params.get("dtype", DType("float32")).name),))
    try:
        with torch.no_grad(), torch.device("meta"):
            call, parameters = _callable(spec, params)
            first = call(_tensors(inputs, BATCHES[0], "meta"))
    except Exception as error:  # whatever torch raises is the answer
        return Failed(_words(error), _real_words(spec, params, inputs))
    try:
        with torch.no_grad(), torch.device("meta"):
            second = call(_tensors(inputs, BATCHES[1], "meta"))
    except Exception:  # it ran with one batch and not with the other: that is what there is to say
        return Ran(_outputs(spec, first, first), parameters, fixed_batch=True)
    return Ran(_outputs(spec, first, second), parameters)


def _callable(spec: OpSpec, params: FrozenMap[str, Any]) -> tuple[Any, int]:
    """A function of {port: tensors}, and the number of parameters of its module."""
    values = {name: _torch_value(value) for name, value in params.items()}
    target = find(spec.target)
    parameters = 0
    if spec.kind == "module":
        call_names = {param.name for param in spec.params if param.call}
        module = target(**{name: value for name, value in values.items() if name not in call_names})
        parameters = sum(parameter.numel() for parameter in module.parameters())
        target, values = module, {name: value for name, value in values.items() if name in call_names}
    if spec.kind in ("method", "operator"):
        ordered = [port.name for port in spec.inputs]
        return lambda tensors: target(*(tensors[name] for name in ordered), *values.values()), parameters
    return lambda tensors: target(**tensors, **values), parameters


def _torch_value(value: Any) -> Any:
    return getattr(torch, value.name) if isinstance(value, DType) else value


def _tensors(inputs: FrozenMap[str, tuple[ValueType, ...]], batch: int, device: str) -> dict[str, Any]:
    made = {port: [_tensor(value, batch, device) for value in values] for port, values in inputs.items()}
    return {port: values if port == "tensors" else values[0] for port, values in made.items()}


def _tensor(value: ValueType, batch: int, device: str) -> Any:
    if isinstance(value, TupleType):
        return tuple(_tensor(item, batch, device) for item in value.items)
    dtype = getattr(torch, value.dtype)
    return torch.zeros(value.at(batch), dtype=dtype, device=device)


def _outputs(spec: OpSpec, first: Any, second: Any) -> tuple[ValueType, ...]:
    if len(spec.outputs) == 1:
        return (_type(first, second),)
    return tuple(_type(a, b) for a, b in zip(first, second, strict=True) if a is not None)


def _type(first: Any, second: Any) -> ValueType:
    if isinstance(first, tuple | list):
        return TupleType(tuple(_type(a, b) for a, b in zip(first, second, strict=True)))
    sizes = tuple(_size(a, b) for a, b in zip(first.shape, second.shape, strict=True))
    return TensorType(sizes, str(first.dtype).removeprefix("torch."))


def _size(first: int, second: int) -> int | Dim:
    if first == second:
        return first
    scale = (second - first) // (BATCHES[1] - BATCHES[0])
    return Dim(scale, first - scale * BATCHES[0])


def _words(error: Exception) -> str:
    return str(error).partition("\n")[0].strip() or type(error).__name__


def _real_words(spec: OpSpec, params: FrozenMap[str, Any], inputs: FrozenMap[str, Any]) -> str:
    """What torch says with real tensors, whose words people can look up; "" where it is too large to try."""
    from app.rng import borrowed

    values = [value for group in inputs.values() for value in group]
    if any(not isinstance(v, TensorType) or _count(v) > _LARGEST_REAL for v in values):
        return ""
    try:
        with borrowed(), torch.no_grad():
            with torch.device("meta"):
                call, parameters = _callable(spec, params)
            if parameters > _LARGEST_REAL:
                return ""
            call, _ = _callable(spec, params)
            call(_tensors(inputs, BATCHES[0], "cpu"))
    except Exception as error:  # its words are what was asked for
        return _words(error)
    return ""


def _count(value: TensorType) -> int:
    count = 1
    for size in value.at(BATCHES[0]):
        count *= size
    return count
