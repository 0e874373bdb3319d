"""Positions of nodes: their items are placed, indexed by area, and bounded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import hypot

from PySide6.QtCore import QPointF, QRectF

from app.builder.arrange import Size, complete
from app.builder.graph import Graph
from app.builder.sheet import Positions
from app.util.frozen import FrozenMap
from app.views.canvas.difference import differing
from app.views.canvas.items.geometry import snapped
from app.views.canvas.items.node_item import NodeItem
from app.views.ui.graphview.spatial import RectIndex, bounds

CLEAR, APART = (
    8,
    16,
)  # px between a node that had to make way and the others: at least, and aimed at
MANY = 100  # more nodes or positions than this in one change repaint everything


class NodePositions:
    """Keeps the items of `nodes` at their positions. `positions` has one for each of them.

    `swept` collects areas where something was added or removed, for the wires that may have to be rerouted.
    """

    def __init__(self, nodes: Mapping[str, NodeItem]) -> None:
        self._nodes = nodes
        self.index: RectIndex[str] = RectIndex()
        self.positions: Positions = FrozenMap()
        self.adrift: set[str] = (
            set()
        )  # nodes that are shown elsewhere than in their places
        self._whole: QRectF | None = None

    def bring(
        self, graph: Graph, wished: Positions, touched: set[str], swept: list[QRectF]
    ) -> None:
        """Place every node; moved ones are added to `touched`, their old and new areas to `swept`.

        Nodes without a position in `wished` are placed by `complete`.
        """
        before = self.positions
        all_placed = wished.keys() == graph.nodes.keys()
        self.positions = wished if all_placed else complete(graph, wished, self.sizes())
        shifted = differing(before, self.positions) & self._nodes.keys()
        touched |= {
            n
            for n in shifted
            if (self._nodes[n].x(), self._nodes[n].y()) != self.positions[n]
        }
        touched |= self.adrift & self._nodes.keys()
        self.adrift.clear()
        if len(touched) > MANY:
            self._put_many(touched, swept)
            return
        for node in touched:
            self._put(node, QPointF(*self.positions[node]), swept)

    def _put_many(self, nodes: set[str], swept: list[QRectF]) -> None:
        """Place nodes as `_put`, without notifications: the scene repaints everything."""
        new = []
        for node in nodes:
            item = self._nodes[node]
            item.put(QPointF(*self.positions[node]))
            body = item.body
            if node in self.index:
                self._shrink(self.index[node], body)
            self.index.put(node, body)
            new.append(body)
        swept += new
        if self._whole is not None:
            self._whole = bounds([self._whole, *new])

    def drag(self, positions: Mapping[str, QPointF]) -> None:
        """Show nodes elsewhere for a while."""
        for node, position in positions.items():
            self._put(node, position, [])
        self.adrift.update(positions)

    def remove(self, node: str, swept: list[QRectF]) -> None:
        """Remove a node."""
        swept.append(self.index[node])
        self._shrink(self.index[node])
        self.index.remove(node)
        self.adrift.discard(node)

    def clear(self) -> None:
        """Remove all nodes."""
        self.index.clear()
        self.adrift.clear()
        self.positions, self._whole = FrozenMap(), None

    def _put(self, node: str, position: QPointF, swept: list[QRectF]) -> None:
        item = self._nodes[node]
        item.set_pos(position)
        body = item.body
        if node in self.index:
            swept.append(self.index[node])
            self._shrink(self.index[node], body)
        self.index.put(node, body)
        swept.append(body)
        if self._whole is not None:
            self._whole = self._whole.united(body)

    def _shrink(self, gone: QRectF, new: QRectF | None = None) -> None:
        """Shrink the bounding rectangle after an area is gone, unless the `new` one reaches as far."""
        if self._whole is None or self._whole.adjusted(1, 1, -1, -1).contains(gone):
            return
        if new is None or not new.contains(gone):
            self._whole = None

    def sizes(self) -> dict[str, Size]:
        """Return the sizes of the nodes, for layout."""
        return {node: item.geometry.size for node, item in self._nodes.items()}

    def free_spot(self, size: Size, middle: QPointF) -> QPointF:
        """Return the nearest position below `middle` where a node of a size has room."""
        area = QRectF(0, 0, size.width + 16, size.height + 16)
        area.moveCenter(middle)
        for _ in range(len(self._nodes) + 1):
            blocking = self.index.inside(area)
            if not blocking:
                break
            area.moveTop(max(self._nodes[node].body.bottom() for node in blocking) + 8)
        return area.center()

    def beside(self, size: Size, corner: QPointF) -> QPointF:
        """Return the corner on the grid nearest to `corner` where a node of a size overlaps no other."""
        corner = snapped(corner, size.anchor)
        reach = 0.0
        while not self._has_room(size, corner, 0 if not reach else CLEAR):
            reach = 2 * reach or max(size.width, size.height)
            area = QRectF(corner.x(), corner.y(), size.width, size.height).adjusted(
                -reach, -reach, reach, reach
            )
            around = [self.index[node] for node in self.index.inside(area)]
            lefts = {
                x
                for body in around
                for x in (body.left() - size.width - APART, body.right() + APART)
            }
            tops = {
                y
                for body in around
                for y in (body.top() - size.height - APART, body.bottom() + APART)
            }
            corners = [
                snapped(QPointF(x, y), size.anchor)
                for x in lefts | {corner.x()}
                for y in tops | {corner.y()}
            ]
            near = sorted(
                (hypot(at.x() - corner.x(), at.y() - corner.y()), at.x(), at.y())
                for at in corners
            )
            reachable = (QPointF(x, y) for far, x, y in near if far <= reach)
            free = next(
                (at for at in reachable if self._has_room(size, at, CLEAR)), None
            )
            if free is not None:
                return free
        return corner

    def _has_room(self, size: Size, corner: QPointF, about: float) -> bool:
        area = QRectF(corner.x(), corner.y(), size.width, size.height)
        return not self.index.inside(area.adjusted(-about, -about, about, about))

    def content_rect(self) -> QRectF:
        """Return the bounding rectangle of all nodes."""
        if self._whole is None:
            self._whole = self.about(self._nodes)
        return QRectF(self._whole)

    def about(self, nodes: Iterable[str]) -> QRectF:
        """Return the bounding rectangle of some nodes; unknown ones are ignored."""
        corners = [self.index[node].getCoords() for node in nodes if node in self.index]
        if not corners:
            return QRectF()
        lefts, tops, rights, bottoms = zip(*corners, strict=True)
        left, top = min(lefts), min(tops)
        return QRectF(left, top, max(rights) - left, max(bottoms) - top)
