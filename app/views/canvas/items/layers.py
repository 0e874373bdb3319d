"""The drawing near, as wires, bends, labels and nodes; and from afar, as blocks, rings of their states, and lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

from PySide6.QtCore import QPointF, QRectF
from PySide6.QtGui import QPainter, QTransform

from app.builder.graph import Edge
from app.views.canvas.items.geometry import HEADER, OUTLINE
from app.views.canvas.items.node_item import InnerLook, NodeItem
from app.views.canvas.items.painter import GROUND
from app.views.canvas.wire_item import (
    LABEL_HEIGHT,
    LEAST_ZOOM,
    WireItem,
    paint_chip,
)
from app.views.canvas.wiring import Wiring
from app.views.ui import theme
from app.views.ui.graphview.minimap import MapRects
from app.views.ui.graphview.overview import (
    BATCH,
    Batch,
    Overview,
    PaintLayer,
    Rects,
    batched,
)
from app.views.ui.graphview.spatial import RectIndex, bounds
from app.views.ui.graphview.sprites import SpriteRequest
from app.views.ui.theme import Theme

INSIDE = 4000  # nodes of a batch, those seen in it included
RING = 2  # pixels of the screen


class CanvasSight:
    """The items that touch an area, found by the indexes of nodes and wires; selected ones are painted last."""

    def __init__(
        self,
        nodes: Mapping[str, NodeItem],
        index: RectIndex[str],
        wiring: Wiring,
        area: QRectF,
        zoom: float,
    ) -> None:
        self._area, self._zoom, self._bends = area, zoom, wiring.bends
        wires = [wiring.items[edge] for edge in wiring.index.inside(area)]
        self._wires = sorted(wires, key=attrgetter("raised", "rank"))
        items = [nodes[node] for node in index.inside(_wide(area))]
        self._nodes = sorted(items, key=attrgetter("level"))

    def paint(self, painter: QPainter) -> None:
        """Paint wires, their bends, and the frames of unfolded blocks with the wires in them."""
        for wire in self._wires:
            if wire.isVisible():
                wire.paint(painter)
        self._bends.paint(painter, self._area)
        for item in self._nodes:
            if item.inner is not None:
                _paint_frame(painter, item, self._area, self._zoom)

    def things(self, view: QTransform) -> Iterator[SpriteRequest]:
        """Yield labels of wires and over them nodes; of unfolded blocks those inside."""
        yield from _labels(self._wires, self._zoom, view)
        yield from _bodies(self._nodes, self._area, self._zoom, view)


def _labels(
    wires: Iterable[WireItem], zoom: float, view: QTransform
) -> Iterator[SpriteRequest]:
    for wire in wires if zoom >= LEAST_ZOOM else ():
        chip, scale = wire.chip, wire.label_scale(zoom)
        if scale is not None:
            width, height = chip.width * scale[0], LABEL_HEIGHT * scale[1]
            extent = QRectF(-width / 2, -height / 2, width, height)
            paint = partial(
                paint_chip, look=chip.appearance, width=chip.width, scale=scale
            )
            key = (chip.appearance, scale)
            at = view.map(chip.rect.center())
            yield SpriteRequest(at, key, 0, extent.adjusted(-1, -1, 1, 1), paint)


def _bodies(
    nodes: Iterable[NodeItem], area: QRectF, zoom: float, view: QTransform
) -> Iterator[SpriteRequest]:
    for item in nodes:
        if item.inner is not None:
            yield from _inside(item, item.inner, area, zoom, view)
            continue
        paint = partial(item.paint, zoom=zoom)
        yield SpriteRequest(view.map(item.pos()), *item.picture, item.own_extent, paint)


def _inside(
    item: NodeItem, inner: InnerLook, area: QRectF, zoom: float, view: QTransform
) -> Iterator[SpriteRequest]:
    """Yield the labels and nodes inside an unfolded block."""
    here, shift = area.translated(-item.pos()), inner.plan.shift
    inner_view = QTransform.fromTranslate(item.x(), item.y()) * view
    label_view = QTransform.fromTranslate(shift.x(), shift.y()) * inner_view
    yield from _labels(inner.wires_in(here), zoom, label_view)
    yield from _bodies(inner.nodes_in(_wide(here)), here, zoom, inner_view)


def _paint_frame(painter: QPainter, item: NodeItem, area: QRectF, zoom: float) -> None:
    """Paint the frame of an unfolded block, and of those nested in it, without nodes and labels."""
    inner = item.inner
    assert inner is not None
    here = area.translated(-item.pos())
    painter.save()
    painter.translate(item.pos())
    item.paint(painter, zoom, here)
    for other in inner.nodes_in(here):
        if other.inner is not None:
            _paint_frame(painter, other, here, zoom)
    painter.restore()


def _wide(area: QRectF) -> QRectF:
    return area.adjusted(-OUTLINE, -OUTLINE, OUTLINE, OUTLINE)


class WireBatch(Batch[WireItem]):
    """Lines, in the layer under all others."""

    def fill(self, layers: list[PaintLayer], now: Theme) -> QRectF:
        for item in self.members:
            if item.isVisible():
                layers[0].lines[item.far_color(now).rgba(), 1].addPath(item.route.path)
        return bounds([item.extent for item in self.members])


class NodeBatch(Batch[NodeItem]):
    """Nothing where wires are; unfolded blocks as frames with the lines in them; all other bodies, the blocks of their
    categories over them; rings of their states."""

    LAYERS = 4

    def fill(self, layers: list[PaintLayer], now: Theme) -> QRectF:
        _, frames, blocks, rings = layers
        ground, line = (
            theme.mix(now.canvas, now.raised, GROUND).rgba(),
            now.line3.rgba(),
        )
        bodies = blocks.fills[now.pressed.rgba()]
        for item, at, inner in _looked_into(self.members, INSIDE):
            body = item.body.translated(at)
            header = QRectF(body.left(), body.top(), body.width(), HEADER)
            blocks.fills[item.far_color(now).rgba()].append(header)
            if inner is None:
                bodies.append(body)
                continue
            frames.fills[ground].append(body)
            frames.outlines[line, 1].append(body)
            for wire in inner.wires.values():
                way = wire.route.path.translated(body.topLeft() + inner.plan.shift)
                frames.lines[now.wire.rgba(), 1].addPath(way)
        for item in self.members:
            if (ring := item.far_ring(now)) is not None:
                rings.outlines[ring.rgba(), RING].append(item.body)
        return bounds([item.body for item in self.members])

    def map(self, now: Theme, most: int) -> tuple[Rects, Rects]:
        """Return rectangles in the colours of categories, nodes with errors in theirs. Beyond `most`, further blocks
        are not unfolded."""
        rects: tuple[Rects, Rects] = [], []
        for item, at, inner in _looked_into(self.members, most):
            color = (
                now.error
                if item.face.state == "error"
                else now.line2
                if inner is not None
                else item.far_color(now)
            )
            left, top, right, bottom = item.edges
            rects[inner is None].append(
                (
                    left + at.x(),
                    top + at.y(),
                    right + at.x(),
                    bottom + at.y(),
                    color.rgba(),
                )
            )
        return rects


class CanvasOverview(Overview):
    """Paints nodes and wires of the scene by their state."""

    def __init__(
        self,
        nodes: Mapping[str, NodeItem],
        wires: Mapping[Edge, WireItem],
    ) -> None:
        super().__init__()
        self._all_nodes, self._all_wires = nodes, wires
        self.clear()
        self._grouped = True
        self.setVisible(False)

    def regroup(self) -> None:
        """Rebuild the batches after nodes or wires were added or removed."""
        self._grouped = False

    def clear(self) -> None:
        """Drop all nodes and wires."""
        self._nodes: list[NodeBatch] = []
        self._wires: list[WireBatch] = []
        self._batch_of: dict[object, NodeBatch | WireBatch] = {}
        self._grouped = False

    def batches(self) -> Sequence[Batch[Any]]:
        """Return the batches of wires and nodes by rank: stacking does not depend on creation order."""
        if not self._grouped:
            rank = attrgetter("rank")
            self._nodes = batched(
                sorted(self._all_nodes.values(), key=rank), self._nodes, NodeBatch
            )
            self._wires = batched(
                sorted(self._all_wires.values(), key=rank), self._wires, WireBatch
            )
            self._batch_of = {
                item: batch for batch in self._nodes for item in batch.members
            }
            self._batch_of |= {
                item: batch for batch in self._wires for item in batch.members
            }
            self._grouped = True
        return *self._wires, *self._nodes

    def mapped_batches(self) -> Sequence[NodeBatch]:
        self.batches()
        return self._nodes

    def map_rects(self, most: int = INSIDE) -> tuple[MapRects, bool]:
        return super().map_rects(max(BATCH, most // max(len(self.mapped_batches()), 1)))

    def mark(self, item: object) -> None:
        """Mark an item as changed; the repaint is requested for all at once."""
        batch = self._batch_of.get(item)
        if batch is not None:
            batch.spoil()

    def touch(self, item: object, area: QRectF) -> None:
        """Repaint an item within an area."""
        self.mark(item)
        if self.isVisible():
            self.refresh(area)

    def set_zoom(self, zoom: float) -> None:
        """Keep rings at the same width on the screen."""
        self._margin = 2 * RING / zoom


def _looked_into(
    items: Iterable[NodeItem], most: int
) -> Iterator[tuple[NodeItem, QPointF, InnerLook | None]]:
    """Yield nodes, and those in unfolded blocks after them, each with the origin of its position and its visible
    inside.

    Nested blocks multiply: beyond `most` nodes, further blocks are not unfolded.
    """
    waiting = [(item, QPointF()) for item in items]
    for item, at in waiting:
        inner = item.inner if len(waiting) < most else None
        yield item, at, inner
        if inner is not None:
            corner = at + item.pos()
            waiting += [(other, corner) for other in inner.nodes.values()]
