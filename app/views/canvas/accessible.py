"""What a screen reader finds on the canvas: nodes with their ports, wires, comments and frames."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from PySide6.QtCore import QPoint, QPointF, QRectF

from app.builder.graph import Edge
from app.builder.plan import plan
from app.views.canvas.gestures.gesture import Hit
from app.views.canvas.items.faces import Pin
from app.views.canvas.items.geometry import PORT_REACH
from app.views.ui.graphview.accessible import MENU, PRESS, GraphAccess, PartFacts, Role

if TYPE_CHECKING:
    from app.views.canvas.canvas import Canvas

# Names of actions, and the canvas's own that they are.
OF_NODE = {
    "Edit": "edit",
    "Rename": "rename",
    "Replace": "replace",
    "Connect": "connect",
    "Disconnect": "disconnect",
    "Mute or unmute": "mute",
    "Freeze or unfreeze": "freeze",
    "Delete": "delete",
}
OF_BLOCK = {"Unfold or fold": "unfold"}
OF_WIRE = {"Bend": "bend", "Straighten": "straighten", "Delete": "delete"}
OF_NOTE = {"Edit": "edit", "Delete": "delete"}
INSERT, ADD = "Insert layer", "Add layer"
SHORTCUTS = OF_NODE | OF_BLOCK | OF_WIRE


class NodeKey(Struct, frozen=True):
    node: str


class PortKey(Struct, frozen=True):
    node: str
    output: bool
    number: int


class WireKey(Struct, frozen=True):
    wire: Edge


class NoteKey(Struct, frozen=True):
    note: str


class CanvasAccess(GraphAccess):
    """The parts of the canvas: nodes in execution order, then wires, then comments and frames."""

    def __init__(self, canvas: Canvas) -> None:
        super().__init__(canvas.view)
        self._canvas, self._scene = canvas, canvas.scene
        canvas.scene.redrawn.connect(self.changed)
        canvas.selection.changed.connect(self.chosen_changed)
        canvas.commands.marked.connect(self.chosen_changed)

    def top_keys(self) -> Iterable[Hashable]:
        graph = self._scene.graph
        order = plan(graph, self._canvas.catalog)
        ids = dict.fromkeys(
            [*(step.node.id for step in order.steps), *order.loops, *graph.nodes]
        )
        number = {node: position for position, node in enumerate(ids)}
        wires = sorted(
            self._scene.wires,
            key=lambda wire: (number[wire.source], number[wire.target], wire.index),
        )
        nodes = [NodeKey(node) for node in ids if node in self._scene.nodes]
        return [*nodes, *map(WireKey, wires), *map(NoteKey, self._scene.notes.items)]

    def inner_keys(self, key: Hashable) -> Sequence[Hashable]:
        if not isinstance(key, NodeKey) or key.node not in self._scene.nodes:
            return ()
        face = self._scene.nodes[key.node].face
        ports = [PortKey(key.node, False, number) for number in range(len(face.inputs))]
        return [
            *ports,
            *(PortKey(key.node, True, number) for number in range(len(face.outputs))),
        ]

    def parent_key(self, key: Hashable) -> Hashable | None:
        return NodeKey(key.node) if isinstance(key, PortKey) else None

    # --- What they say

    def facts(self, key: Hashable) -> PartFacts | None:
        if isinstance(key, NodeKey) and key.node in self._scene.nodes:
            return self._node(key.node)
        if isinstance(key, PortKey) and self._pin(key) is not None:
            return self._port(key)
        if isinstance(key, WireKey) and key.wire in self._scene.wires:
            return self._wire(key.wire)
        if isinstance(key, NoteKey) and key.note in self._scene.notes.items:
            item = self._scene.notes.items[key.note]
            kind = "Frame" if item.is_frame else "Comment"
            return PartFacts(
                f"{kind}: {item.note.text}",
                "",
                Role.ListItem,
                item.body,
                (PRESS, *OF_NOTE),
            )
        return None

    def _node(self, node: str) -> PartFacts:
        scene, item = self._scene, self._scene.nodes[node]
        face = item.face
        states = {
            "muted": face.muted,
            "frozen": face.frozen,
            "shares its weights": face.shared,
            "block": face.block,
        }
        details = [
            face.detail,
            f"repeated {face.badge.removeprefix('×')} times" if face.badge else "",
            *(word for word, on in states.items() if on),
            *(
                f"output {value}"
                for number in range(len(face.outputs))
                if (value := self._value(node, number))
            ),
            *(
                f"{problem.severity}: {problem.message}"
                for problem in scene.problems.get(node, ())
            ),
        ]
        folded = face.inside is None if face.block else None
        actions = (PRESS, *OF_NODE, *(OF_BLOCK if face.block else ()), MENU)
        name = ", ".join(
            filter(
                None,
                (face.name, face.line, face.state if face.state != "unknown" else ""),
            )
        )
        return PartFacts(
            name,
            ". ".join(filter(None, details)),
            Role.ListItem,
            item.body,
            actions,
            folded,
        )

    def _value(self, node: str, output: int) -> str:
        analysis = self._scene.analysis
        value = analysis.values.get((node, output)) if analysis is not None else None
        return str(value) if value is not None else ""

    def _pin(self, key: PortKey) -> Pin | None:
        item = self._scene.nodes.get(key.node)
        pins = (
            ()
            if item is None
            else item.face.outputs
            if key.output
            else item.face.inputs
        )
        return pins[key.number] if key.number < len(pins) else None

    def _port(self, key: PortKey) -> PartFacts:
        pin, item = self._pin(key), self._scene.nodes[key.node]
        assert pin is not None
        graph = self._scene.graph
        side = "output" if key.output else "input"
        called = side if pin.port == side else f"{side} {pin.port}"
        if key.output:
            ends = [
                graph.nodes[edge.target].name
                for edge in graph.out_of(key.node)
                if edge.output == key.number
            ]
        else:
            ends = [
                graph.nodes[edge.source].name
                for edge in graph.into(key.node)
                if (edge.port, edge.index) == (pin.port, pin.index)
            ]
        details = [
            pin.kind,
            self._value(key.node, key.number) if key.output else "",
            f"connected to {', '.join(ends)}" if ends else "not connected",
            "the shapes do not match" if pin.error else "",
        ]
        at = (
            item.output_point(key.number)
            if key.output
            else item.input_point(key.number)
        )
        area = QRectF(
            at.x() - PORT_REACH, at.y() - PORT_REACH, 2 * PORT_REACH, 2 * PORT_REACH
        )
        name = f"{called} of {item.face.name}"
        return PartFacts(
            name, ", ".join(filter(None, details)), Role.Button, area, (PRESS, ADD)
        )

    def _wire(self, wire: Edge) -> PartFacts:
        scene, nodes = self._scene, self._scene.graph.nodes
        item = scene.wires[wire]
        kinds = {"error": "The shapes do not match", "assumed": "The shape is assumed"}
        details = [
            self._value(wire.source, wire.output),
            kinds.get(item.state, ""),
            f"into port {wire.port}",
        ]
        name = f"Wire from {nodes[wire.source].name} to {nodes[wire.target].name}"
        area = item.route.path.boundingRect().adjusted(-2, -2, 2, 2)
        actions = (PRESS, INSERT, *OF_WIRE)
        return PartFacts(
            name, ", ".join(filter(None, details)), Role.ListItem, area, actions
        )

    def key_at(self, point: QPoint) -> Hashable | None:
        hit = self._scene.hit(self.view.mapToScene(point), self._canvas.view.zoom)
        if hit.node is not None:
            return NodeKey(hit.node)
        return (
            WireKey(hit.wire)
            if hit.wire is not None
            else NoteKey(hit.note)
            if hit.note is not None
            else None
        )

    # --- Selecting and acting

    def chosen_keys(self) -> Sequence[Hashable]:
        scene = self._scene
        nodes = [
            NodeKey(node) for node in scene.nodes if node in self._canvas.selection.ids
        ]
        return [
            *nodes,
            *map(WireKey, scene.selected_wires),
            *map(NoteKey, scene.notes.selected),
        ]

    def choose(self, keys: Collection[Hashable]) -> None:
        nodes = [key.node for key in keys if isinstance(key, NodeKey | PortKey)]
        wires = [key.wire for key in keys if isinstance(key, WireKey)]
        self._canvas.commands.select(
            nodes, [key.note for key in keys if isinstance(key, NoteKey)]
        )
        if wires:
            self._scene.select_wires(wires)
            self._canvas.commands.marked.emit()
        areas = [facts.area for key in keys if (facts := self.facts(key)) is not None]
        if len(areas) == 1:
            self._canvas.reveal_area(areas[0])

    def act(self, key: Hashable, action: str) -> None:
        self.choose([key])
        if isinstance(key, PortKey):
            self._act_on_port(key, action)
        elif isinstance(key, WireKey) and action == INSERT:
            middle = self._scene.wires[key.wire].route.path.pointAtPercent(0.5)
            self._canvas.finder.for_wire(key.wire, middle)
        elif isinstance(key, NodeKey) and action == MENU:
            corner = self.view.mapFromScene(
                self._scene.nodes[key.node].body.bottomLeft()
            )
            self._canvas.open_menu(
                Hit(node=key.node), self.view.viewport().mapToGlobal(corner)
            )
        elif action != PRESS:
            self._canvas.actions_by_key[SHORTCUTS[action]].trigger()

    def _act_on_port(self, key: PortKey, action: str) -> None:
        pin, item = self._pin(key), self._scene.nodes[key.node]
        if pin is None:
            return
        if action == ADD:
            at = (
                item.output_point(key.number)
                if key.output
                else item.input_point(key.number)
            )
            away = QPointF(48, 0) if key.output else QPointF(-48, 0)
            self._canvas.finder.for_loose_end(key.node, key.output, pin, at + away)
        else:
            self._canvas.connector.connect_port(key.node, pin, key.output)

    def shortcut(self, action: str) -> list[str]:
        action_key = SHORTCUTS.get(action)
        keys = (
            self._canvas.actions_by_key[action_key].shortcuts()
            if action_key is not None
            else []
        )
        return [key.toString() for key in keys]
