"""Drawing a wire from a port, or taking the end of one elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QPoint, QPointF

from app.builder import rules
from app.builder.graph import Edge
from app.views.canvas import connect
from app.views.canvas.gestures.gesture import Drag, Gesture, Hit, Modifiers, WirePreview
from app.views.canvas.items.geometry import PORT_REACH
from app.views.canvas.items.node_item import NodeItem
from app.views.canvas.items.painter import FITS, REFUSES

if TYPE_CHECKING:
    from app.views.canvas.view import CanvasView


class DrawWire(Drag):
    """Draw a wire from a port. Ports that fit are ringed; a port that refuses says why; dropping it on the canvas opens
    the search."""

    def __init__(
        self, view: CanvasView, point: QPointF, hit: Hit, detached: Edge | None = None
    ) -> None:
        super().__init__(view, point)
        assert hit.node is not None and hit.pin is not None
        self._node, self._pin, self._from_output = hit.node, hit.pin, hit.is_output
        self._detached = detached
        self._graph = (
            view.canvas_scene.graph.without_edge(detached)
            if detached
            else view.canvas_scene.graph
        )
        self._rings: dict[str, dict[tuple[bool, int], str]] = {}
        item = self.scene.nodes[self._node]
        number = (
            self._pin.index
            if self._from_output
            else item.input_number(self._pin.port, self._pin.index)
        )
        fast = (
            item.output_point(number) if self._from_output else item.input_point(number)
        )
        self._wire = WirePreview(fast, self._from_output, self._pin.kind)

    def begin(self) -> None:
        self.scene.addItem(self._wire)
        self._ring_what_fits()
        if self._detached is not None:
            self.scene.wires[self._detached].set_shown(False)

    def drag(self, point: QPointF, keys: Modifiers) -> None:
        node, target = self._aim(point)
        refusal = "" if target is None else self._refusal(target)
        self._mark(node, target, refusal)
        parameters = self._parameters(node, target)
        self._wire.set_end(
            self._end(target, point),
            bool(parameters) or bool(target) and not refusal,
            bool(refusal),
        )
        hint = ""
        if node is not None and parameters:
            hint = f"To {parameters[0] if len(parameters) == 1 else 'a parameter'} of {self.commands.name(node)}"
        tell = self.view.hint if hint else self.view.refusal
        tell.emit(hint or refusal, self.view.mapFromScene(point))

    def _parameters(
        self, node: str | None, target: tuple[str, bool, int] | None
    ) -> list[str]:
        """On the body of a node of which no input fits: its parameters that could be wired instead of typed."""
        if (
            node is None
            or node == self._node
            or target is not None
            or not self._from_output
        ):
            return []
        return connect.parameters(
            self._graph, self.scene.catalog, self._node, self._pin.index, node
        )

    def _end(self, target: tuple[str, bool, int] | None, point: QPointF) -> QPointF:
        if target is None:
            return point
        item = self.scene.nodes[target[0]]
        return (
            item.output_point(target[2]) if target[1] else item.input_point(target[2])
        )

    def _aim(self, point: QPointF) -> tuple[str | None, tuple[str, bool, int] | None]:
        """Return the node under the pointer, and the targeted port as (node, is an output, number)."""
        hit = self.scene.hit(point, self.view.zoom)
        if hit.node is None or (hit.node == self._node and hit.pin is not None):
            return None, None
        item = self.scene.nodes[hit.node]
        port = item.port_at(
            point, max(PORT_REACH, min(PORT_REACH / self.view.zoom, 18.0))
        )
        if port is not None and port[0] != self._from_output:
            return hit.node, (hit.node, port[0], port[1])
        number = self._best(hit.node, item)
        return hit.node, None if number is None else (
            hit.node,
            not self._from_output,
            number,
        )

    def _best(self, node: str, item: NodeItem) -> int | None:
        """On the body of a node: its first free port that fits, else its first."""
        if self._from_output:
            port = rules.first_free_input(
                self._graph, self.scene.catalog, self._node, self._pin.index, node
            )
            pins = item.face.inputs
            if port is None:
                return 0 if pins else None
            return max(
                (i for i, pin in enumerate(pins) if pin.port == port), default=None
            )
        outputs = range(len(item.face.outputs))
        return next(
            (i for i in outputs if not self._refusal((node, True, i))),
            0 if outputs else None,
        )

    def _ends(self, target: tuple[str, bool, int]) -> tuple[str, int, str, str]:
        """Return the wire as (source, output, target, port)."""
        node, is_output, number = target
        if is_output:
            return node, number, self._node, self._pin.port
        return (
            self._node,
            self._pin.index,
            node,
            self.scene.nodes[node].face.inputs[number].port,
        )

    def _refusal(self, target: tuple[str, bool, int]) -> str:
        try:
            rules.check_connect(self._graph, self.scene.catalog, *self._ends(target))
        except rules.ConnectError as error:
            return str(error)
        return ""

    def _ring_what_fits(self) -> None:
        """Ring the fitting ports in view; others are checked when aimed at."""
        for node in self.scene.index.inside(self.view.visible_area()):
            if node == self._node:
                continue
            item, side = self.scene.nodes[node], not self._from_output
            count = len(item.face.outputs if side else item.face.inputs)
            fits = {
                (side, i): FITS
                for i in range(count)
                if not self._refusal((node, side, i))
            }
            if fits:
                self._rings[node] = fits
                item.set_marks(fits)

    def _mark(
        self, node: str | None, target: tuple[str, bool, int] | None, refusal: str
    ) -> None:
        for other, item in self.scene.nodes.items():
            marks = self._rings.get(other, {})
            if target is not None and other == target[0]:
                marks = {**marks, (target[1], target[2]): REFUSES if refusal else FITS}
            item.set_marks(marks)

    def drop(self, point: QPointF) -> None:
        node, target = self._aim(point)
        refusal = self._refusal(target) if target is not None else ""
        self.revert()
        if target is None:
            parameters = self._parameters(node, target)
            if node is None:
                self._drop(point)
            elif parameters:
                self._wire_parameter(node, parameters, point)
            return
        if refusal:
            self.commands.refused.emit(refusal)
            return
        source, output, end, port = self._ends(target)
        if self._detached is not None:
            self.commands.move_end(self._detached, end, port)
        else:
            self.commands.connect_ports(source, output, end, port)

    def _wire_parameter(self, node: str, parameters: list[str], point: QPointF) -> None:
        if self._detached is not None:
            self.commands.move_end(self._detached, node, parameters[0])
        else:
            self.view.parameter_wanted.emit(
                self._node, self._pin.index, node, parameters, point
            )

    def _drop(self, point: QPointF) -> None:
        if self._detached is not None:
            self.commands.cut_wire(self._detached)
        else:
            self.view.loose_end.emit(self._node, self._from_output, self._pin, point)

    def revert(self) -> None:
        self._wire.remove()
        if self._detached is not None and self._detached in self.scene.wires:
            self.scene.wires[self._detached].set_shown(True)
        self.scene.clear_marks()
        self.view.refusal.emit("", QPoint())


def from_port(view: CanvasView, point: QPointF, hit: Hit) -> Gesture:
    """From a wired input the wire's end comes along; from every other port a new wire is drawn."""
    assert hit.node is not None and hit.pin is not None
    if not hit.is_output and hit.pin.wired:
        edges = [
            edge
            for edge in view.canvas_scene.graph.into(hit.node)
            if edge.port == hit.pin.port
        ]
        edge = next((edge for edge in edges if edge.index == hit.pin.index), edges[0])
        pin = view.canvas_scene.nodes[edge.source].face.outputs[edge.output]
        return DrawWire(view, point, Hit(edge.source, pin, True), edge)
    return DrawWire(view, point, hit)
