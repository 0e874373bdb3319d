"""Mouse gestures, each an object: `start`, any number of `move`, then `finish` or `cancel`. They end in one command.

A gesture has the view and the scene; temporary changes (moved nodes, rings, a loose wire) it reverts itself, so that
cancelling leaves nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace
from PySide6.QtCore import QPoint, QPointF, QRectF, Qt

from app.builder import rules
from app.builder.edits import bends, comments
from app.builder.edits.comments import LEAST_HEIGHT, LEAST_WIDTH, Area
from app.builder.graph import Edge
from app.builder.sheet import Comment, Point
from app.views.canvas import connect
from app.views.canvas.gestures.gesture import (
    Drag,
    Gesture,
    GhostPreview,
    Hit,
    MarqueePreview,
    Modifiers,
    WirePreview,
)
from app.views.canvas.items.geometry import GRID, PORT_REACH, snapped
from app.views.canvas.items.node_item import NodeItem
from app.views.canvas.items.painter import FITS, REFUSES
from app.views.canvas.note_commands import grid

if TYPE_CHECKING:
    from app.views.canvas.view import CanvasView

# --- Drag gestures: nodes, comments and frames, the edges of a note, the bend of a wire

REACH = 1.5 * GRID  # how near a wire is to be inserted on
ADDING = Modifiers.ControlModifier | Modifiers.ShiftModifier


class Move(Drag):
    """Drag the selected nodes and notes over the grid, a frame with its contents; a press without a move selects."""

    def __init__(
        self,
        view: CanvasView,
        point: QPointF,
        node: str | None,
        note: str | None = None,
    ) -> None:
        super().__init__(view, point)
        self._node, self._note = node, note
        self._before, self._noted = view.selection.ids, view.canvas_scene.notes.selected
        self._starts: dict[str, QPointF] = {}
        self._notes: dict[str, Comment] = {}
        self._bends: dict[Edge, tuple[Point, ...]] = {}
        self._wire: Edge | None = None  # on which the node would be inserted
        self._alone = False  # one node without wires, which can be

    def start(self, keys: Modifiers) -> None:
        pressed = frozenset([self._node] if self._node is not None else ())
        noted = frozenset([self._note] if self._note is not None else ())
        if keys & Modifiers.ControlModifier:
            self.commands.select(self._before ^ pressed, self._noted ^ noted)
        elif keys & Modifiers.ShiftModifier:
            self.commands.select(self._before | pressed, self._noted | noted)
        elif not (pressed <= self._before and noted <= self._noted):
            self.commands.select(pressed, noted)
        nodes, notes = self.commands.selected_with_contents()
        self._take(nodes | pressed, notes | noted)
        graph = self.scene.graph
        self._alone = self._starts.keys() == pressed and not self._notes
        self._alone = self._alone and not any(
            graph.into(node) or graph.out_of(node) for node in pressed
        )

    def _take(self, nodes: frozenset[str], notes: frozenset[str]) -> None:
        """Set what moves, and its start positions."""
        project = self.commands.project
        self._starts = {
            node: self.scene.nodes[node].pos()
            for node in nodes
            if node in self.scene.nodes
        }
        self._notes = {
            note: project.comments[note] for note in notes if note in project.comments
        }
        self._bends = dict(bends.within(project.bends, self._starts))

    def drag(self, point: QPointF, keys: Modifiers) -> None:
        shift = self._shift(point)
        dx, dy = shift.x(), shift.y()
        self.scene.drag(
            {node: start + shift for node, start in self._starts.items()},
            {
                key: replace(note, x=note.x + dx, y=note.y + dy)
                for key, note in self._notes.items()
            },
            {
                wire: tuple((x + dx, y + dy) for x, y in points)
                for wire, points in self._bends.items()
            },
        )
        if self._alone:
            self._find_wire(point, shift)

    def _find_wire(self, point: QPointF, shift: QPointF) -> None:
        """Highlight the wire under the pointer or through the node, on which it would be inserted."""
        assert self._node is not None
        item = self.scene.nodes[self._node]
        start = self._starts[self._node] + shift
        line = start.y() + item.geometry.anchor
        under = self.scene.wire_near(
            QRectF(point.x() - REACH, point.y() - REACH, 2 * REACH, 2 * REACH)
        )
        wire = under or self.scene.wire_near(
            QRectF(start.x(), line - REACH / 2, item.geometry.width, REACH)
        )
        if wire != self._wire:
            self._wire = (
                wire
                if wire is not None and self.commands.fits_on(self._node, wire)
                else None
            )
            self.scene.set_hovered(self._node, self._wire)

    def _shift(self, point: QPointF) -> QPointF:
        """Return how far everything moves: a node to the grid, a note by steps of it."""
        step = point - self.began
        if self._node is not None:
            start = self._starts[self._node]
            return (
                snapped(start + step, self.scene.nodes[self._node].geometry.anchor)
                - start
            )
        return QPointF(grid(step.x()), grid(step.y()))

    def click(self, keys: Modifiers) -> None:
        if not keys & ADDING:
            node, note = self._node, self._note
            self.commands.select(
                [node] if node is not None else (), [note] if note is not None else ()
            )

    def drop(self, point: QPointF) -> None:
        shift = self._shift(point)
        self.scene.settle()  # restore positions for the command, and reroute wires around what moved
        if self._wire is not None and self._node is not None:
            self.scene.set_hovered(self._node)
            self.commands.insert_node(self._node, self._wire, shift.x(), shift.y())
        elif not shift.isNull():
            self.commands.shift(self._starts, self._notes, shift.x(), shift.y())

    def revert(self) -> None:
        if self._wire is not None:
            self.scene.set_hovered(self._node)
        self.scene.settle()
        self.commands.select(self._before, self._noted)


class ResizeNote(Drag):
    """Drag edges of a comment or frame over the grid; a press that does not move selects it."""

    def __init__(self, view: CanvasView, point: QPointF, note: str, edges: str) -> None:
        super().__init__(view, point)
        self._key, self._edges = note, edges
        self._note = view.canvas_scene.notes.comments[note]
        self._before, self._noted = view.selection.ids, view.canvas_scene.notes.selected

    def start(self, keys: Modifiers) -> None:
        if keys & ADDING:
            self.commands.select(self._before, self._noted | {self._key})
        else:
            self.commands.select((), [self._key])

    def drag(self, point: QPointF, keys: Modifiers) -> None:
        area = self._area(point)
        resized = replace(
            self._note,
            x=area.left,
            y=area.top,
            width=area.right - area.left,
            height=area.bottom - area.top,
        )
        self.scene.drag({}, {self._key: resized})

    def _area(self, point: QPointF) -> Area:
        """Return the note's area with the dragged edges on the grid, but not beyond the opposite edges."""
        step, area = point - self.began, comments.rect_of(self._note)
        left, top, right, bottom = area.left, area.top, area.right, area.bottom
        if "l" in self._edges:
            left = min(grid(left + step.x()), right - LEAST_WIDTH)
        if "r" in self._edges:
            right = max(grid(right + step.x()), left + LEAST_WIDTH)
        if "t" in self._edges:
            top = min(grid(top + step.y()), bottom - LEAST_HEIGHT)
        if "b" in self._edges:
            bottom = max(grid(bottom + step.y()), top + LEAST_HEIGHT)
        return Area(left, top, right, bottom)

    def drop(self, point: QPointF) -> None:
        area = self._area(point)
        self.scene.settle()
        self.commands.notes.resize(self._key, area)

    def revert(self) -> None:
        self.scene.settle()
        self.commands.select(self._before, self._noted)


