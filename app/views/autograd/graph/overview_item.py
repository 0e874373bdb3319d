"""The tape's graph from afar: groups, boxes and arrows as blocks and hairlines, and the rings over them."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QPainter, QPainterPath
from PySide6.QtWidgets import QGraphicsItem, QStyleOptionGraphicsItem, QWidget

from app.diagram.diagram import Arrow, Box, Drawing, Group
from app.diagram.layout import HEADER, Layout, Rect
from app.views.autograd.graph.faces import MARKS, ItemState, paint_rings
from app.views.autograd.graph.playback_paint import paint_far
from app.views.ui.graphview.minimap import MapRects
from app.views.ui.graphview.overview import Batch, Overview, PaintLayer, batched
from app.views.ui.theme import Theme, current, faded, mix

DIMMED = 0.22
BATCH = 1024
FRAMES, HEADERS, LINES, BOXES, WAY_LINES, WAY_BOXES = range(6)

Route = tuple[tuple[float, float], ...]


def rectangle(rect: Rect) -> QRectF:
    return QRectF(rect.x, rect.y, rect.width, rect.height)


class _Part(Batch[Any]):
    LAYERS = 6

    def __init__(self, item: TapeOverview, members: Sequence[Any]) -> None:
        super().__init__(members)
        self._item = item


class _Mapped(_Part):
    def map(self, now: Theme, most: int) -> tuple[MapRects, MapRects]:
        """Return the outermost groups and boxes as rectangles in the colours of their categories."""
        colors = {
            name: mix(now.panel, color, 0.62).rgba()
            for name, color in now.categories.items()
        }
        outer = (
            (rect, member.category)
            for member, rect in self.members
            if self.frame_of(member) is None
        )
        return [], [
            (rect.x, rect.y, rect.right, rect.bottom, colors[category])
            for rect, category in outer
        ]

    @abstractmethod
    def frame_of(self, member: Any) -> str | None:
        """Return the group of a part; None for none."""


def _about(rects: Sequence[Rect]) -> QRectF:
    """Return the bounding rectangle."""
    left, top, width, height = np.array(rects, float).T
    x, y = left.min(), top.min()
    return QRectF(x, y, (left + width).max() - x, (top + height).max() - y)


class Groups(_Mapped):
    members: Sequence[tuple[Group, Rect]]

    def fill(self, layers: list[PaintLayer], now: Theme) -> QRectF:
        fill, line = now.frame.rgba(), (now.line2.rgba(), 1)
        for group, rect in self.members:
            layers[FRAMES].fills[fill].append(rectangle(rect))
            layers[FRAMES].outlines[line].append(rectangle(rect))
            color = mix(now.raised, now.categories[group.category], now.header)
            layers[HEADERS].fills[color.rgba()].append(
                QRectF(rect.x, rect.y, rect.width, HEADER)
            )
        return _about([rect for _, rect in self.members])

    def frame_of(self, member: Group) -> str | None:
        return member.parent


class Boxes(_Mapped):
    members: Sequence[tuple[Box, Rect]]

    def fill(self, layers: list[PaintLayer], now: Theme) -> QRectF:
        way = self._item.way
        colors = {
            (name, leaf): mix(now.raised, color, 0.15 if leaf else 0.45).rgba()
            for name, color in now.categories.items()
            for leaf in (False, True)
        }
        marks = {
            mark: mix(now.raised, now.color(token), 0.6).rgba()
            for mark, token in MARKS.items()
        }
        plain, on_way = layers[BOXES].fills, layers[WAY_BOXES].fills
        for box, rect in self.members:
            into = on_way if box.id in way else plain
            color = (
                marks[box.mark]
                if box.mark
                else colors[box.category, box.shape == "leaf"]
            )
            into[color].append(QRectF(*rect))
        return _about([rect for _, rect in self.members])

    def frame_of(self, member: Box) -> str | None:
        return member.group


class Arrows(_Part):
    members: Sequence[tuple[Arrow, Route]]

    def fill(self, layers: list[PaintLayer], now: Theme) -> QRectF:
        highlighted = self._item.way
        plain, on_way = QPainterPath(), QPainterPath()
        for arrow, route in self.members:
            path = (
                on_way
                if arrow.source in highlighted and arrow.target in highlighted
                else plain
            )
            path.moveTo(*route[0])
            for point in route[1:]:
                path.lineTo(*point)
        layers[LINES].lines[mix(now.canvas, now.back, 0.72).rgba(), 1] = plain
        layers[WAY_LINES].lines[now.back.rgba(), 2] = on_way
        return (
            plain.controlPointRect()
            .united(on_way.controlPointRect())
            .adjusted(-1, -1, 1, 1)
        )


class OverviewMembers(NamedTuple):
    """What an overview paints, neighbours after one another, so that a batch covers little and few are in a strip."""

    groups: list[tuple[Group, Rect]]
    boxes: list[tuple[Box, Rect]]
    arrows: list[tuple[Arrow, Route]]

    @classmethod
    def of(cls, drawing: Drawing, layout: Layout) -> OverviewMembers:
        """Collect and sort them; usable on any thread."""
        groups = [
            (frame, layout.groups[frame.id])
            for frame in drawing.groups
            if frame.id in layout.groups
        ]
        boxes = [(box, layout.boxes[box.id]) for box in drawing.boxes]
        arrows = list(zip(drawing.arrows, layout.routes, strict=True))
        if len(boxes) > BATCH:
            side = math.sqrt(layout.width * layout.height * BATCH / len(boxes))
            boxes.sort(key=lambda pair: (pair[1].y // side, pair[1].x // side))
            arrows.sort(key=lambda pair: (pair[1][0][1] // side, pair[1][0][0] // side))
        return cls(groups, boxes, arrows)


class TapeOverview(Overview):
    """Everything but texts. With a highlighted path, the rest is dimmed."""

    def __init__(
        self, drawing: Drawing, layout: Layout, members: OverviewMembers | None = None
    ) -> None:
        super().__init__(QRectF(-1, -1, layout.width + 2, layout.height + 2))
        self.way: frozenset[str] = frozenset()
        groups, boxes, arrows = members or OverviewMembers.of(drawing, layout)
        self._mapped: list[_Mapped] = [
            *batched(groups, (), partial(Groups, self), BATCH),
            *batched(boxes, (), partial(Boxes, self), BATCH),
        ]
        self._all = [*self._mapped, *batched(arrows, (), partial(Arrows, self), BATCH)]
        self.setZValue(2)
        self.setCacheMode(QGraphicsItem.CacheMode.DeviceCoordinateCache)

    def batches(self) -> Sequence[_Part]:
        return self._all

    def mapped_batches(self) -> Sequence[_Mapped]:
        return self._mapped

    def set_highlighted(self, boxes: frozenset[str]) -> None:
        """Highlight these boxes and the arrows between them; nothing if empty."""
        if boxes != self.way:
            self.way = boxes
            self.forget()

    def layer_opacity(self, number: int) -> float:
        return DIMMED if self.way and number < WAY_LINES else 1.0


class Marks(QGraphicsItem):
    """Outlines of selected and linked parts in the overview."""

    def __init__(self, area: QRectF) -> None:
        super().__init__()
        self._area = area
        self._marked: list[tuple[QRectF, ItemState]] = []
        self._ran: list[QRectF] = []
        self._after: QRectF | None = None
        self.setZValue(3)
        self.setAcceptedMouseButtons(Qt.MouseButton.NoButton)

    def set_marked(self, marked: Iterable[tuple[QRectF, ItemState]]) -> None:
        self._marked = list(marked)
        self.update()

    def set_ran(self, ran: list[QRectF], after: QRectF | None) -> None:
        """Set the boxes that have run in the playback, and the next one."""
        self._ran, self._after = ran, after
        self.update()

    def boundingRect(self) -> QRectF:
        return self._area.adjusted(-40, -40, 40, 40)

    def paint(
        self,
        painter: QPainter,
        option: QStyleOptionGraphicsItem,
        widget: QWidget | None = None,
    ) -> None:
        now = current()
        if self._ran or self._after is not None:
            paint_far(painter, now, self._ran, self._after)
        for area, state in self._marked:
            if state.hovered:
                painter.setPen(Qt.PenStyle.NoPen)
                painter.setBrush(faded(now.hover, 0.6))
                painter.drawRect(area)
            paint_rings(painter, area, 0.0, now, state)
