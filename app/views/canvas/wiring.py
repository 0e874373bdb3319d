"""All wires of the drawing: their items, routes, labels and widths."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from heapq import heapify, heappop
from typing import TYPE_CHECKING

from PySide6.QtCore import QPointF, QRectF

from app.builder.graph import Edge, Graph
from app.builder.value_types import TensorType
from app.views.canvas.bend_dots import BendDots
from app.views.canvas.difference import moved as differing_edges
from app.views.canvas.items.faces import Problems
from app.views.canvas.items.node_item import NodeItem
from app.views.canvas.wire_item import ASSUMED, ERROR, NORMAL, REACH, WireItem
from app.views.ui.graphview.detour import led
from app.views.ui.graphview.overview import RepaintTarget
from app.views.ui.graphview.routes import Route, runs_back, unled
from app.views.ui.graphview.spatial import RectIndex

if TYPE_CHECKING:
    from app.builder.results import Analysis

WIDTH_LEAST, WIDTH_MORE = 1.5, 5.5
MANY = 64  # more changed areas than this reroute every wire
LABELS = 200  # of the wires of one output


class Wiring:
    """Makes, routes and labels wire items. `nodes` and `places` are the scene's.

    The route of a forward wire depends on the nodes alone. A backward wire avoids the lanes of forward wires and of
    earlier backward ones, in the order of edges. So routes do not depend on the order of edits.
    """

    def __init__(
        self,
        nodes: Mapping[str, NodeItem],
        places: RectIndex[str],
        bends: BendDots,
        ground: RepaintTarget,
    ) -> None:
        self._nodes, self._places, self.bends, self._ground = (
            nodes,
            places,
            bends,
            ground,
        )
        self.items: dict[Edge, WireItem] = {}
        self.index: RectIndex[Edge] = RectIndex()  # painted areas
        self._graph = Graph()
        self._areas: RectIndex[Edge] = (
            RectIndex()
        )  # areas in which a change can change the route
        self._lanes: RectIndex[Edge] = RectIndex()
        self._back: set[Edge] = set()
        self._fresh: set[Edge] = set()  # made since the nodes are where they are
        self._stirred: list[
            QRectF
        ] = []  # added or removed lanes that backward wires do not know yet
        self._unsettled: set[tuple[str, int]] = (
            set()
        )  # outputs whose wires' labels may overlap
        self._widened = False

    def change(self, after: Graph) -> list[WireItem]:
        """Update the items to a graph; return the new ones. `follow` has to be called next."""
        before, self._graph = self._graph.edges, after
        gone, came = differing_edges(before, after.edges)
        for index in (self.index, self._areas) if gone else ():
            index.remove_all(gone)
        for edge in gone:
            self._remove(edge)
        back = {edge for edge in came if self._runs_back(edge)}
        new_items = [self._make(edge) for edge in (*sorted(came - back), *sorted(back))]
        self._fresh |= came
        if gone or came:
            both = enumerate(zip(before, after.edges, strict=False))
            first = next(
                (i for i, (old, new) in both if old is not new),
                min(len(before), len(after.edges)),
            )
            for rank, edge in enumerate(after.edges[first:], first):
                self.items[edge].rank = rank
        return new_items

    def _make(self, edge: Edge) -> WireItem:
        way = self._compute_route(edge)
        item = self.items[edge] = WireItem(edge, way, self._ground, self.index)
        self._keep(item)
        return item

    def _remove(self, edge: Edge) -> None:
        item = self.items.pop(edge)
        self._leave_lane(edge)
        self._back.discard(edge)
        self._unsettled.add((edge.source, edge.output))
        item.remove()

    def clear(self) -> None:
        """Remove all wires."""
        for collection in (
            self.items,
            self._back,
            self._fresh,
            self._stirred,
            self._unsettled,
        ):
            collection.clear()
        for index in (self.index, self._areas, self._lanes):
            index.clear()
        self._graph = Graph()

    def _leave_lane(self, edge: Edge) -> None:
        if edge in self._lanes:
            self._stirred.append(self._lanes[edge])
            self._lanes.remove(edge)

    # --- Routes

    def follow(self, moved: set[str], swept: list[QRectF]) -> None:
        """Reroute the wires of moved nodes, and those whose routes are near changed areas (`swept`)."""
        touched = self._touched(moved, swept) - self._fresh
        self._fresh = set()
        self._follow_back(self._routed_but_for_back(touched))

    def _routed_but_for_back(self, edges: Iterable[Edge]) -> set[Edge]:
        """Route wires, except backward ones, which are returned: they are routed after all others."""
        back = set()
        for edge in edges:
            ends = self._ends(edge)
            if runs_back(*ends) and not self.bends.points(edge):
                back.add(edge)
            else:
                self._route(self.items[edge], ends)
        return back

    def _follow_back(self, back: set[Edge]) -> None:
        """Route backward wires, and those behind them that have to go elsewhere then."""
        for edge in back - self._back:  # drop the lane that it had while it ran forward
            self._leave_lane(edge)
            self._back.add(edge)
        waiting = sorted(back)
        self._stir(waiting, back, None)
        while waiting:
            edge = heappop(waiting)
            back.discard(edge)
            self._route(self.items[edge])
            self._stir(waiting, back, edge)
        self._settle_labels()

    def _stir(self, waiting: list[Edge], queued: set[Edge], after: Edge | None) -> None:
        """Queue the backward wires behind `after` whose area contains a changed lane."""
        stirred, self._stirred = self._stirred, []
        if not stirred or not self._back:
            return
        for area in stirred:
            for edge in self._areas.inside(area):
                if (
                    edge in self._back
                    and edge not in queued
                    and (after is None or after < edge)
                ):
                    queued.add(edge)
                    waiting.append(edge)
        heapify(waiting)

    def _touched(self, moved: set[str], swept: list[QRectF]) -> set[Edge]:
        if len(swept) > MANY:
            return set(self.items)
        touched = set(self.wires_at(moved))
        for area in swept:
            touched.update(self._areas.inside(area))
        return touched

    def wires_at(self, nodes: Iterable[str]) -> Iterable[Edge]:
        """Yield the wires at some nodes, those between two of them twice."""
        for node in nodes:
            yield from self._graph.into(node)
            yield from self._graph.out_of(node)

    def follow_drag(self, dragged: Iterable[str], plain: bool = False) -> None:
        """Reroute the wires of nodes that are being dragged; the others wait for the drop."""
        for edge in set(self.wires_at(dragged)):
            if plain:
                self.items[edge].set_route(unled(*self._ends(edge)))
            else:
                self._route(self.items[edge])

    def lead(self, wires: Iterable[Edge]) -> None:
        """Reroute the wires whose bends changed."""
        bent = [self.items[wire] for wire in wires if wire in self.items]
        if bent:
            for item in bent:
                self._route(item)
            self.follow(set(), [])

    def _route(
        self, item: WireItem, ends: tuple[QPointF, QPointF] | None = None
    ) -> None:
        item.set_route(self._compute_route(item.edge, ends))
        self._keep(item)

    def _keep(self, item: WireItem) -> None:
        """Store the lane and area of a wire's route for others."""
        edge, way = item.edge, item.route
        before = self._lanes[edge] if edge in self._lanes else None
        if way.lane.isEmpty():
            self._lanes.remove(edge)
        else:
            self._lanes.put(edge, way.lane)
        if before != (self._lanes[edge] if edge in self._lanes else None):
            self._stirred += [
                lane
                for lane in (before, way.lane)
                if lane is not None and not lane.isEmpty()
            ]
        self._areas.put(edge, way.area)
        if way.backward:
            self._back.add(edge)
        else:
            self._back.discard(edge)
        self._unsettled.add((edge.source, edge.output))

    def _ends(self, edge: Edge) -> tuple[QPointF, QPointF]:
        source, target = self._nodes[edge.source], self._nodes[edge.target]
        start = source.output_point(min(edge.output, len(source.geometry.outputs) - 1))
        return start, target.input_point(target.input_number(edge.port, edge.index))

    def _runs_back(self, edge: Edge) -> bool:
        return not self.bends.points(edge) and runs_back(*self._ends(edge))

    def _compute_route(
        self, edge: Edge, ends: tuple[QPointF, QPointF] | None = None
    ) -> Route:
        lanes, back = self._lanes, self._back

        def lanes_in(area: QRectF) -> list[QRectF]:
            return [
                lanes[wire]
                for wire in lanes.inside(area)
                if wire not in back or wire < edge
            ]

        own = (edge.source, edge.target)
        source, target = (self._nodes[node].body for node in own)
        bends = self.bends.points(edge)
        return led(
            *(ends or self._ends(edge)),
            source,
            target,
            self._places,
            own,
            lanes_in,
            bends,
        )

    def _settle_labels(self) -> None:
        """Show one of several overlapping labels of wires with the same value, and hide labels under rising wires."""
        unsettled, self._unsettled = self._unsettled, set()
        for source, output in unsettled:
            wires = self._graph.out_of(source)
            fan = [self.items[edge] for edge in wires if edge.output == output]
            for item in fan[LABELS:]:
                item.set_crowded(True)
            del fan[LABELS:]
            rising = len(fan) > 1 and any(item.route.past < 0 for item in fan)
            shown: list[QRectF] = []
            for item in fan:
                item.set_below(rising and not item.route.past)
                area = item.chip.rect
                crowded = any(area.intersects(other) for other in shown)
                item.set_crowded(crowded)
                if not crowded:
                    shown.append(area)

    # --- Analysis

    def label(
        self, analysis: Analysis | None, problems: Problems, wires: Iterable[Edge]
    ) -> None:
        """Set shape labels on some wires; wires that the analysis does not have stay plain."""
        if analysis is None:
            return
        for edge in wires:
            value = analysis.values.get((edge.source, edge.output))
            wrong = problems.get(edge.target, ())
            state = NORMAL
            if any(
                p.severity == "error" and p.port in (None, edge.port) for p in wrong
            ):
                state = ERROR
            elif value is None and edge.source in analysis.graph.nodes:
                state = ASSUMED
            if self.items[edge].set_label(
                str(value) if value is not None else "", state
            ):
                self._unsettled.add((edge.source, edge.output))
        self._settle_labels()

    def widen(self, analysis: Analysis | None) -> None:
        """Draw each wire as wide as the values that one sample puts on it; all plain without an analysis."""
        if analysis is None and not self._widened:
            return
        self._widened = analysis is not None
        counts = self._counts(analysis)
        largest = max(counts.values(), default=1)
        for edge, item in self.items.items():
            count = counts.get(edge)
            item.set_width(
                None
                if count is None
                else WIDTH_LEAST + WIDTH_MORE * math.sqrt(count / largest)
            )

    def largest_count(self, analysis: Analysis | None) -> int | None:
        """Return the largest number of values per sample on a wire, None if unknown."""
        return max(self._counts(analysis).values(), default=None)

    def _counts(self, analysis: Analysis | None) -> dict[Edge, int]:
        values = analysis.values if analysis is not None else {}
        edge_values = {
            edge: values.get((edge.source, edge.output)) for edge in self.items
        }
        counts = {
            edge: value.per_sample()
            for edge, value in edge_values.items()
            if isinstance(value, TensorType)
        }
        return {edge: count for edge, count in counts.items() if count}

    # --- Questions

    def wire_at(self, point: QPointF) -> Edge | None:
        """Return the wire at a point, of several the topmost."""
        near = self._shown_in(QRectF(point.x() - 1, point.y() - 1, 2, 2))
        hits = [item for item in near if item.shape().contains(point)]
        return (
            max(hits, key=lambda item: (item.raised, item.rank)).edge if hits else None
        )

    def near(self, area: QRectF) -> Edge | None:
        """Return the wire that crosses an area, the shortest of several."""
        hits = [item for item in self._shown_in(area) if item.shape().intersects(area)]
        return (
            min(hits, key=lambda item: item.route.path.length()).edge if hits else None
        )

    def _shown_in(self, area: QRectF) -> list[WireItem]:
        wide = area.adjusted(-REACH, -REACH, REACH, REACH)
        nearby = (self.items[edge] for edge in self.index.inside(wide))
        return [item for item in nearby if item.isVisible()]
