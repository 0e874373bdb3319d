"""Mouse gestures, each an object: `start`, any number of `move`, then `finish` or `cancel`. They end in one command.

A gesture sees the view and the scene; what it changes on the way (nodes shown elsewhere, rings, a loose wire) it puts
back itself, so that cancelling leaves nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QPoint, QPointF, QRectF, Qt

from app.builder import notes_edits, rules
from app.builder.graph import Edge
from app.views.canvas import passing
from app.views.canvas.geometry import GRID, PORT_REACH, snapped
from app.views.canvas.gesture import Gesture, Modifiers
from app.views.canvas.hit import Hit
from app.views.canvas.moving import BendWire, Move, ResizeNote
from app.views.canvas.node_item import NodeItem
from app.views.canvas.painter import FITS, REFUSES

if TYPE_CHECKING:
    from app.views.canvas.view import CanvasView

class Pan(Gesture):
    """Take hold of the canvas and move it. Works on the window's pixels, since the scene moves under the pointer."""

    def __init__(self, view: CanvasView, point: QPointF, position: QPoint) -> None:
        super().__init__(view, point)
        self._last = position

    def start(self, keys: Modifiers) -> None:
        self.view.viewport().setCursor(Qt.CursorShape.ClosedHandCursor)

    def move_pixels(self, position: QPoint) -> None:
        step = position - self._last
        self._last = position
        self.view.pan(step.x(), step.y())

    def finish(self, point: QPointF, keys: Modifiers) -> None:
        self.cancel()

    def cancel(self) -> None:
        self.view.viewport().unsetCursor()


class Marquee(Gesture):
    """Draw a box about nodes and notes. Shift adds to the selection, Ctrl toggles in it; a click on nothing selects
    nothing."""

    def __init__(self, view: CanvasView, point: QPointF) -> None:
        super().__init__(view, point)
        self._before, self._noted = view.selection.ids, view.canvas_scene.notes.selected
        self._box: passing.MarqueeItem | None = None

    def move(self, point: QPointF, keys: Modifiers) -> None:
        if self._box is None:
            if not self.view.is_drag(self.began, point):
                return
            self._box = passing.MarqueeItem()
            self.scene.addItem(self._box)
        area = QRectF(self.began, point).normalized()
        self._box.set_area(area)
        sides = notes_edits.Rect(area.left(), area.top(), area.right(), area.bottom())
        nodes = self._chosen(self._before, frozenset(self.scene.index.inside(area)), keys)
        notes = self._chosen(self._noted, notes_edits.touched(self.scene.notes.comments, sides), keys)
        self.commands.select(nodes, notes)

    @property
    def scrolls(self) -> bool:
        return self._box is not None

    @staticmethod
    def _chosen(before: frozenset[str], inside: frozenset[str], keys: Modifiers) -> frozenset[str]:
        if keys & Modifiers.ControlModifier:
            return before ^ inside
        return before | inside if keys & Modifiers.ShiftModifier else inside

    def finish(self, point: QPointF, keys: Modifiers) -> None:
        if self._box is None and not keys & (Modifiers.ControlModifier | Modifiers.ShiftModifier):
            self.commands.select(())
        self._remove()

    def cancel(self) -> None:
        self._remove()
        self.commands.select(self._before, self._noted)

    def _remove(self) -> None:
        if self._box is not None:
            self.scene.removeItem(self._box)
            self._box = None


