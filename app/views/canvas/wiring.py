"""All wires of the drawing: which there are, where they run, what stands on them and how wide they are."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from PySide6.QtCore import QRectF
from PySide6.QtWidgets import QGraphicsItem, QGraphicsScene

from app.builder.graph import Edge, Graph
from app.builder.value_types import TensorType
from app.views.canvas.bend_items import BendDots
from app.views.canvas.bent import through
from app.views.canvas.faces import Problems
from app.views.canvas.node_item import NodeItem
from app.views.canvas.routes import Route, route
from app.views.canvas.spatial import RectIndex
from app.views.canvas.wire_item import ASSUMED, ERROR, NORMAL, WireItem

if TYPE_CHECKING:
    from app.builder.analysis import Analysis

WIDTH_LEAST, WIDTH_MORE = 1.5, 5.5
MANY = 64  # more changed places than this, and every wire is routed anew without looking whether it must


class Wiring:
    """Makes, routes and labels wire items. `nodes` and `index` are the scene's; items hang under `layer`."""

    def __init__(
        self,
        scene: QGraphicsScene,
        nodes: Mapping[str, NodeItem],
        index: RectIndex,
        layer: QGraphicsItem,
        bends: BendDots,
    ) -> None:
        self._scene, self._nodes, self._index, self._layer, self._bends = scene, nodes, index, layer, bends
        self.items: dict[Edge, WireItem] = {}
        self._lanes = RectIndex()

    def change(self, after: Graph) -> list[WireItem]:
        """Bring the items in line with a graph; returns the new ones."""
        wanted = set(after.edges)
        for edge in [e for e in self.items if e not in wanted]:
            item = self.items.pop(edge)
            self._scene.removeItem(item)
            self._scene.removeItem(item.chip)
            self._lanes.remove(_key(edge))
        new = []
        for edge in after.edges:
            if edge not in self.items:
                self.items[edge] = item = WireItem(edge, self._way(edge))
                item.setParentItem(self._layer)
                item.chip.setParentItem(self._layer)
                self._keep_lane(item)
                new.append(item)
        return new

    # --- Ways

    def follow(self, moved: set[str], swept: list[QRectF]) -> None:
        """Route anew the wires of moved nodes, and those near whose way something came or went (`swept`).

        Wires that run back come last, because they keep out of the lanes of the others.
        """
        back = []
        lanes_moved = False
        for item in self.items.values():
            if item.way.backward:
                back.append(item)
            elif self._touched(item, moved, swept):
                lane = item.way.lane
                self._route(item)
                lanes_moved = lanes_moved or lane != item.way.lane
        for item in back:
            if lanes_moved or self._touched(item, moved, swept):
                self._route(item)
        self._settle_labels()

    @staticmethod
    def _touched(item: WireItem, moved: set[str], swept: list[QRectF]) -> bool:
        if item.edge.source in moved or item.edge.target in moved or len(swept) > MANY:
            return True
        return any(item.way.area.intersects(area) for area in swept)

    def follow_drag(self, dragged: Iterable[str]) -> None:
        """Let the wires of nodes that are being dragged follow; the others wait until they are let go."""
        held = set(dragged)
        for edge, item in self.items.items():
            if edge.source in held or edge.target in held:
                self._route(item)

    def lead(self, wires: Iterable[Edge]) -> None:
        """Route anew the wires whose bends are others."""
        found = [self.items[wire] for wire in wires if wire in self.items]
        for item in found:
            self._route(item)
        if found:
            self._settle_labels()

    def _route(self, item: WireItem) -> None:
        item.set_route(self._way(item.edge))
        self._keep_lane(item)

    def _keep_lane(self, item: WireItem) -> None:
        if item.way.lane.isEmpty():
            self._lanes.remove(_key(item.edge))
        else:
            self._lanes.put(_key(item.edge), item.way.lane)

    def _way(self, edge: Edge) -> Route:
        source, target = self._nodes[edge.source], self._nodes[edge.target]
        start = source.output_point(min(edge.output, len(source.geometry.outputs) - 1))
        end = target.input_point(target.input_number(edge.port, edge.index))
        points = self._bends.points(edge)
        if points:
            return through(start, end, points)
        own = _key(edge)

        def others(area: QRectF) -> list[QRectF]:
            found = self._index.inside(area)
            return [self._index[node] for node in found if node not in (edge.source, edge.target)]

        def lanes(area: QRectF) -> list[QRectF]:
            return [self._lanes[key] for key in self._lanes.inside(area) if key != own]

        return route(start, end, source.body, target.body, others, lanes)

    def _settle_labels(self) -> None:
        """Where a wire rises over others from a port, the labels of the rest go under their wires.

        The wires of one output carry the same: of labels that would cover each other one is enough.
        """
        fans: dict[tuple[str, int], list[WireItem]] = defaultdict(list)
        for edge, item in self.items.items():
            fans[edge.source, edge.output].append(item)
        for fan in fans.values():
            if len(fan) == 1:  # by far the most, and none that it could cover
                fan[0].set_below(fan[0].way.past < 0 and not fan[0].way.past)
                fan[0].set_crowded(False)
                continue
            rising = any(item.way.past < 0 for item in fan)
            shown: list[QRectF] = []
            for item in fan:
                item.set_below(rising and not item.way.past)
                area = item.chip.sceneBoundingRect()
                crowded = any(area.intersects(other) for other in shown)
                item.set_crowded(crowded)
                if not crowded:
                    shown.append(area)

    # --- What is known

    def label(self, analysis: Analysis | None, problems: Problems) -> None:
        """Put shapes on the wires; what a newer drawing has and the analysis has not stays plain."""
        if analysis is None:
            return
        for edge, item in self.items.items():
            value = analysis.values.get((edge.source, edge.output))
            wrong = problems.get(edge.target, ())
            state = NORMAL
            if any(p.severity == "error" and p.port in (None, edge.port) for p in wrong):
                state = ERROR
            elif value is None and edge.source in analysis.graph.nodes:
                state = ASSUMED
            item.set_label(str(value) if value is not None else "", state)
        self._settle_labels()

    def widen(self, analysis: Analysis | None) -> None:
        """Draw each wire as wide as the values that one sample puts on it; all plain without an analysis."""
        counts = self._counts(analysis)
        largest = max(counts.values(), default=1)
        for edge, item in self.items.items():
            count = counts.get(edge)
            item.set_width(None if count is None else WIDTH_LEAST + WIDTH_MORE * math.sqrt(count / largest))

    def largest_count(self, analysis: Analysis | None) -> int | None:
        """The most values that one sample puts on a wire, None while nothing is known."""
        return max(self._counts(analysis).values(), default=None)

    def _counts(self, analysis: Analysis | None) -> dict[Edge, int]:
        values = analysis.values if analysis is not None else {}
        found = {edge: values.get((edge.source, edge.output)) for edge in self.items}
        counts = {edge: value.per_sample() for edge, value in found.items() if isinstance(value, TensorType)}
        return {edge: count for edge, count in counts.items() if count}


def _key(edge: Edge) -> str:
    return f"{edge.source}.{edge.output}>{edge.target}.{edge.port}.{edge.index}"
