"""Wiring by keyboard: a filtered list of the wires that could be drawn at a node, and one of those to cut."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct
from PySide6.QtCore import QPoint, QPointF, QRect

from app.builder import rules
from app.builder.catalog.catalog import Catalog, Port
from app.builder.graph import Edge, Graph
from app.views.canvas.items.faces import Pin
from app.views.ui import fuzzy
from app.views.ui.pick_box import GAP, PickRow, Question

if TYPE_CHECKING:
    from app.builder.results import Analysis
    from app.views.canvas.canvas import Canvas


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
        fit = fuzzy.score(query, (f"{offer.node} {offer.port}", 1.0))
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


def _rows(offers: list[Offer], query: str) -> list[PickRow]:
    """Make rows of those that match; an arrow shows the direction of the wire."""
    return [
        PickRow(
            f"→ {offer.node}" if offer.outgoing else f"← {offer.node}",
            offer.category,
            offer.wire,
            faint=offer.port,
            hint=offer.hint,
        )
        for offer in fitting(offers, query)
    ]


class Connector:
    """Opens the canvas's list of wires and applies the choice."""

    def __init__(self, canvas: Canvas) -> None:
        self._canvas = canvas

    def connect(self) -> None:
        """List wires from and into the selected node; of two selected nodes the wires between them."""
        canvas, scene = self._canvas, self._canvas.scene
        order = sorted(
            canvas.selection.ids & scene.nodes.keys(),
            key=lambda node: scene.nodes[node].x(),
        )
        if not 1 <= len(order) <= 2:
            canvas.say("Select the node to connect, or two nodes")
            return
        node, only = order[0], order[1:] or None
        offers = to_connect(scene.graph, canvas.catalog, scene.analysis, node, only)
        name = scene.graph.nodes[node].name
        if not offers:
            other = scene.graph.nodes[order[1]].name if only else "any other node"
            canvas.say(f"No port of {name} fits one of {other}")
            return
        self._open(
            node,
            offers,
            self._connect,
            f"Connect {name} to",
            "Enter connects: → from it, ← into it. Esc closes",
        )

    def connect_port(self, node: str, pin: Pin, from_output: bool) -> None:
        """List the wires that one port of a node can have."""
        canvas, scene = self._canvas, self._canvas.scene
        offers = [
            offer
            for offer in to_connect(scene.graph, canvas.catalog, scene.analysis, node)
            if offer.outgoing == from_output
            and (
                offer.wire.output == pin.index
                if from_output
                else offer.wire.port == pin.port
            )
        ]
        name = f"{'output' if from_output else 'input'} {pin.port} of {scene.graph.nodes[node].name}"
        if offers:
            self._open(
                node,
                offers,
                self._connect,
                f"Connect {name}",
                "Enter connects, Esc closes",
            )
        else:
            canvas.say(f"No port of another node fits {name}")

    def disconnect(self) -> None:
        """List the wires at the selected node, to be cut."""
        canvas, node = self._canvas, self._canvas.selection.single
        if node not in canvas.scene.nodes:
            canvas.say("Select one node to disconnect it")
            return
        name = canvas.scene.graph.nodes[node].name
        offers = to_cut(canvas.scene.graph, canvas.catalog, canvas.scene.analysis, node)
        if not offers:
            canvas.say(f"{name} has no wires")
            return
        self._open(
            node,
            offers,
            canvas.commands.cut_wire,
            f"Disconnect {name} from",
            "Enter cuts the wire, Esc closes",
        )

    def to_parameter(
        self, source: str, output: int, target: str, ports: list[str], point: QPointF
    ) -> None:
        """List the parameters of a node at which a wire dropped on its body can end; a single one is wired at once."""
        graph, catalog = self._canvas.scene.graph, self._canvas.catalog
        wires = [Edge(source, output, target, port) for port in ports]
        if len(wires) == 1:
            self._connect(wires[0])
            return
        node = graph.nodes[target]
        offers = [
            Offer(wire, wire.port, "", catalog.spec_of(graph, node).category, "", True)
            for wire in wires
        ]
        view = self._canvas.view
        self._ask(
            offers,
            self._connect,
            f"Parameter of {node.name}",
            f"Enter connects it to {graph.nodes[source].name}, Esc closes",
            view.mapTo(self._canvas, view.mapFromScene(point)),
        )

    def _open(
        self,
        node: str,
        offers: list[Offer],
        do: Callable[[Edge], object],
        placeholder: str,
        hint: str,
    ) -> None:
        canvas = self._canvas
        canvas.reveal([node])
        body = canvas.on_canvas(canvas.scene.nodes[node].body).toRect()
        spot = body.bottomLeft() + QPoint(0, GAP)
        self._ask(offers, do, placeholder, hint, spot, body)

    def _ask(
        self,
        offers: list[Offer],
        do: Callable[[Edge], object],
        placeholder: str,
        hint: str,
        spot: QPoint,
        beside: QRect | None = None,
    ) -> None:
        nothing = "No matching port: try fewer letters"
        question = Question(placeholder, hint, nothing, partial(_rows, offers), do)
        self._canvas.connect_box.ask(question, spot, beside)

    def _connect(self, wire: Edge) -> None:
        self._canvas.commands.connect_ports(
            wire.source, wire.output, wire.target, wire.port
        )
