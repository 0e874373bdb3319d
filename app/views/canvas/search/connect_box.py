"""Wiring by keyboard: a filtered list of the ports that fit a node, and one of the wires to cut."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from PySide6.QtCore import QPoint, QPointF, QRect
from PySide6.QtWidgets import QWidget

from app.builder.graph import Edge
from app.views.canvas.items.faces import Pin
from app.views.canvas.search import connect_candidates
from app.views.canvas.search.connect_candidates import Offer
from app.views.canvas.search.pick_box import GAP, PickBox, PickRow

if TYPE_CHECKING:
    from app.views.canvas.canvas import Canvas

WIDTH = 360


class ConnectBox(PickBox):
    """Lists wires; `picked` emits the chosen one."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__("", WIDTH, parent)
        self._offers: list[Offer] = []
        self.setAccessibleName("Connect")
        self.rows.setAccessibleName("Ports found")

    def open_at(
        self,
        spot: QPoint,
        wires: list[Offer],
        placeholder: str,
        hint: str,
        beside: QRect | None = None,
    ) -> None:
        """Open near a point of the parent with these wires, next to `beside`."""
        self._offers = wires
        self.field.setPlaceholderText(placeholder)
        self.field.setAccessibleName(placeholder)
        self.show_at(spot, hint, beside)

    def matches(self, query: str) -> list[PickRow]:
        return [
            _row(offer) for offer in connect_candidates.fitting(self._offers, query)
        ]

    def nothing(self, query: str) -> str:
        return "No matching port: try fewer letters"


def _row(offer: Offer) -> PickRow:
    """Make a row; an arrow shows the direction of the wire."""
    text = f"→ {offer.node}" if offer.outgoing else f"← {offer.node}"
    return PickRow(text, offer.category, offer.wire, faint=offer.port, hint=offer.hint)


class Connector:
    """Opens the canvas's list of wires and applies the choice."""

    def __init__(self, canvas: Canvas) -> None:
        self._canvas = canvas
        self._do: Callable[[Edge], object] = self._connect
        canvas.connect_box.picked.connect(self._picked)

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
        offers = connect_candidates.to_connect(
            scene.graph, canvas.catalog, scene.analysis, node, only
        )
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
            for offer in connect_candidates.to_connect(
                scene.graph, canvas.catalog, scene.analysis, node
            )
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
        offers = connect_candidates.to_cut(
            canvas.scene.graph, canvas.catalog, canvas.scene.analysis, node
        )
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
        self._do = self._connect
        canvas = self._canvas
        canvas.connect_box.open_at(
            canvas.view.mapTo(canvas, canvas.view.mapFromScene(point)),
            offers,
            f"Parameter of {node.name}",
            f"Enter connects it to {graph.nodes[source].name}, Esc closes",
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
        self._do = do
        canvas.reveal([node])
        body = canvas.on_canvas(canvas.scene.nodes[node].body).toRect()
        canvas.connect_box.open_at(
            body.bottomLeft() + QPoint(0, GAP), offers, placeholder, hint, body
        )

    def _connect(self, wire: Edge) -> None:
        self._canvas.commands.connect_ports(
            wire.source, wire.output, wire.target, wire.port
        )

    def _picked(self, wire: Edge) -> None:
        self._do(wire)
