"""Detailed rendering of the visible part, in two items: wires, and what is above them.

Thousands of Qt items would be asked for their bounds in every frame. Here a spatial index finds what is visible, and a
node is drawn as a cached sprite.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from PySide6.QtCore import QRectF, Qt, QTimer
from PySide6.QtGui import QPainter, QTransform
from PySide6.QtWidgets import QGraphicsItem, QStyleOptionGraphicsItem, QWidget

from app.views.canvas.items.geometry import OUTLINE
from app.views.canvas.items.node_item import NodeItem
from app.views.canvas.wires.wire_item import LABEL_HEIGHT, WireItem, paint_chip
from app.views.ui.graphview.small_names import LEGIBLE
from app.views.ui.graphview.spatial import EVERYWHERE, RectIndex
from app.views.ui.graphview.sprites import PICTURES, SpriteItem, SpriteRequest

if TYPE_CHECKING:
    from app.builder.graph import Edge
    from app.views.canvas.items.node_item import InnerLook

LABELS = 1.0  # z value of labels and nodes; bends are between it and the wires


class ItemLayer(QGraphicsItem):
    """Holds all items, to hide them at once."""

    def __init__(self) -> None:
        super().__init__()
        self.setFlag(QGraphicsItem.GraphicsItemFlag.ItemHasNoContents)

    def boundingRect(self) -> QRectF:
        return QRectF()


class WiresItem(QGraphicsItem):
    """Paints the visible wires, selected ones last; `catch_up` has routed them before."""

    def __init__(
        self,
        wires: Mapping[Edge, WireItem],
        index: RectIndex[Edge],
        layer: QGraphicsItem,
        catch_up: Callable[[QRectF], None],
    ) -> None:
        super().__init__(layer)
        self._wires, self._index, self._catch_up = wires, index, catch_up
        self.setFlag(QGraphicsItem.GraphicsItemFlag.ItemUsesExtendedStyleOption)
        self.setAcceptedMouseButtons(Qt.MouseButton.NoButton)

    def boundingRect(self) -> QRectF:
        return EVERYWHERE

    def paint(
        self,
        painter: QPainter,
        option: QStyleOptionGraphicsItem,
        widget: QWidget | None = None,
    ) -> None:
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        area = _exposed(option)
        self._catch_up(area)
        wires = [self._wires[edge] for edge in self._index.inside(area)]
        wires.sort(key=_order)
        for wire in wires:
            if wire.isVisible():
                wire.paint(painter)


class NodesItem(SpriteItem):
    """Paints the labels of wires and over them the nodes that are in sight, selected ones last."""

    def __init__(
        self,
        nodes: Mapping[str, NodeItem],
        index: RectIndex[str],
        wires: Mapping[Edge, WireItem],
        wire_index: RectIndex[Edge],
        layer: QGraphicsItem,
        rest: QTimer,
    ) -> None:
        super().__init__(layer, rest)
        self._nodes, self._index = nodes, index
        self._wires, self._wire_index = wires, wire_index
        self.setZValue(LABELS)

    def paint(
        self,
        painter: QPainter,
        option: QStyleOptionGraphicsItem,
        widget: QWidget | None = None,
    ) -> None:
        area = _exposed(option)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        wires, nodes = self._in(area)
        zoom = painter.worldTransform().m11()
        for item in nodes:
            if item.inner is not None:
                _paint_frame(painter, item, area, zoom)
        self.put_down(
            painter,
            lambda view: _things(wires, nodes, area, view, zoom),
            None if widget is None else PICTURES,
        )

    def prepare(
        self, view: QTransform, ratio: float, area: QRectF, seconds: float
    ) -> bool:
        """Make sprites for an area within a time budget; return whether all are made."""
        wires, nodes = self._in(area)
        return self._sprites.prepare(
            _things(wires, nodes, area, view, view.m11()), (view.m11(), ratio), seconds
        )

    def _in(self, area: QRectF) -> tuple[list[WireItem], list[NodeItem]]:
        """Return the items in an area, in paint order."""
        wires = [
            wire
            for edge in self._wire_index.inside(area)
            if (wire := self._wires[edge]).chip.visible
        ]
        nodes = [self._nodes[node] for node in self._index.inside(_wide(area))]
        return sorted(wires, key=_order), sorted(nodes, key=_level)


def _things(
    wires: Iterable[WireItem],
    nodes: Iterable[NodeItem],
    area: QRectF,
    view: QTransform,
    zoom: float,
) -> Iterator[SpriteRequest]:
    """Yield labels and nodes and, of unfolded blocks, the visible ones inside."""
    for wire in wires if zoom >= LEGIBLE else ():
        yield _label(wire, view)
    for item in nodes:
        if item.inner is None:
            yield _node(item, view, zoom)
        else:
            yield from _inside(
                item, item.inner, area.translated(-item.pos()), view, zoom
            )


def _inside(
    item: NodeItem, inner: InnerLook, area: QRectF, view: QTransform, zoom: float
) -> Iterator[SpriteRequest]:
    here = QTransform.fromTranslate(item.x(), item.y()) * view
    labels = QTransform.fromTranslate(inner.plan.shift.x(), inner.plan.shift.y()) * here
    for wire in inner.wires_in(area) if zoom >= LEGIBLE else ():
        if wire.chip.visible:
            yield _label(wire, labels)
    yield from _things((), inner.nodes_in(_wide(area)), area, here, zoom)


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


def _label(wire: WireItem, view: QTransform) -> SpriteRequest:
    chip = wire.chip
    extent = QRectF(-1, -1, chip.width + 2, LABEL_HEIGHT + 2)
    return SpriteRequest(
        view.map(chip.place),
        chip.appearance,
        0,
        extent,
        partial(_paint_chip, chip.appearance, chip.width),
    )


def _node(item: NodeItem, view: QTransform, zoom: float) -> SpriteRequest:
    key, version = item.picture
    return SpriteRequest(
        view.map(item.pos()),
        key,
        version,
        item.own_extent,
        partial(_paint_node, item, zoom),
    )


def _wide(area: QRectF) -> QRectF:
    return area.adjusted(-OUTLINE, -OUTLINE, OUTLINE, OUTLINE)


def _exposed(option: QStyleOptionGraphicsItem) -> QRectF:
    return option.exposedRect


def _order(item: WireItem) -> tuple[bool, int]:
    return item.raised, item.rank


def _level(item: NodeItem) -> tuple[bool, bool, int]:
    return item.level


def _paint_chip(look: tuple[str, str, bool], width: float, painter: QPainter) -> None:
    paint_chip(painter, look, width)


def _paint_node(item: NodeItem, zoom: float, painter: QPainter) -> None:
    item.paint(painter, zoom)
