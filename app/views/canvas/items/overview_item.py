"""The whole drawing from afar in one item: blocks and thin lines, put down in a few strokes.

Painting a thousand nodes by themselves takes longer than a frame; from afar nobody can tell them apart anyway. They and
the wires are kept in bundles: an edit makes one bundle anew, and bundles out of sight are not painted.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from time import perf_counter
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from PySide6.QtCore import QPointF, QRectF, Qt, QTimer
from PySide6.QtGui import QColor, QPainter, QPainterPath, QPen
from PySide6.QtWidgets import QGraphicsItem, QStyleOptionGraphicsItem, QWidget

from app.views.canvas.items.geometry import EVERYWHERE, HEADER, bounds
from app.views.canvas.items.painter import GROUND
from app.views.ui import theme

if TYPE_CHECKING:
    from app.builder.graph import Edge
    from app.views.canvas.items.node_item import NodeItem
    from app.views.canvas.items.unfolded_blocks import InnerLook
    from app.views.canvas.wires.wire_item import WireItem
    from app.views.ui.theme import Theme

BUNDLE = 64
INSIDE = 4000  # nodes of a bundle, those seen in it included
RING = 2  # pixels of the screen
A_FEW = 8  # bundles that a map is made of at least
SLICE = 0.01  # seconds of a painting for bundles that are made anew

T = TypeVar("T")
B = TypeVar("B", bound="_Bundle")
Rects = dict[int, list[QRectF]]  # by colour


class _Bundle(Generic[T]):
    """Some items that are painted together; `stale` when one of them looks different."""

    def __init__(self, members: list[T]) -> None:
        self.members = members
        self.stale = True
        self.made = False
        self.area = QRectF()

    def spoil(self) -> None:
        """One of its items looks different."""
        self.stale = True


class NodeBundle(_Bundle["NodeItem"]):
    """Rectangles by colour: bodies, the blocks of their categories, rings of their states. Unfolded blocks are `frames`
    with the lines in them."""

    colors: tuple[Rects, Rects] | None = None  # see `map`

    def map(self, now: Theme, most: int) -> tuple[Rects, Rects]:
        """Rectangles for a map by the colours of their categories, those with errors by theirs: first of unfolded
        blocks, which lie under all else. When there are more than `most`, further blocks are not looked into."""
        if self.colors is None:
            frames, plain = self.colors = defaultdict(list), defaultdict(list)
            for item, at, inner in _looked_into(self.members, most):
                color = now.line2 if inner is not None else item.far_color(now)
                color = now.error if item.face.state == "error" else color
                (plain if inner is None else frames)[color.rgba()].append(item.body.translated(at))
        return self.colors

    def spoil(self) -> None:
        super().spoil()
        self.colors = None

    def make(self, now: Theme) -> None:
        self.frames: list[QRectF] = []
        self.lines = QPainterPath()
        self.bodies: list[QRectF] = []
        self.blocks: Rects = defaultdict(list)
        self.rings: Rects = defaultdict(list)
        for item, at, inner in _looked_into(self.members, INSIDE):
            body = item.body.translated(at)
            self.blocks[item.far_color(now).rgba()].append(QRectF(body.left(), body.top(), body.width(), HEADER))
            if inner is None:
                self.bodies.append(body)
                continue
            self.frames.append(body)
            for wire in inner.wires.values():
                self.lines.addPath(wire.way.path.translated(body.topLeft() + inner.plan.shift))
        for item in self.members:
            ring = item.far_ring(now)
            if ring is not None:
                self.rings[ring.rgba()].append(item.body)
        self.area = bounds([item.body for item in self.members])
        self.stale, self.made = False, True


class WireBundle(_Bundle["WireItem"]):
    """Lines by colour."""

    def make(self, now: Theme) -> None:
        self.lines: dict[int, QPainterPath] = defaultdict(QPainterPath)
        for item in self.members:
            if item.isVisible():
                self.lines[item.far_color(now).rgba()].addPath(item.way.path)
        self.area = bounds([item.extent for item in self.members])
        self.stale, self.made = False, True


class FarItem(QGraphicsItem):
    """Paints nodes and wires of the scene by their state; `catch_up` has seen to the ways of wires first."""

    def __init__(
        self, nodes: Mapping[str, NodeItem], wires: Mapping[Edge, WireItem], catch_up: Callable[[QRectF], None]
    ) -> None:
        super().__init__()
        self._all_nodes, self._all_wires, self._catch_up = nodes, wires, catch_up
        self._nodes: list[NodeBundle] = []
        self._wires: list[WireBundle] = []
        self._bundles: dict[object, NodeBundle | WireBundle] = {}
        self._grouped = True
        self._margin = 0.0
        self._rest = QTimer(singleShot=True, interval=1)
        self._rest.timeout.connect(lambda: self.update())
        self.setVisible(False)
        self.setFlag(QGraphicsItem.GraphicsItemFlag.ItemUsesExtendedStyleOption)
        self.setAcceptedMouseButtons(Qt.MouseButton.NoButton)

    def regroup(self) -> None:
        """Nodes or wires have come or gone."""
        self._grouped = False

    def clear(self) -> None:
        """All nodes and wires are gone."""
        self._nodes, self._wires, self._bundles, self._grouped = [], [], {}, False

    def _group(self) -> None:
        """Bundle the items by rank: what is behind what does not depend on when it came."""
        self._nodes = _bundled(self._all_nodes.values(), self._nodes, NodeBundle)
        self._wires = _bundled(self._all_wires.values(), self._wires, WireBundle)
        self._bundles = {item: bundle for bundle in self._all_bundles() for item in bundle.members}
        self._grouped = True

    def mark(self, item: object) -> None:
        """An item looks different; where is told for all at once."""
        bundle = self._bundles.get(item)
        if bundle is not None:
            bundle.spoil()

    def touch(self, item: object, area: QRectF) -> None:
        """An item looks different within an area."""
        self.mark(item)
        if self.isVisible():
            margin = self._margin
            self.update(area.adjusted(-margin, -margin, margin, margin))

    def set_zoom(self, zoom: float) -> None:
        """Rings are as wide on the screen at every zoom."""
        self._margin = 2 * RING / zoom

    def _all_bundles(self) -> tuple[NodeBundle | WireBundle, ...]:
        return (*self._nodes, *self._wires)

    def forget(self) -> None:
        """Colours are others now."""
        for bundle in self._all_bundles():
            bundle.spoil()
        self.update()

    def map_colors(self) -> tuple[Rects, bool]:
        """The rectangles of all nodes by colour, and whether these are all: of very many some are left for later."""
        if not self._grouped:
            self._group()
        now, end = theme.current(), perf_counter() + SLICE
        most = max(BUNDLE, INSIDE // max(len(self._nodes), 1))
        known, made = [], 0
        for bundle in self._nodes:
            if bundle.colors is None:
                made += 1
                if made > A_FEW and perf_counter() > end:
                    continue
            known.append(bundle.map(now, most))
        found: Rects = defaultdict(list)
        for layer in (0, 1):  # frames under all else
            for both in known:
                for color, rects in both[layer].items():
                    found[color] += rects
        return found, len(known) == len(self._nodes)

    def boundingRect(self) -> QRectF:
        return EVERYWHERE

    def _make_stale(self, now: Theme, seconds: float) -> None:
        """Make bundles anew that look different. Of very many the rest is left to the next paintings."""
        end = perf_counter() + seconds
        for bundle in self._all_bundles():
            if bundle.stale:
                bundle.make(now)
                if perf_counter() > end:
                    self._rest.start()
                    return

    def paint(self, painter: QPainter, option: QStyleOptionGraphicsItem, widget: QWidget | None = None) -> None:
        now = theme.current()
        self._catch_up(option.exposedRect)
        if not self._grouped:
            self._group()
        self._make_stale(now, math.inf if widget is None else SLICE)  # an image has no next painting
        margin = 2 * RING / painter.worldTransform().m11()
        area = option.exposedRect.adjusted(-margin, -margin, margin, margin)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, False)
        painter.setBrush(Qt.BrushStyle.NoBrush)
        for wires in self._wires:
            if wires.made and wires.area.intersects(area):
                for color, path in wires.lines.items():
                    painter.strokePath(path, _thin(color, 1))
        painter.setPen(Qt.PenStyle.NoPen)
        nodes = [bundle for bundle in self._nodes if bundle.made and bundle.area.intersects(area)]
        for bundle in nodes:
            if bundle.frames:
                painter.setBrush(theme.mix(now.canvas, now.raised, GROUND))
                painter.setPen(_thin(now.line3.rgba(), 1))
                painter.drawRects(bundle.frames)
                painter.setBrush(Qt.BrushStyle.NoBrush)
                painter.strokePath(bundle.lines, _thin(now.wire.rgba(), 1))
                painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(now.pressed)
            painter.drawRects(bundle.bodies)
            for color, rects in bundle.blocks.items():
                painter.setBrush(QColor.fromRgba(color))
                painter.drawRects(rects)
        painter.setBrush(Qt.BrushStyle.NoBrush)
        for bundle in nodes:
            for color, rects in bundle.rings.items():
                painter.setPen(_thin(color, RING))
                painter.drawRects(rects)


def _bundled(items: Iterable[Any], before: list[B], kind: type[B]) -> list[B]:
    """The items in bundles; those that hold what they held are kept."""
    ordered = sorted(items, key=lambda item: item.rank)
    parts = [ordered[i : i + BUNDLE] for i in range(0, len(ordered), BUNDLE)]
    old: list[B | None] = [*before, *([None] * len(parts))]
    return [
        bundle if bundle is not None and bundle.members == part else kind(part)
        for part, bundle in zip(parts, old, strict=False)
    ]


def _looked_into(items: Iterable[NodeItem], most: int) -> Iterator[tuple[NodeItem, QPointF, InnerLook | None]]:
    """Nodes, and those in unfolded blocks behind these, each with what its place is told from and what is seen inside.

    Blocks in blocks multiply: when there are more than `most` nodes, further ones are not looked into.
    """
    waiting = [(item, QPointF()) for item in items]
    for item, at in waiting:
        inner = item.inner if len(waiting) < most else None
        yield item, at, inner
        if inner is not None:
            corner = at + item.pos()
            waiting += [(other, corner) for other in inner.nodes.values()]


def _thin(color: int, width: int) -> QPen:
    """A pen as wide on the screen at every zoom."""
    pen = QPen(QColor.fromRgba(color), width)
    pen.setCosmetic(True)
    return pen