class DrawWire(Gesture):
    """Draw a wire from a port. Ports that fit are ringed; a port that refuses says why; nothing opens the search."""

    def __init__(self, view: CanvasView, point: QPointF, hit: Hit, detached: Edge | None = None) -> None:
        super().__init__(view, point)
        assert hit.node is not None and hit.pin is not None
        self._node, self._pin, self._from_output = hit.node, hit.pin, hit.is_output
        self._detached = detached
        self._graph = view.canvas_scene.graph.without_edge(detached) if detached else view.canvas_scene.graph
        self._wire: passing.LooseWireItem | None = None
        self._rings: dict[str, dict[tuple[bool, int], str]] = {}

    def start(self, keys: Modifiers) -> None:
        item = self.scene.nodes[self._node]
        number = self._pin.index if self._from_output else item.input_number(self._pin.port, self._pin.index)
        fast = item.output_point(number) if self._from_output else item.input_point(number)
        self._wire = passing.LooseWireItem(fast, self._from_output, self._pin.kind)

    def move(self, point: QPointF, keys: Modifiers) -> None:
        assert self._wire is not None
        if self._wire.scene() is None:
            if not self.view.is_drag(self.began, point):
                return
            self.scene.addItem(self._wire)
            self.view.set_dragging(True)
            self._ring_what_fits()
            if self._detached is not None:
                self.scene.wires[self._detached].set_shown(False)
        node, target = self._aim(point)
        refusal = "" if target is None else self._refusal(target)
        self._mark(node, target, refusal)
        self._wire.set_end(self._end(target, point), bool(target) and not refusal, bool(refusal))
        self.view.refusal.emit(refusal, self.view.mapFromScene(point))

    @property
    def scrolls(self) -> bool:
        return self._wire is not None and self._wire.scene() is not None

    def _end(self, target: tuple[str, bool, int] | None, point: QPointF) -> QPointF:
        if target is None:
            return point
        item = self.scene.nodes[target[0]]
        return item.output_point(target[2]) if target[1] else item.input_point(target[2])

    def _aim(self, point: QPointF) -> tuple[str | None, tuple[str, bool, int] | None]:
        """The node under the pointer, and the (node, is an output, number) of the port that is meant."""
        hit = self.scene.hit(point, self.view.zoom)
        if hit.node is None or (hit.node == self._node and hit.pin is not None):
            return None, None
        item = self.scene.nodes[hit.node]
        found = item.port_at(point, max(PORT_REACH, min(PORT_REACH / self.view.zoom, 18.0)))
        if found is not None and found[0] != self._from_output:
            return hit.node, (hit.node, found[0], found[1])
        number = self._best(hit.node, item)
        return hit.node, None if number is None else (hit.node, not self._from_output, number)

    def _best(self, node: str, item: NodeItem) -> int | None:
        """On the body of a node: its first free port that fits, else its first."""
        if self._from_output:
            port = rules.first_free_input(self._graph, self.scene.catalog, self._node, self._pin.index, node)
            pins = item.face.inputs
            if port is None:
                return 0 if pins else None
            return max((i for i, pin in enumerate(pins) if pin.port == port), default=0)
        outputs = range(len(item.face.outputs))
        return next((i for i in outputs if not self._refusal((node, True, i))), 0 if outputs else None)

    def _ends(self, target: tuple[str, bool, int]) -> tuple[str, int, str, str]:
        """The wire as (source, output, target, port)."""
        node, is_output, number = target
        if is_output:
            return node, number, self._node, self._pin.port
        return self._node, self._pin.index, node, self.scene.nodes[node].face.inputs[number].port

    def _refusal(self, target: tuple[str, bool, int]) -> str:
        try:
            rules.check_connect(self._graph, self.scene.catalog, *self._ends(target))
        except rules.ConnectError as error:
            return str(error)
        return ""

    def _ring_what_fits(self) -> None:
        """Rings for the ports in sight; out of sight nobody sees them, and a port aimed at is asked again."""
        for node in self.scene.index.inside(self.view.visible_area()):
            if node == self._node:
                continue
            item, side = self.scene.nodes[node], not self._from_output
            count = len(item.face.outputs if side else item.face.inputs)
            fits = {(side, i): FITS for i in range(count) if not self._refusal((node, side, i))}
            if fits:
                self._rings[node] = fits
                item.set_marks(fits)

    def _mark(self, node: str | None, target: tuple[str, bool, int] | None, refusal: str) -> None:
        for other, item in self.scene.nodes.items():
            marks = self._rings.get(other, {})
            if target is not None and other == target[0]:
                marks = {**marks, (target[1], target[2]): REFUSES if refusal else FITS}
            item.set_marks(marks)

    def finish(self, point: QPointF, keys: Modifiers) -> None:
        drawn = self._wire is not None and self._wire.scene() is not None
        node, target = self._aim(point) if drawn else (None, None)
        refusal = self._refusal(target) if target is not None else ""
        self._clean()
        if not drawn:
            return
        if target is None:
            if node is None:
                self._let_go(point)
            return
        if refusal:
            self.commands.said.emit(refusal)
            return
        source, output, end, port = self._ends(target)
        if self._detached is not None:
            self.commands.move_end(self._detached, end, port)
        else:
            self.commands.connect_ports(source, output, end, port)

    def _let_go(self, point: QPointF) -> None:
        if self._detached is not None:
            self.commands.cut_wire(self._detached)
        else:
            self.view.let_go(self._node, self._from_output, self._pin, point)

    def cancel(self) -> None:
        self._clean()

    def _clean(self) -> None:
        if self._wire is not None and self._wire.scene() is not None:
            self.scene.removeItem(self._wire)
            if self._detached is not None and self._detached in self.scene.wires:
                self.scene.wires[self._detached].set_shown(True)
        self._wire = None
        self.scene.clear_marks()
        self.view.set_dragging(False)
        self.view.refusal.emit("", QPoint())


