"""Try other input sizes: whether the net still runs, with its output shape and cost."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from app.builder.analysis import shapes_first
from app.builder.catalog.catalog import Catalog
from app.builder.graph import Graph
from app.builder.shapes.cost import cost
from app.builder.shapes.input_sizes import Shape, Tried


def tried(
    graph: Graph, ops: Catalog, node: str, shapes: Iterable[Shape]
) -> tuple[Tried, ...]:
    """Try each shape for the input `node`, which must be in the graph. Never raises."""
    return tuple(_tried(graph, ops, node, shape) for shape in shapes)


def _tried(graph: Graph, ops: Catalog, node: str, shape: Shape) -> Tried:
    given = replace(
        graph.nodes[node], params=graph.nodes[node].params.set("shape", shape)
    )
    candidate = graph.with_node(given)
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
