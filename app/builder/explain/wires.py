"""Cures that connect a missing input."""

from __future__ import annotations

import re
from collections.abc import Iterator

from app.builder.diagnostics.problems import Connect, Cure, SetParam
from app.builder.graph import Graph, Node
from app.builder.plan import Step

_MOST = 3


def wire_cures(step: Step, missing: tuple[str, ...], graph: Graph) -> tuple[Cure, ...]:
    """Propose wires for the ports `missing` of a call, the likeliest first; each is tried before it is offered."""
    if re.fullmatch(r"nn\.MaxUnpool[123]d", step.spec.key) and missing == ("indices",):
        return tuple(_indices(step, graph))[:_MOST]
    if step.spec.key in ("nn.MultiheadAttention", "F.scaled_dot_product_attention"):
        return tuple(_attention(step, missing, graph))
    if step.spec.kind == "output":
        return tuple(_loose_ends(step, graph))[:1]  # common while drawing, so only one
    return ()


def _loose_ends(step: Step, graph: Graph) -> Iterator[Cure]:
    """Propose unconnected outputs, the most recently drawn node first."""
    for node in reversed(tuple(graph.nodes.values())):
        if node.op not in ("output", "input") and node.id != step.id and not graph.out_of(node.id):
            yield Cure(f"Connect {node.name}", (Connect(step.id, step.spec.inputs[0].name, node.id),))


def _indices(step: Step, graph: Graph) -> Iterator[Cure]:
    """Propose the unused indices of an upstream pool, the nearest first."""
    for pool in _upstream(step.id, graph):
        if not re.fullmatch(rf"nn\.\w*MaxPool{step.spec.key[-2]}d", pool.op):
            continue
        if any(edge.output == 1 and graph.nodes[edge.target].op == step.spec.key for edge in graph.out_of(pool.id)):
            continue
        wire = Connect(step.id, "indices", pool.id, 1)
        module = graph.owner(pool.id)
        giving = () if module.params.get("return_indices") else (SetParam(module.id, "return_indices", True),)
        yield Cure(f"Take the indices from {pool.name}", (*giving, wire))


def _upstream(start: str, graph: Graph) -> Iterator[Node]:
    """Yield the nodes upstream of one, the nearest first."""
    todo, seen = [start], {start}
    for node in todo:
        fresh = [edge.source for edge in graph.into(node) if edge.source not in seen]
        for source in dict.fromkeys(fresh):
            seen.add(source)
            todo.append(source)
            yield graph.nodes[source]


def _attention(step: Step, missing: tuple[str, ...], graph: Graph) -> Iterator[Cure]:
    """Attention of a sequence to itself, or of values that are the keys."""
    wired = {edge.port: edge for edge in graph.into(step.id)}
    giver = wired.get("key") or wired.get("value") or wired.get("query")
    if giver is None or not set(missing) <= {"query", "key", "value"}:
        return
    edits = tuple(Connect(step.id, port, giver.source, giver.output) for port in missing)
    yield Cure(f"Take {' and '.join(missing)} from {graph.nodes[giver.source].name}", edits)
