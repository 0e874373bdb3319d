"""Which wires could be drawn at a node, and which are there, as rows to choose from. Qt-free."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

from app.builder import rules
from app.builder.catalog.catalog import Catalog, Port
from app.builder.graph import Edge, Graph
from app.views.ui import fuzzy

if TYPE_CHECKING:
    from app.builder.results import Analysis


class Offer(Struct, frozen=True):
    """A candidate wire seen from one end: `node` and `port` name the other end.

    `hint` says what the wire carries, or which wire it replaces.
    """

    wire: Edge
    node: str
    port: str
    category: str
    hint: str
    outgoing: bool


def to_connect(
    graph: Graph,
    catalog: Catalog,
    analysis: Analysis | None,
    node: str,
    only: Collection[str] | None = None,
) -> list[Offer]:
    """List every possible wire from a node, then every one into it; free ports first.

    `only` are the nodes at the other end.
    """
    others = [
        other
        for other in graph.nodes
        if other != node and (only is None or other in only)
    ]
    before, behind = rules.upstream(graph, (node,)), rules.downstream(graph, (node,))
    out_offers = [
        offer
        for other in others
        if other not in before
        for offer in _wires(graph, catalog, analysis, node, other)
    ]
    into = [
        offer
        for other in others
        if other not in behind
        for offer in _wires(graph, catalog, analysis, other, node, outgoing=False)
    ]
    return sorted(out_offers, key=_replaces_wire) + sorted(into, key=_replaces_wire)


def to_cut(
    graph: Graph, catalog: Catalog, analysis: Analysis | None, node: str
) -> list[Offer]:
    """List every wire at a node, outgoing ones first."""
    return [
        _offer(
            graph, catalog, edge, _carried(analysis, edge), outgoing=edge.source == node
        )
        for edge in (*graph.out_of(node), *graph.into(node))
    ]


def parameters(
    graph: Graph, catalog: Catalog, source: str, output: int, target: str
) -> list[str]:
    """List the parameters of a node that an output can be wired to."""
    ports = rules.wirable(graph, catalog, target)
    return [
        port.name
        for port in ports
        if rules.can_connect(graph, catalog, source, output, target, port.name)
    ]


def fitting(offers: list[Offer], query: str) -> list[Offer]:
    """Filter offers by letters of node and port, best first; a part of a shape matches too. No letters match all."""
    scored = []
    for offer in offers:
        fit = fuzzy.score(query, f"{offer.node} {offer.port}")
        if fit is None and query and query.lower() in offer.hint.lower():
            fit = 0.0
        if fit is not None:
            scored.append((fit, offer))
    return [offer for _, offer in sorted(scored, key=lambda pair: -pair[0])]


def _wires(
    graph: Graph,
    catalog: Catalog,
    analysis: Analysis | None,
    source: str,
    target: str,
    outgoing: bool = True,
) -> Iterator[Offer]:
    """Yield the possible wires from one node to another without creating a cycle."""
    outputs = catalog.spec_of(graph, graph.nodes[source]).outputs
    ports = _ports(graph, catalog, target)
    arriving = {edge.port: edge for edge in graph.into(target)}
    for number, output in enumerate(outputs):
        for port in ports:
            occupying = None if port.variadic else arriving.get(port.name)
            there = occupying is not None and (occupying.source, occupying.output) == (
                source,
                number,
            )
            if not there and rules.kinds_fit(output.kind, port.kind):
                wire = Edge(source, number, target, port.name)
                hint = (
                    f"instead of {graph.nodes[occupying.source].name}"
                    if occupying
                    else _carried(analysis, wire)
                )
                yield _offer(graph, catalog, wire, hint, outgoing)


def _ports(graph: Graph, catalog: Catalog, node: str) -> list[Port]:
    """Return the inputs of a node, then the parameters that can be wired."""
    inputs = list(catalog.spec_of(graph, graph.nodes[node]).inputs)
    names = {port.name for port in inputs}
    return inputs + [
        port for port in rules.wirable(graph, catalog, node) if port.name not in names
    ]


def _offer(
    graph: Graph, catalog: Catalog, wire: Edge, hint: str, outgoing: bool
) -> Offer:
    other = graph.nodes[wire.target if outgoing else wire.source]
    outputs = catalog.spec_of(graph, graph.nodes[wire.source]).outputs
    output_name = (
        outputs[wire.output].name
        if len(outputs) > 1 and wire.output < len(outputs)
        else ""
    )
    port = f"{output_name} → {wire.port}" if output_name else wire.port
    return Offer(
        wire, other.name, port, catalog.spec_of(graph, other).category, hint, outgoing
    )


def _carried(analysis: Analysis | None, wire: Edge) -> str:
    value = (
        analysis.values.get((wire.source, wire.output))
        if analysis is not None
        else None
    )
    return str(value) if value is not None else ""


def _replaces_wire(offer: Offer) -> bool:
    return offer.hint.startswith("instead of")
