"""Sizes inside a block that depend on its parameters, found by changing a parameter and re-inferring.

A BatchNorm after a convolution of `channels` has `channels` features. Inferred from one instance it would be a literal;
the generated class should say `channels`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from app.builder.blocks import Block
from app.builder.expressions import Expr, ExpressionError, expressions
from app.builder.literals import AUTO
from app.builder.plan import Plan, Step, plan
from app.builder.results import Inside, Ran, StepResult
from app.builder.shapes.shapes import computed_plan, infer
from app.builder.value_types import TensorType, ValueType
from app.util.frozen import FrozenMap

# Three times as large is divisible by whatever the size was divisible by.
_TIMES = 3


def followed(block: Block, inside: Inside) -> dict[tuple[str, str], Any]:
    """Map node and parameter to an expression, or a tuple with expressions, for each inferred size that depends on a
    parameter of the block. Only ints are tried."""
    expressions_by_param: dict[tuple[str, str], Any] = {}
    inferring = [step for step in inside.plan.steps if step.live and any(_open(step))]
    written = {
        expression
        for node in block.graph.nodes.values()
        for value in node.params.values()
        for expression in expressions(value)
    }
    for param in block.params if inferring else ():
        now = inside.values.get(param.name)
        if param.kind != "int" or type(now) is not int or now < 1:
            continue
        values = inside.values.set(param.name, _TIMES * now)
        other = _elsewhere(block, inside, values, now)
        if other is None:
            continue
        mine = sorted(
            (e for e in written if e.names == {param.name}), key=lambda e: len(e.text)
        )
        candidates = (Expr(param.name), *mine)
        for step in inferring:
            for name in _open(step):
                before, after = (
                    results[step.id].resolved.get(name)
                    for results in (inside.results, other)
                )
                text = _matching(before, after, candidates, inside.values, values)
                if text is not None:
                    expressions_by_param.setdefault((step.id, name), text)
    return expressions_by_param


def _open(step: Step) -> Iterator[str]:
    """Yield the parameters that are inferred from the input."""
    if step.spec.kind == "module" and step.node.repeat == 1 and step.module == step.id:
        for param in step.spec.params:
            if param.auto and step.node.params.get(param.name, AUTO) is AUTO:
                yield param.name


def _elsewhere(
    block: Block, inside: Inside, values: FrozenMap[str, Any], now: int
) -> Mapping[str, StepResult] | None:
    """Re-infer with another value of a parameter: with the same inputs, or if that fails, with sizes equal to the
    parameter changed along. None if both fail."""
    assert inside.plan.catalog is not None
    walk = computed_plan(plan(block.graph, inside.plan.catalog), values)
    input_types = {}
    for node in block.inputs:
        outcome = inside.results[node.id].outcome if node.id in inside.results else None
        if isinstance(outcome, Ran):
            input_types[node.id] = outcome.outputs[0]
    for arriving in (
        input_types,
        {node: _grown(value, now) for node, value in input_types.items()},
    ):
        results = infer(walk, arriving)
        if _all_run(walk, results):
            return results
    return None


def _all_run(walk: Plan, results: Mapping[str, StepResult]) -> bool:
    return all(
        isinstance(results[step.id].outcome, Ran)
        for step in walk.steps
        if step.live and step.spec.kind != "output"
    )


def _grown(value: ValueType, now: int) -> ValueType:
    if not isinstance(value, TensorType):
        return value
    return replace(
        value,
        shape=tuple(_TIMES * size if size == now else size for size in value.shape),
        strides=None,
    )


def _matching(
    before: Any,
    after: Any,
    candidates: tuple[Expr, ...],
    values: Mapping[str, Any],
    others: Mapping[str, Any],
) -> Any:
    """Return the first candidate that evaluates to `before` with one set of values and to `after` with the other, or
    None."""
    if (
        isinstance(before, tuple)
        and isinstance(after, tuple)
        and len(before) == len(after)
    ):
        items = tuple(
            _matching(a, b, candidates, values, others) or a
            for a, b in zip(before, after, strict=True)
        )
        return items if items != before else None
    if type(before) is not int or type(after) is not int or before == after:
        return None
    for candidate in candidates:
        try:
            if (
                candidate.evaluate(values) == before
                and candidate.evaluate(others) == after
            ):
                return candidate
        except ExpressionError:
            continue
    return None