class DropOp(Gesture):
    """A layer dragged in from the palette: a ghost on the grid, and the wire that it would go on lit up."""

    def __init__(self, view: CanvasView, point: QPointF, op: str) -> None:
        super().__init__(view, point)
        self._op = op
        self.scrolls = True
        self._size = view.canvas_scene.size_of(op)
        self._ghost = passing.GhostItem(self._size)
        self._wire: Edge | None = None

    def start(self, keys: Modifiers) -> None:
        self.scene.addItem(self._ghost)
        self.move(self.began, keys)

    def move(self, point: QPointF, keys: Modifiers) -> None:
        corner = point - QPointF(self._size.width / 2, self._size.anchor)
        self._ghost.setPos(snapped(corner, self._size.anchor))
        self._wire = self._wire_under(point)
        self.scene.set_hovered(None, self._wire)

    def _wire_under(self, point: QPointF) -> Edge | None:
        spec = self.scene.catalog[self._op]
        if not spec.inputs or not spec.outputs:
            return None
        reach = GRID * 1.5
        return self.scene.wire_near(QRectF(point.x() - reach, point.y() - reach, 2 * reach, 2 * reach))

    def finish(self, point: QPointF, keys: Modifiers) -> None:
        wire = self._wire_under(point)
        self.cancel()
        if wire is not None:
            self.commands.insert(self._op, wire, point)
        else:
            self.commands.add_at(self._op, point)

    def cancel(self) -> None:
        if self._ghost.scene() is not None:
            self.scene.removeItem(self._ghost)
        self.scene.set_hovered(None)


def begin(view: CanvasView, point: QPointF, keys: Modifiers) -> Gesture | None:
    """The gesture that a press of the left button at a point begins; a cut is made at once."""
    hit = view.canvas_scene.hit(point, view.zoom)
    if hit.wire is not None:
        if keys & Modifiers.AltModifier:
            view.commands.cut_wire(hit.wire)
            return None
        return BendWire(view, point, hit.wire, hit.bend)
    if hit.pin is not None:
        return _from_port(view, point, hit)
    if hit.note is not None and hit.grip:
        return ResizeNote(view, point, hit.note, hit.grip)
    if hit.node is not None or hit.note is not None:
        return Move(view, point, hit.node, hit.note)
    return Marquee(view, point)


def _from_port(view: CanvasView, point: QPointF, hit: Hit) -> Gesture:
    """From a wired input the wire's end comes along; from every other port a new wire is drawn."""
    assert hit.node is not None and hit.pin is not None
    if not hit.is_output and hit.pin.wired:
        edges = [edge for edge in view.canvas_scene.graph.into(hit.node) if edge.port == hit.pin.port]
        edge = next((edge for edge in edges if edge.index == hit.pin.index), edges[0])
        pin = view.canvas_scene.nodes[edge.source].face.outputs[edge.output]
        return DrawWire(view, point, Hit(edge.source, pin, True), edge)
    return DrawWire(view, point, hit)
