"""The drawing: items by id, changed where the project or the analysis changed and nowhere else."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from PySide6.QtCore import QPointF, QRectF, Signal
from PySide6.QtWidgets import QGraphicsScene

from app.builder.analysis import Analysis
from app.builder.arrange import Size, complete
from app.builder.catalog import Catalog
from app.builder.graph import Edge, Graph
from app.builder.value_types import TensorType
from app.frozen import FrozenMap
from app.project import Project
from app.views.canvas.faces import Pin, Problems, face_of, problems_by_node
from app.views.canvas.geometry import PORT_REACH, bounds, shape_of
from app.views.canvas.node_item import NodeItem
from app.views.canvas.routes import route
from app.views.canvas.spatial import RectIndex
from app.views.canvas.wire_item import ASSUMED, ERROR, NORMAL, WireItem

MARGIN = 2000.0
WIDTH_LEAST, WIDTH_MORE = 1.5, 5.5


@dataclass(frozen=True)
class Hit:
    """What a point of the scene means: a port of a node, a node, a wire, or none of them."""

    node: str | None = None
    pin: Pin | None = None
    is_output: bool = False
    wire: Edge | None = None


NOTHING = Hit()


class CanvasScene(QGraphicsScene):
    """Shows a project. `redrawn` comes when anything on it has moved, come or gone."""

    redrawn = Signal()

    def __init__(self, catalog: Catalog, parent=None) -> None:
        super().__init__(parent)
        self.catalog = catalog
        self.nodes: dict[str, NodeItem] = {}
        self.wires: dict[Edge, WireItem] = {}
        self.graph = Graph()
        self.positions: FrozenMap[str, tuple[float, float]] = FrozenMap()
        self.analysis: Analysis | None = None
        self.problems: Problems = {}
        self.index = RectIndex()
        self.lanes = RectIndex()
        self._selected: frozenset[str] = frozenset()
        self.selected_wires: frozenset[Edge] = frozenset()
        self._hovered: str | None = None
        self._active: frozenset[str] = frozenset()
        self.hovered_wire: Edge | None = None
        self._widths = False
        self._drawn_positions: Mapping[str, tuple[float, float]] = {}

    # --- The project

    def show_project(self, project: Project) -> None:
        """Bring the items in line with a project. Nodes without a place are shown where `complete` puts them."""
        before, after = self.graph, project.graph
        if after is before and project.positions is self._drawn_positions:
            return
        self.graph, self._drawn_positions = after, project.positions
        touched = self._change_nodes(before, after)
        self._place(project.positions, touched)
        self._change_wires(before, after, touched)
        self.redrawn.emit()

    def _change_nodes(self, before: Graph, after: Graph) -> set[str]:
        """Make, remove and repaint nodes; returns those whose shape is new."""
        if after is before:
            return set()
        for node in [n for n in self.nodes if n not in after.nodes]:
            self.removeItem(self.nodes.pop(node))
            self.index.remove(node)
        rewired = {end for edge in set(before.edges) ^ set(after.edges) for end in (edge.source, edge.target)}
        touched = set()
        for node, value in after.nodes.items():
            if node not in self.nodes:
                self.nodes[node] = item = NodeItem(node, self._face(node))
                item.set_state(selected=node in self._selected)
                self.addItem(item)
                touched.add(node)
            elif value is not before.nodes.get(node) or node in rewired:
                if self.nodes[node].set_face(self._face(node)):
                    touched.add(node)
        return touched

    def _place(self, positions: Mapping[str, tuple[float, float]], touched: set[str]) -> None:
        self.positions = complete(self.graph, positions, self.sizes())
        for node, (x, y) in self.positions.items():
            item = self.nodes[node]
            if item.x() != x or item.y() != y or node in touched:
                item.setPos(x, y)
                self.index.put(node, item.body)
                touched.add(node)

    def _change_wires(self, before: Graph, after: Graph, touched: set[str]) -> None:
        if after is not before:
            wanted = set(after.edges)
            for edge in [e for e in self.wires if e not in wanted]:
                self._remove_wire(edge)
            self.selected_wires &= wanted
            for edge in after.edges:
                if edge not in self.wires:
                    self._add_wire(edge)
            self._label_wires(after.edges)
        self._reroute(touched)

    def _add_wire(self, edge: Edge) -> None:
        self.wires[edge] = item = WireItem(edge, self._route(edge))
        self.addItem(item)
        self.addItem(item.chip)
        self._keep_lane(item)
        self._show_wire_state(item)

    def _remove_wire(self, edge: Edge) -> None:
        item = self.wires.pop(edge)
        self.removeItem(item)
        self.removeItem(item.chip)
        self.lanes.remove(_key(edge))

    def _reroute(self, moved: set[str]) -> None:
        """Route anew the wires of moved nodes, and those in whose way a node now stands or stood.

        Wires that run back come last, because they keep out of the lanes of the others.
        """
        if not moved:
            return
        bodies = [self.nodes[node].body for node in moved if node in self.nodes] if len(moved) <= 64 else None
        back: list[WireItem] = []
        lanes_moved = False
        for edge, item in self.wires.items():
            near = bodies is None or item.way.past or any(item.way.area.intersects(body) for body in bodies)
            if item.way.backward:
                back.append(item)
            elif near or edge.source in moved or edge.target in moved:
                lane = item.way.lane
                self._set_route(item)
                lanes_moved = lanes_moved or lane != item.way.lane
        for item in back:
            edge = item.edge
            near = bodies is None or any(item.way.area.intersects(body) for body in bodies)
            if lanes_moved or near or edge.source in moved or edge.target in moved:
                self._set_route(item)
        self._lower_labels()

    def _set_route(self, item: WireItem) -> None:
        item.set_route(self._route(item.edge))
        self._keep_lane(item)

    def _keep_lane(self, item: WireItem) -> None:
        if item.way.lane.isEmpty():
            self.lanes.remove(_key(item.edge))
        else:
            self.lanes.put(_key(item.edge), item.way.lane)

    def _lower_labels(self) -> None:
        """Where a wire rises over others from a port, the labels of the rest go under their wires."""
        rising = {(edge.source, edge.output) for edge, item in self.wires.items() if item.way.past < 0}
        for edge, item in self.wires.items():
            item.set_below((edge.source, edge.output) in rising and not item.way.past)

    def _route(self, edge: Edge):
        source, target = self.nodes[edge.source], self.nodes[edge.target]
        start = source.output_point(min(edge.output, len(source.geometry.outputs) - 1))
        end = target.input_point(target.input_number(edge.port, edge.index))

        def others(area: QRectF) -> list[QRectF]:
            found = self.index.inside(area)
            return [self.index[node] for node in found if node not in (edge.source, edge.target)]

        def lanes(area: QRectF) -> list[QRectF]:
            return [self.lanes[key] for key in self.lanes.inside(area) if key != own]

        own = _key(edge)
        return route(start, end, source.body, target.body, others, lanes)

    def drag(self, places: Mapping[str, QPointF]) -> None:
        """Show nodes elsewhere while they are dragged; the project does not know of it yet."""
        for node, place in places.items():
            self.nodes[node].setPos(place)
            self.index.put(node, self.nodes[node].body)
        for edge, item in self.wires.items():
            if edge.source in places or edge.target in places:
                self._set_route(item)
        self.redrawn.emit()

    def settle(self) -> None:
        """Put every node back where the project has it."""
        moved = {node for node, (x, y) in self.positions.items() if self.nodes[node].pos() != QPointF(x, y)}
        for node in moved:
            self.nodes[node].setPos(*self.positions[node])
            self.index.put(node, self.nodes[node].body)
        self._reroute(moved)
        self.redrawn.emit()

    # --- The analysis

    def set_analysis(self, analysis: Analysis) -> None:
        """Show shapes, counts and problems. Only what differs is painted anew."""
        self.analysis = analysis
        self.problems = problems_by_node(analysis)
        touched = {node for node, item in self.nodes.items() if item.set_face(self._face(node))}
        if touched:
            self._place(self._drawn_positions, touched)
        self._label_wires(self.graph.edges)
        self._reroute(touched)
        self._set_widths()
        self.redrawn.emit()

    def _face(self, node: str):
        return face_of(self.graph, node, self.catalog, self.analysis, self.problems)

    def _label_wires(self, edges: Iterable[Edge]) -> None:
        analysis = self.analysis
        if analysis is None:
            return
        for edge in edges:
            value = analysis.values.get((edge.source, edge.output))
            state = NORMAL
            if self._in_error(edge):
                state = ERROR
            elif value is None and edge.source in analysis.graph.nodes:
                state = ASSUMED
            self.wires[edge].set_label(str(value) if value is not None else "", state)

    def _in_error(self, edge: Edge) -> bool:
        wrong = self.problems.get(edge.target, ())
        return any(p.severity == "error" and p.port in (None, edge.port) for p in wrong)

    # --- Running

    def set_widths(self, on: bool) -> None:
        """Draw wires as wide as what one sample puts on them."""
        self._widths = on
        self._set_widths()

    def _set_widths(self) -> None:
        counts = {edge: self._values_on(edge) for edge in self.wires} if self._widths else {}
        largest = self.largest_count()
        for edge, item in self.wires.items():
            count = counts.get(edge)
            share = math.sqrt(count / largest) if count and largest else None
            item.set_width(None if share is None else WIDTH_LEAST + WIDTH_MORE * share)

    def largest_count(self) -> int | None:
        """The most values that one sample puts on a wire, None while nothing is known."""
        return max((count for edge in self.wires if (count := self._values_on(edge))), default=None)

    def _values_on(self, edge: Edge) -> int | None:
        value = self.analysis.values.get((edge.source, edge.output)) if self.analysis else None
        return value.per_sample() if isinstance(value, TensorType) else None

    def set_gradients(self, norms: Mapping[str, Sequence[float]], low: float, high: float) -> None:
        """Show gradient norms, oldest first, on the nodes that have some."""
        touched = {node for node, item in self.nodes.items() if item.set_gradients(norms.get(node) or None, low, high)}
        for node in touched:
            self.index.put(node, self.nodes[node].body)
        self._reroute(touched)

    def set_active(self, nodes: Iterable[str]) -> None:
        """Ring the nodes that run at this moment."""
        wanted = set(nodes)
        for node, item in self.nodes.items():
            item.set_state(active=node in wanted)
        self._active = frozenset(wanted)

    def turn_dash(self, offset: float) -> None:
        """Move the dash of the rings on."""
        for node in self._active & self.nodes.keys():
            self.nodes[node].set_dash(offset)

    # --- Selection and hover

    def set_selected(self, nodes: frozenset[str]) -> None:
        """Show a selection."""
        before, self._selected = self._selected, nodes
        for node in before ^ nodes:
            if node in self.nodes:
                self.nodes[node].set_state(selected=node in nodes)
        self._show_wire_states(before | nodes)

    def select_wires(self, wires: Iterable[Edge]) -> None:
        """Select wires; they are this canvas's own affair."""
        self.selected_wires = frozenset(wires) & frozenset(self.wires)
        self._show_wire_states(None)

    def _show_wire_states(self, near: frozenset[str] | None) -> None:
        for edge, item in self.wires.items():
            if near is None or edge.source in near or edge.target in near:
                self._show_wire_state(item)

    def _show_wire_state(self, item: WireItem) -> None:
        edge = item.edge
        chosen = edge in self.selected_wires or edge.source in self._selected or edge.target in self._selected
        item.set_state(selected=chosen)

    def set_hovered(self, node: str | None, wire: Edge | None = None) -> None:
        """Show what the pointer is over, here or in another view."""
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
        """No wire is being drawn any more."""
        for item in self.nodes.values():
            item.set_marks({})

    # --- Questions

    def sizes(self) -> dict[str, Size]:
        """The sizes of the nodes, for whoever lays out."""
        return {node: item.geometry.size for node, item in self.nodes.items()}

    def size_of(self, op: str) -> Size:
        """The size that a new node of an op will have."""
        from app.builder.edits import new_node

        node = new_node(self.graph, self.catalog, op)
        face = face_of(self.graph.with_node(node), node.id, self.catalog, None, {})
        return shape_of(face).size

    def free_spot(self, op: str, middle: QPointF) -> QPointF:
        """The nearest point below `middle` where a new node has room about it."""
        size = self.size_of(op)
        area = QRectF(0, 0, size.width + 16, size.height + 16)
        area.moveCenter(middle)
        for _ in range(len(self.nodes) + 1):
            found = self.index.inside(area)
            if not found:
                break
            area.moveTop(max(self.nodes[node].body.bottom() for node in found) + 8)
        return area.center()

    def hit(self, point: QPointF, zoom: float = 1.0) -> Hit:
        """What is at a point: ports before nodes before wires. Far out, ports are reached from further away."""
        reach = max(PORT_REACH, min(PORT_REACH / zoom, 18.0))
        near = QRectF(point.x() - reach, point.y() - reach, 2 * reach, 2 * reach)
        under = sorted(self.index.inside(near), key=lambda node: -self.nodes[node].zValue())
        for node in under:
            found = self.nodes[node].port_at(point, reach)
            if found is not None:
                return Hit(node, found[2], found[0])
        for node in under:
            if self.nodes[node].body.contains(point):
                return Hit(node)
        for item in self.items(point):
            if isinstance(item, WireItem):
                return Hit(wire=item.edge)
        return NOTHING

    def wire_near(self, area: QRectF) -> Edge | None:
        """The wire that runs through an area, the shortest if there are several."""
        found = [item for item in self.items(area) if isinstance(item, WireItem)]
        return min(found, key=lambda item: item.way.path.length()).edge if found else None

    def whole(self) -> QRectF:
        """The rectangle about all nodes."""
        return bounds([item.body for item in self.nodes.values()])

    def rect_of(self, nodes: Iterable[str]) -> QRectF:
        """The rectangle about some nodes."""
        return bounds([self.nodes[node].body for node in nodes if node in self.nodes])

    def retheme(self) -> None:
        """Colours and fonts are others now."""
        for node in self.nodes.values():
            node.retheme()
        for wire in self.wires.values():
            wire.retheme()
        self._place(self._drawn_positions, set(self.nodes))
        self._reroute(set(self.nodes))


def _key(edge: Edge) -> str:
    return f"{edge.source}.{edge.output}>{edge.target}.{edge.port}.{edge.index}"
