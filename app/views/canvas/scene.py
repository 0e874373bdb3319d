"""The drawing: items by id, changed where the project or the analysis changed and nowhere else."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QPointF, QRectF, QTimer, Signal
from PySide6.QtGui import QImage
from PySide6.QtWidgets import QGraphicsScene

from app.builder.arrange import Size
from app.builder.catalog.catalog import Catalog
from app.builder.edits.edits import new_node
from app.builder.graph import Edge, Graph
from app.builder.sheet import Comment, Point, Positions, Sheet
from app.util.frozen import FrozenMap
from app.views.canvas.bend_dots import BendDots
from app.views.canvas.difference import differing, moved
from app.views.canvas.gestures.gesture import NOTHING, Hit
from app.views.canvas.items.faces import (
    Face,
    Problems,
    face_of,
    learnt_of,
    problems_by_node,
)
from app.views.canvas.items.geometry import PORT_REACH
from app.views.canvas.items.layers import CanvasOverview, CanvasSight
from app.views.canvas.items.node_item import NodeItem
from app.views.canvas.items.node_shapes import shape_of
from app.views.canvas.items.positions import MANY, NodePositions
from app.views.canvas.note_items import Notes, subtotals
from app.views.canvas.wire_item import WireItem
from app.views.canvas.wiring import Wiring
from app.views.ui.graphview.minimap import MapShapes
from app.views.ui.graphview.small_names import SIMPLE, simple_below
from app.views.ui.graphview.spatial import bounds
from app.views.ui.graphview.sprites import NearLayer

if TYPE_CHECKING:
    from app.builder.results import Analysis
CLEARED = 500  # nodes; fewer are taken away one by one
PAUSE = 20  # milliseconds between two such turns, for what else is painted
STRIPS = 8  # nodes whose strips change in one turn: each is drawn again, and a turn has 16 ms


class CanvasScene(QGraphicsScene):
    """Shows a project. `redrawn` comes when anything on it has moved, come or gone."""

    redrawn = Signal()

    def __init__(self, catalog: Catalog, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.catalog = catalog
        self.nodes: dict[str, NodeItem] = {}
        self.graph = Graph()
        self.analysis: Analysis | None = None
        self.problems: Problems = {}
        self.places = NodePositions(self.nodes)
        self.index = self.places.index
        self._drawn_positions: Positions = FrozenMap()
        self._unfolded: frozenset[str] = frozenset()
        self._touched: int | None = None  # number of repaints in the current change
        self.notes = Notes(self)
        self.bends = BendDots(self)
        self.wiring = Wiring(self.nodes, self.index, self.bends, self)
        self.wires = self.wiring.items
        see = partial(CanvasSight, self.nodes, self.index, self.wiring)
        self.near = NearLayer(see, QTimer(self))
        self.far = CanvasOverview(self.nodes, self.wires)
        self.addItem(self.near)
        self.addItem(self.far)
        self._selected: frozenset[str] = frozenset()
        self.selected_wires: frozenset[Edge] = frozenset()
        self._hovered: str | None = None
        self.hovered_wire: Edge | None = None
        self._widths = False
        self._norms: tuple[Mapping[str, Sequence[float]], float, float] = ({}, 0.0, 0.0)
        self._waiting: dict[
            str, None
        ] = {}  # nodes whose strips do not show these norms yet, in their order
        self._next_strips = QTimer(self, singleShot=True, interval=PAUSE)
        self._next_strips.timeout.connect(lambda: self._show_norms(STRIPS))

    @property
    def positions(self) -> Positions:
        """Return a position for each node, also for those without one in the project."""
        return self.places.positions

    def set_zoom(self, zoom: float) -> None:
        """From afar everything is painted at once and simply."""
        self.notes.set_zoom(zoom)
        self.far.set_zoom(zoom)
        far = zoom < simple_below(len(self.nodes)) or (
            zoom < SIMPLE
            and any(node.face.inside is not None for node in self.nodes.values())
        )
        self.near.setVisible(not far)
        self.far.setVisible(far)

    def touch(self, item: object, area: QRectF) -> None:
        """Repaint an area of a changed node or wire."""
        if self._touched is not None:
            self._touched += 1
            if self._touched > MANY:  # see `_change`
                self.far.mark(item)
                return
        if self.near.isVisible():
            self.near.update(area)
        self.far.touch(item, area)

    @contextmanager
    def _change(self) -> Iterator[None]:
        """Collect repaints; after many of them in one change repaint everything, which is faster."""
        self._touched = 0
        try:
            yield
        finally:
            if self._touched > MANY:
                self.near.update()
                self.far.refresh()
            self._touched = None

    # --- The project

    def show_project(self, project: Sheet) -> None:
        """Update the items to a project. Nodes without a position are placed by `complete`."""
        if len(self.nodes) > CLEARED and 20 * len(
            self.nodes.keys() & project.graph.nodes.keys()
        ) < len(self.nodes):
            self._clear()
        before, after = self.graph, project.graph
        noted, led = self.notes.show(project.comments), self.bends.show(project.bends)
        folded, self._unfolded = self._unfolded ^ project.unfolded, project.unfolded
        if (
            after is before
            and project.positions is self._drawn_positions
            and not folded
        ):
            if noted or led:
                self.wiring.lead(led)
                self._notes_changed()
                self.redrawn.emit()
            return
        self.graph, self._drawn_positions = after, project.positions
        with self._change():
            self._change_items(before, after, folded)
            self.wiring.lead(led)
        self._notes_changed()
        self.redrawn.emit()

    def _clear(self) -> None:
        """Remove a large sheet of which little stays; node by node would be slow."""
        for container in (self.far, self.wiring, self.places, self.nodes):
            container.clear()
        self.graph, self.selected_wires, self.hovered_wire = Graph(), frozenset(), None
        self.update()

    def _change_items(
        self, before: Graph, after: Graph, folded: frozenset[str]
    ) -> None:
        swept: list[QRectF] = []
        touched = self._change_nodes(before, after, folded, swept)
        self.places.bring(after, self._drawn_positions, touched, swept)
        self._moved(touched)
        new = self.wiring.change(after)
        if after.edges is not before.edges or after.nodes.keys() != before.nodes.keys():
            self.far.regroup()
            self.selected_wires &= self.wires.keys()
        self.wiring.label(self.analysis, self.problems, [item.edge for item in new])
        for item in new:
            self._show_wire_state(item)
        self.wiring.follow(touched, swept)

    def _change_nodes(
        self, before: Graph, after: Graph, folded: frozenset[str], swept: list[QRectF]
    ) -> set[str]:
        """Create, remove and repaint nodes, `folded` those that were unfolded or folded; return those with a new
        shape."""
        if after is before and not folded:
            return set()
        changed = differing(before.nodes, after.nodes)
        gone, came = moved(before.edges, after.edges)
        rewired = {end for edge in gone | came for end in (edge.source, edge.target)}
        touched, structure = set[str](), False
        for node in sorted(changed | rewired | folded | (before.shared ^ after.shared)):
            if node not in after.nodes and node not in self.nodes:
                continue
            if node not in after.nodes:
                self._remove(node, swept)
                structure = True
            elif node not in self.nodes:
                self.nodes[node] = item = NodeItem(node, self._face(node), self)
                item.set_state(selected=node in self._selected)
                touched.add(node)
                structure = True
            elif self.nodes[node].set_face(self._face(node)):
                touched.add(node)
        if structure:
            for rank, node in enumerate(after.nodes):
                self.nodes[node].rank = rank
        return touched

    def _moved(self, nodes: set[str]) -> None:
        """Repaint many moved nodes at once."""
        self._touched = None if self._touched is None else self._touched + len(nodes)
        for node in nodes if len(nodes) > MANY else ():
            self.far.mark(self.nodes[node])

    def _remove(self, node: str, swept: list[QRectF]) -> None:
        item = self.nodes.pop(node)
        self.places.remove(node, swept)
        self.touch(item, item.extent)

    def _face(self, node: str) -> Face:
        return face_of(
            self.graph,
            node,
            self.catalog,
            self.analysis,
            self.problems,
            node in self._unfolded,
        )

    def drag(
        self,
        positions: Mapping[str, QPointF],
        notes: Mapping[str, Comment] | None = None,
        bends: Mapping[Edge, tuple[Point, ...]] | None = None,
        plain: bool = False,
    ) -> None:
        """Show nodes, notes and bends elsewhere while they are dragged; the project does not know of it yet.

        With `plain` their wires do not go round anything, for what passes quickly.
        """
        self.places.drag(positions)
        self.notes.drag(notes or {})
        self.bends.drag(bends or {})
        self.wiring.follow_drag(positions, plain)
        self.wiring.lead(bends or ())
        self.redrawn.emit()

    def settle(self) -> None:
        """Put everything at its position in the project, and reroute wires around dragged nodes."""
        self.notes.settle()
        self.wiring.lead(self.bends.settle())
        self._reshaped(set())
        self.redrawn.emit()

    # --- The analysis

    def set_analysis(self, analysis: Analysis) -> None:
        """Show shapes, counts and problems. Only differences are processed."""
        before, old_problems = self.analysis, self.problems
        self.analysis, self.problems = analysis, problems_by_node(analysis)
        learnt = differing(old_problems, self.problems) | learnt_of(before, analysis)
        new = analysis.results
        learnt |= {
            n
            for n in self._unfolded
            if before is None or before.results.get(n) is not new.get(n)
        }
        with self._change():
            self._show_faces(learnt)
            self.wiring.label(
                analysis,
                self.problems,
                set(self.wiring.wires_at(learnt & self.nodes.keys())),
            )
            if self._widths:
                self.wiring.widen(analysis)
        self._notes_changed()

    def refresh_faces(self, ops: Collection[str] | None = None) -> None:
        """Update faces after a change of some ops, or of all."""
        self._show_faces(
            {n.id for n in self.graph.nodes.values() if ops is None or n.op in ops}
        )

    def _show_faces(self, nodes: set[str]) -> None:
        shown = [
            (self.nodes[node], self._face(node)) for node in nodes & self.nodes.keys()
        ]
        other = [item for item, face in shown if face != item.face]
        self._reshaped({item.node for item, face in shown if item.set_face(face)})
        if other:
            self.redrawn.emit()

    def _notes_changed(self) -> None:
        """Show the parameter count of each frame's contents next to its title."""
        if self.notes.items:
            self.notes.count(
                subtotals(self.notes.items, self.index, self.graph, self.analysis)
            )

    def _reshaped(self, nodes: set[str]) -> None:
        """Update nodes with another size or position."""
        swept: list[QRectF] = []
        if nodes or self.places.adrift:
            self.places.bring(self.graph, self._drawn_positions, nodes, swept)
            self._moved(nodes)
            self.wiring.follow(nodes, swept)

    # --- Running

    def set_widths(self, on: bool) -> None:
        """Draw wires as wide as what one sample puts on them."""
        self._widths = on
        self.wiring.widen(self.analysis if on else None)

    def largest_count(self) -> int | None:
        """Return the largest number of values per sample on a wire, None if unknown."""
        return self.wiring.largest_count(self.analysis)

    def set_gradients(
        self, norms: Mapping[str, Sequence[float]], low: float, high: float
    ) -> None:
        """Show gradient norms, oldest first, on the nodes that have some; of many that have strips, some in a turn."""
        self._norms = norms, low, high
        self._waiting = dict.fromkeys(
            (*self._waiting, *self.nodes)
        )  # those that wait come first
        same = all(
            item.has_norms == bool(norms.get(node)) for node, item in self.nodes.items()
        )
        if not same or len(norms) <= STRIPS:
            self._show_norms(len(self.nodes))
        elif not self._next_strips.isActive():
            self._next_strips.start()

    def _show_norms(self, most: int) -> None:
        """Show the newest norms on nodes that wait for them, on `most` of those that have some."""
        norms, low, high = self._norms
        touched: set[str] = set()
        shown = 0
        while self._waiting and shown < most:
            node = next(iter(self._waiting))
            del self._waiting[node]
            if (item := self.nodes.get(node)) is not None:
                node_norms = norms.get(node) or None
                shown += node_norms is not None
                if item.set_gradients(node_norms, low, high):
                    touched.add(node)
        self._reshaped(touched)
        self.redrawn.emit()
        if self._waiting:
            self._next_strips.start()

    def set_heat(self, heat: Mapping[str, float], texts: Mapping[str, str]) -> None:
        """Colour a strip on each node that has a place on the ramp, with its text; the others have none."""
        touched = {
            node
            for node, item in self.nodes.items()
            if item.set_heat(heat.get(node), texts.get(node, ""))
        }
        self._reshaped(touched)
        self.redrawn.emit()

    def set_pictures(self, pictures: Mapping[str, Sequence[QImage]]) -> None:
        """Show small pictures in the nodes that have some; the others have none."""
        touched = {
            node
            for node, item in self.nodes.items()
            if item.set_pictures(pictures.get(node, ()))
        }
        self._reshaped(touched)
        self.redrawn.emit()

    # --- Selection and hover

    def set_selected(self, nodes: frozenset[str]) -> None:
        """Show a selection."""
        before, self._selected = self._selected, nodes
        for node in before ^ nodes:
            if node in self.nodes:
                self.nodes[node].set_state(selected=node in nodes)
        for edge in set(self.wiring.wires_at(before ^ nodes)):
            self._show_wire_state(self.wires[edge])

    def select_wires(self, wires: Iterable[Edge]) -> None:
        """Select wires; they are this canvas's own affair."""
        before, self.selected_wires = (
            self.selected_wires,
            frozenset(wires) & self.wires.keys(),
        )
        for edge in before ^ self.selected_wires:
            if edge in self.wires:
                self._show_wire_state(self.wires[edge])

    def _show_wire_state(self, item: WireItem) -> None:
        edge = item.edge
        chosen = (
            edge in self.selected_wires
            or edge.source in self._selected
            or edge.target in self._selected
        )
        item.set_state(selected=chosen)

    def set_hovered(self, node: str | None, wire: Edge | None = None) -> None:
        """Set the hovered node or wire, here or in another view."""
        if self._hovered != node:
            for changed in (self._hovered, node):
                if changed in self.nodes:
                    self.nodes[changed].set_state(hovered=changed == node)
            self._hovered = node
        if self.hovered_wire != wire:
            for edge in (self.hovered_wire, wire):
                if edge in self.wires:
                    self.wires[edge].set_state(hovered=edge == wire)
            self.hovered_wire = wire

    def clear_marks(self) -> None:
        """Remove the marks of a wire that was drawn."""
        for item in self.nodes.values():
            item.set_marks({})

    # --- Questions

    def sizes(self) -> dict[str, Size]:
        """Return the sizes of the nodes, for layout."""
        return self.places.sizes()

    def size_of(self, op: str) -> Size:
        """Return the size of a new node of an op."""

        node = new_node(self.graph, self.catalog, op)
        face = face_of(self.graph.with_node(node), node.id, self.catalog, None, {})
        return shape_of(face).size

    def free_spot(self, op: str, middle: QPointF) -> QPointF:
        """Return the nearest position below `middle` where a new node has room."""
        return self.places.free_spot(self.size_of(op), middle)

    def corner_of_new(self, op: str, middle: QPointF) -> QPointF:
        """Return the corner of a new node with its middle near a point, where it overlaps no other node."""
        size = self.size_of(op)
        return self.places.beside(
            size, QPointF(middle.x() - size.width / 2, middle.y() - size.anchor)
        )

    def hit(self, point: QPointF, zoom: float = 1.0) -> Hit:
        """Return the target at a point: ports before nodes before wires. Zoomed out, ports have a larger reach."""
        reach = max(PORT_REACH, min(PORT_REACH / zoom, 18.0))
        near = QRectF(point.x() - reach, point.y() - reach, 2 * reach, 2 * reach)
        nearby = [self.nodes[node] for node in self.index.inside(near)]
        under = sorted(nearby, key=lambda item: item.level, reverse=True)
        for item in under:
            port = item.port_at(point, reach)
            if port is not None:
                return Hit(item.node, port[2], port[0])
        for item in under:
            if item.body.contains(point):
                way, folds = item.within(point)
                return Hit(item.node, inside=way, folds=folds and zoom >= SIMPLE)
        bend = self.bends.bend_at(point, zoom)
        if bend is not None:
            return Hit(wire=bend[0], bend=bend[1])
        wire = self.wiring.wire_at(point)
        if wire is not None:
            return Hit(wire=wire)
        note = self.notes.note_at(point, zoom)
        return Hit(note=note[0], grip=note[1]) if note is not None else NOTHING

    def wire_near(self, area: QRectF) -> Edge | None:
        """Return the wire that crosses an area, the shortest of several."""
        return self.wiring.near(area)

    def bends_of(self, wire: Edge) -> tuple[Point, ...]:
        """Return the bends of a wire; of one without any those with which it would run as it does."""
        item = self.wires[wire]
        turns = tuple((turn.x(), turn.y()) for turn in item.route.turns)
        return self.bends.bends.get(wire) or turns

    def content_rect(self) -> QRectF:
        """Return the bounding rectangle of all nodes, notes and bends."""
        return bounds(
            [self.places.content_rect(), *self.notes.bodies(), *self.bends.bodies()]
        )

    def map_shapes(self) -> MapShapes:
        """Return all nodes and frames for a minimap."""
        rects, complete = self.far.map_rects()
        return MapShapes(
            rects,
            [note.body for note in self.notes.items.values() if note.is_frame],
            complete,
        )

    def rect_of(self, nodes: Iterable[str]) -> QRectF:
        """Return the bounding rectangle of some nodes."""
        return self.places.about(nodes)

    def retheme(self) -> None:
        """Apply changed colours and fonts."""
        for node in self.nodes.values():
            node.retheme()
        for wire in self.wires.values():
            wire.retheme()
        self.notes.retheme()
        self.far.forget()
        self.near.forget()
        self._reshaped(set(self.nodes))
        self.redrawn.emit()
