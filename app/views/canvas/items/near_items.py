"""What is in sight near, in paint order: wires, bends and the frames of unfolded blocks, then labels and nodes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING

from PySide6.QtCore import QRectF
from PySide6.QtGui import QPainter, QTransform

from app.views.canvas.items.geometry import OUTLINE
from app.views.canvas.items.node_item import NodeItem
from app.views.canvas.wires.wire_item import LABEL_HEIGHT, WireItem, paint_chip
from app.views.ui.graphview.small_names import LEGIBLE
from app.views.ui.graphview.spatial import RectIndex
from app.views.ui.graphview.sprites import SpriteRequest

if TYPE_CHECKING:
    from app.views.canvas.items.node_item import InnerLook
    from app.views.canvas.wires.wiring import Wiring


class NearItems:
    """Finds the items of an area by the indexes of nodes and wires; selected ones are painted last."""

    def __init__(
        self, nodes: Mapping[str, NodeItem], index: RectIndex[str], wiring: Wiring
    ) -> None:
        self._nodes, self._index, self._wiring = nodes, index, wiring

    def ground(self, painter: QPainter, area: QRectF, zoom: float) -> None:
        """Paint wires, their bends, and the frames of unfolded blocks with the wires in them."""
        self._wiring.catch_up(area)
        for wire in self._wires_in(area):
            if wire.isVisible():
                wire.paint(painter)
        self._wiring.bends.paint(painter, area)
        for item in self._nodes_in(area):
            if item.inner is not None:
                _paint_frame(painter, item, area, zoom)

    def things(
        self, area: QRectF, zoom: float, view: QTransform
    ) -> Iterator[SpriteRequest]:
        """Yield labels of wires and over them nodes; of unfolded blocks those inside."""
        yield from _labels(self._wires_in(area), zoom, view)
        yield from _bodies(self._nodes_in(area), area, zoom, view)

    def _wires_in(self, area: QRectF) -> list[WireItem]:
        wires = [self._wiring.items[edge] for edge in self._wiring.index.inside(area)]
        return sorted(wires, key=attrgetter("raised", "rank"))

    def _nodes_in(self, area: QRectF) -> list[NodeItem]:
        nodes = [self._nodes[node] for node in self._index.inside(_wide(area))]
        return sorted(nodes, key=attrgetter("level"))


def _labels(
    wires: Iterable[WireItem], zoom: float, view: QTransform
) -> Iterator[SpriteRequest]:
    for wire in wires if zoom >= LEGIBLE else ():
        chip = wire.chip
        if chip.visible:
            extent = QRectF(-1, -1, chip.width + 2, LABEL_HEIGHT + 2)
            paint = partial(paint_chip, look=chip.appearance, width=chip.width)
            yield SpriteRequest(view.map(chip.place), chip.appearance, 0, extent, paint)


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