class BendWire(Drag):
    """Drag a wire: a bend comes there, or the one that is held moves. A press that does not move selects."""

    def __init__(
        self, view: CanvasView, point: QPointF, wire: Edge, bend: int | None
    ) -> None:
        super().__init__(view, point)
        self._wire, self._bend = wire, bend
        self._points: tuple[Point, ...] = view.commands.project.bends.get(wire, ())

    def start(self, keys: Modifiers) -> None:
        self.commands.select_wire(self._wire, self._bend, keep=bool(keys & ADDING))

    def begin(self) -> None:
        if self._bend is None:
            self._open()

    def drag(self, point: QPointF, keys: Modifiers) -> None:
        self.scene.drag({}, None, {self._wire: self._led(point)})

    def _open(self) -> None:
        """Add a bend where the wire is grabbed."""
        path = self.scene.wires[self._wire].route.path
        self._points = self.scene.bends_of(self._wire)
        ends = [
            (end.x(), end.y())
            for end in (path.pointAtPercent(0.0), path.pointAtPercent(1.0))
        ]
        grab_point = (self.began.x(), self.began.y())
        self._bend = bends.nearest_stretch(
            (ends[0], *self._points, ends[1]), grab_point
        )
        self._points = (
            *self._points[: self._bend],
            grab_point,
            *self._points[self._bend :],
        )

    def _led(self, point: QPointF) -> tuple[Point, ...]:
        assert self._bend is not None
        at = (grid(point.x()), grid(point.y()))
        return (*self._points[: self._bend], at, *self._points[self._bend + 1 :])

    def drop(self, point: QPointF) -> None:
        assert self._bend is not None
        self.scene.settle()
        self.commands.notes.lead(self._wire, self._led(point), self._bend)

    def revert(self) -> None:
        self.scene.settle()


