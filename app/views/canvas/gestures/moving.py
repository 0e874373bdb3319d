"""Drag gestures: nodes, comments and frames, the edges of a note, the bend of a wire."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace
from PySide6.QtCore import QPointF, QRectF

from app.builder.edits import bends, comments
from app.builder.edits.comments import LEAST_HEIGHT, LEAST_WIDTH, Area
from app.builder.graph import Edge
from app.builder.sheet import Comment, Point
from app.views.canvas.gestures.gesture import Drag, Modifiers
from app.views.canvas.items.geometry import GRID, snapped
from app.views.canvas.note_commands import grid

if TYPE_CHECKING:
    from app.views.canvas.view import CanvasView

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
