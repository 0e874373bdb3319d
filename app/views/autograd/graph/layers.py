"""A drawing near, as frames, arrows, boxes and labels; and from afar, as blocks and hairlines with rings over them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QPainter, QPainterPath, QTransform
from PySide6.QtWidgets import QGraphicsItem

from app.diagram.diagram import Arrow, Box, Drawing, Group
from app.diagram.layout import HEADER, Layout, Rect
from app.views.autograd.graph.arrow_paths import Route, paint_plain
from app.views.autograd.graph.faces import (
    MARKS,
    ItemState,
    Text,
    paint_label,
    paint_rings,
)
from app.views.autograd.graph.parts import DIMMED, TAG
from app.views.autograd.graph.playback_paint import paint_far
from app.views.ui.graphview.overview import (
    Batch,
    Overview,
    PaintLayer,
    Rects,
    batched,
)
from app.views.ui.graphview.small_names import LEGIBLE
from app.views.ui.graphview.spatial import bounds
from app.views.ui.graphview.sprites import SpriteRequest
from app.views.ui.theme import Theme, current, faded, mix
from app.views.ui.widgets.painting import Drawn

if TYPE_CHECKING:
    from app.views.autograd.graph.scene import TapeScene

BATCH = 1024
FRAMES, HEADERS, LINES, BOXES, WAY_LINES, WAY_BOXES = range(6)


class TapeSight:
    """What of a scene touches an area: groups and arrows, and as sprites boxes and the labels of arrows."""

    def __init__(self, scene: TapeScene, area: QRectF, zoom: float) -> None:
        self._scene, self._zoom = scene, zoom
        self._hits = scene.hits_in(area.adjusted(-TAG, -TAG, TAG, TAG))

    def paint(self, painter: QPainter) -> None:
        """Paint the frames of groups, then arrows: plain ones in a few calls, marked and flowing ones one by one."""
        scene, flows = self._scene, self._scene.played.flows
        numbers = self._hits["arrow"]
        for group in scene.outermost_first(self._hits["group"]):
            painter.save()
            painter.translate(group.corner)
            painter.setOpacity(group.opacity())
            group.paint(painter, self._zoom)
            painter.restore()
        marked = {number: scene.is_marked(number) for number in numbers}
        apart = [number for number in numbers if number in flows or marked[number]]
        plain = sorted(set(numbers).difference(apart))
        painter.setOpacity(DIMMED if scene.highlighted else 1.0)
        paint_plain(painter, [scene.path_of(number) for number in plain])
        for number in sorted(apart, key=lambda number: (marked[number], number)):
            painter.setOpacity(DIMMED if scene.is_dimmed(number) else 1.0)
            scene.path_of(number).paint(painter, marked[number], flows.get(number))

    def things(self, view: QTransform) -> Iterator[SpriteRequest]:
        """Yield boxes, and over them the labels of arrows."""
        scene, hits, zoom = self._scene, self._hits, self._zoom
        for box in sorted(
            map(scene.boxes.__getitem__, hits["box"]), key=attrgetter("place")
        ):
            paint = partial(box.paint, zoom=zoom)
            at, opacity = view.map(box.corner), box.opacity()
            yield SpriteRequest(at, box.picture, 0, box.own_extent, paint, opacity)
        for number in sorted(hits["label"]) if zoom >= LEGIBLE else ():
            position = scene.layout_.labels[number]
            assert position is not None
            text, color = scene.label_at(number)
            label = Text(text, "axis", 0, 0, "text2")
            extent = QRectF(-label.width / 2 - 9, -10, label.width + 18, 20)
            ink = QColor.fromRgba(color) if color else None
            paint = partial(paint_label, text=label, color=ink)
            opacity = DIMMED if scene.is_dimmed(number) else 1.0
            at = view.map(QPointF(*position))
            yield SpriteRequest(at, (text, color), 0, extent, paint, opacity)


class _Part(Batch[Any]):
    LAYERS = 6

    def __init__(self, item: TapeOverview, members: Sequence[Any]) -> None:
        super().__init__(members)
        self._item = item


class _Mapped(_Part):
    FRAME = ""  # the field with the group of a member, None for none

    def map(self, now: Theme, most: int) -> tuple[Rects, Rects]:
        """Return the outermost groups and boxes as rectangles in the colours of their categories."""
        colors = {
            name: mix(now.panel, color, 0.62).rgba()
            for name, color in now.categories.items()
        }
        return [], [
            (rect.x, rect.y, rect.right, rect.bottom, colors[member.category])
            for member, rect in self.members
            if getattr(member, self.FRAME) is None
        ]


class Groups(_Mapped):
    FRAME = "parent"
    members: Sequence[tuple[Group, Rect]]

    def fill(self, layers: list[PaintLayer], now: Theme) -> QRectF:
        fill, line = now.frame.rgba(), (now.line2.rgba(), 1)
        for group, rect in self.members:
            layers[FRAMES].fills[fill].append(QRectF(*rect))
            layers[FRAMES].outlines[line].append(QRectF(*rect))
            color = mix(now.raised, now.categories[group.category], now.header)
            layers[HEADERS].fills[color.rgba()].append(
                QRectF(rect.x, rect.y, rect.width, HEADER)
            )
        return bounds(QRectF(*rect) for _, rect in self.members)


class Boxes(_Mapped):
    FRAME = "group"
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
        return bounds(QRectF(*rect) for _, rect in self.members)


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


class Marks(Drawn, QGraphicsItem):
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

    def draw(self, painter: QPainter) -> None:
        now = current()
        if self._ran or self._after is not None:
            paint_far(painter, now, self._ran, self._after)
        for area, state in self._marked:
            if state.hovered:
                painter.setPen(Qt.PenStyle.NoPen)
                painter.setBrush(faded(now.hover, 0.6))
                painter.drawRect(area)
            paint_rings(painter, area, 0.0, now, state)