# --- Drawing a wire from a port, or taking the end of one elsewhere


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


class Marquee(Drag):
    """Draw a box about nodes and notes. Shift adds to the selection, Ctrl toggles in it; a click on nothing selects
    nothing."""

    def __init__(self, view: CanvasView, point: QPointF) -> None:
        super().__init__(view, point)
        self._before, self._noted = view.selection.ids, view.canvas_scene.notes.selected
        self._box = MarqueePreview()

    def begin(self) -> None:
        self.scene.addItem(self._box)

    def drag(self, point: QPointF, keys: Modifiers) -> None:
        area = QRectF(self.began, point).normalized()
        self._box.set_area(area)
        sides = comments.Area(area.left(), area.top(), area.right(), area.bottom())
        nodes = frozenset(self.scene.index.inside(area))
        notes = comments.touched(self.scene.notes.comments, sides)
        self.commands.select(
            _chosen(self._before, nodes, keys), _chosen(self._noted, notes, keys)
        )

    def click(self, keys: Modifiers) -> None:
        if not keys & (Modifiers.ControlModifier | Modifiers.ShiftModifier):
            self.commands.select(())

    def drop(self, point: QPointF) -> None:
        self._box.remove()

    def revert(self) -> None:
        self._box.remove()
        self.commands.select(self._before, self._noted)


def _chosen(
    before: frozenset[str], inside: frozenset[str], keys: Modifiers
) -> frozenset[str]:
    if keys & Modifiers.ControlModifier:
        return before ^ inside
    return before | inside if keys & Modifiers.ShiftModifier else inside


class DropOp(Gesture):
    """A layer dragged in from the palette: a preview on the grid, and the wire that it would be inserted on
    highlighted."""

    scrolls = True
    from_outside = True

    def __init__(self, view: CanvasView, point: QPointF, op: str) -> None:
        super().__init__(view, point)
        self._op = op
        self._size = view.canvas_scene.size_of(op)
        self._ghost = GhostPreview(self._size)
        self._wire: Edge | None = None

    def start(self, keys: Modifiers) -> None:
        self.scene.addItem(self._ghost)
        self.move(self.began, keys)

    def move(self, point: QPointF, keys: Modifiers) -> None:
        self._wire = self._wire_under(point)
        corner = point - QPointF(self._size.width / 2, self._size.anchor)
        on_wire = self._wire is not None
        self._ghost.setPos(
            snapped(corner, self._size.anchor)
            if on_wire
            else self.scene.corner_of_new(self._op, point)
        )
        self.scene.set_hovered(None, self._wire)

    def _wire_under(self, point: QPointF) -> Edge | None:
        spec = self.scene.catalog[self._op]
        if not spec.inputs or not spec.outputs:
            return None
        reach = GRID * 1.5
        return self.scene.wire_near(
            QRectF(point.x() - reach, point.y() - reach, 2 * reach, 2 * reach)
        )

    def finish(self, point: QPointF, keys: Modifiers) -> None:
        wire = self._wire_under(point)
        self.cancel()
        if wire is not None:
            self.commands.insert(self._op, wire, point)
        else:
            self.commands.add_at(self._op, point)

    def cancel(self) -> None:
        self._ghost.remove()
        self.scene.set_hovered(None)


def begin(view: CanvasView, point: QPointF, keys: Modifiers) -> Gesture | None:
    """Return the gesture for a press of the left button; cutting a wire and folding a block happen at once."""
    hit = view.canvas_scene.hit(point, view.zoom)
    if hit.wire is not None:
        if keys & Modifiers.AltModifier:
            view.commands.cut_wire(hit.wire)
            return None
        return BendWire(view, point, hit.wire, hit.bend)
    if hit.pin is not None:
        return from_port(view, point, hit)
    if hit.note is not None and hit.grip:
        return ResizeNote(view, point, hit.note, hit.grip)
    if hit.node is not None and hit.folds:
        view.commands.select([hit.node])
        view.fold_wanted.emit(hit.node, hit.inside)
        return None
    if hit.node is not None or hit.note is not None:
        return Move(view, point, hit.node, hit.note)
    return Marquee(view, point)
