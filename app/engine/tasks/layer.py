"""Handlers of `app.engine.requests.layer`."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from msgspec.structs import replace

from app.builder.analysis import shapes_first
from app.builder.catalog.catalog import Catalog, OpSpec
from app.builder.catalog.init_checks import parameter_shapes, refusal
from app.builder.graph import Graph
from app.builder.literals import AUTO
from app.builder.params import ParamError, check_param
from app.builder.shapes.cost import cost
from app.builder.shapes.input_sizes import Shape, Tried
from app.builder.shapes.meta_calls import TorchCall
from app.engine.requests.layer import (
    ConstructorError,
    Initialisable,
    Initialisations,
    TrySizes,
)
from app.engine.server import Context, handles
from app.util.frozen import FrozenMap


@handles(Initialisations)
def initialisations(request: Initialisations, _context: Context) -> Initialisable:
    shapes = parameter_shapes(request.spec, request.resolved)
    refusals = {
        name: refusal(request.spec, request.resolved, name, init)
        for name, init in request.wanted.items()
    }
    return Initialisable(
        FrozenMap(shapes),
        FrozenMap({name: message for name, message in refusals.items() if message}),
    )


@handles(ConstructorError)
def constructor_error(request: ConstructorError, _context: Context) -> str:
    return torch_message(request.spec, request.params, request.name, request.text)


@handles(TrySizes)
def try_sizes(request: TrySizes, _context: Context) -> tuple[Tried, ...]:
    return tried(request.graph, request.catalog, request.node, request.shapes)


# --- PyTorch's own error for an argument of a constructor


# Larger numbers are not tried: constructing so large a module for its error alone is too slow.
_LARGEST = 4096
# Substitute for sizes inferred from unknown shapes; most numbers of heads and groups divide it.
_ARRIVING = 64


def torch_message(spec: OpSpec, params: Mapping[str, Any], name: str, text: str) -> str:
    """Return torch's error for a layer whose argument `name` is `text`.

    "" if torch accepts it, or if it is not tried. Nothing is allocated.
    """
    param = spec.param(name)
    value = _value(text)
    if spec.kind != "module" or param is None or param.call or not _small(value):
        return ""
    arguments = {
        other.name: params.get(other.name, other.default) for other in spec.params
    }
    trial_values = {
        key: _ARRIVING if argument is AUTO else argument
        for key, argument in arguments.items()
    }
    try:
        for other in spec.params:
            if other.name != name:
                check_param(other, trial_values[other.name])
    except ParamError:  # another argument is invalid, and torch would report that one
        return ""
    if _refused(spec, FrozenMap(trial_values)):
        return ""
    return _refused(spec, FrozenMap({**trial_values, name: value}))


def _refused(spec: OpSpec, params: FrozenMap[str, Any]) -> str:
    """Return torch's error for a layer with these arguments, "" if none."""
    try:
        with torch.device("meta"):
            TorchCall.resolve(spec, params)
    except Exception as error:  # torch's message is the answer
        return str(error).strip().partition("\n")[0] or type(error).__name__
    return ""


def _value(text: str) -> Any:
    """Parse typed text as a Python literal; text if it is none."""
    plain = text.strip().replace("−", "-").replace("×", ",")
    try:
        return ast.literal_eval(plain)
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return plain


def _small(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return len(value) <= 8 and all(map(_small, value))
    return not isinstance(value, int | float) or abs(value) <= _LARGEST


# --- Other input sizes


def tried(
    graph: Graph, ops: Catalog, node: str, shapes: Iterable[Shape]
) -> tuple[Tried, ...]:
    """Try each shape for the input `node`, which must be in the graph. Never raises."""
    return tuple(_tried(graph, ops, node, shape) for shape in shapes)


def _tried(graph: Graph, ops: Catalog, node: str, shape: Shape) -> Tried:
    input_node = replace(
        graph.nodes[node], params=graph.nodes[node].params.set("shape", shape)
    )
    candidate = graph.with_node(input_node)
    analysis = shapes_first(candidate, ops)
    if analysis.errors:
        first = next(
            (problem for problem in analysis.errors if problem.node is not None),
            analysis.errors[0],
        )
        at = graph.nodes.get(first.node or "")
        return Tried(
            shape,
            False,
            (),
            at.id if at else None,
            at.name if at else "",
            first.message,
        )
    outputs = []
    for end in graph.nodes.values():
        for edge in graph.into(end.id) if end.op == "output" else ():
            outputs.append(
                (
                    end.name,
                    str(analysis.values.get((edge.source, edge.output), "unknown")),
                )
            )
    return Tried(
        shape,
        True,
        tuple(outputs),
        parameters=analysis.total_parameters,
        multiply_adds=cost(candidate, ops).multiply_adds,
    )
