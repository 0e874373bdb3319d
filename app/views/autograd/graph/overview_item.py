"""The zoomed-out graph as one item: blocks and hairlines, painted in a few calls."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from PySide6.QtCore import QLineF, QRectF, Qt
from PySide6.QtGui import QPainter, QPen
from PySide6.QtWidgets import QGraphicsItem, QStyleOptionGraphicsItem, QWidget

from app.diagram.diagram import Box, Drawing
from app.diagram.layout import HEADER, Layout, Rect
from app.util import gc_pause
from app.views.autograd.graph.faces import State, paint_rings
from app.views.autograd.graph.playback_paint import paint_far
from app.views.ui.theme import Theme, current, faded, mix

DIMMED = 0.22
Look = tuple[str, bool]  # category, whether it is a leaf


def rectangle(rect: Rect) -> QRectF:
    return QRectF(rect.x, rect.y, rect.width, rect.height)


class FarItem(QGraphicsItem):
    """Everything but texts. Where a way is marked, what is not on it is faint."""

    def __init__(self, drawing: Drawing, layout: Layout) -> None:
        super().__init__()
        self._drawing, self._layout = drawing, layout
        self._area = QRectF(-1, -1, layout.width + 2, layout.height + 2)
        self._way: frozenset[str] = frozenset()
        self._boxes: dict[Look, list[QRectF]] | None = None
        self._lines: list[QLineF] = []
        self._way_boxes: dict[Look, list[QRectF]] = {}
        self._way_lines: list[QLineF] = []
        self.setZValue(2)
        self.setAcceptedMouseButtons(Qt.MouseButton.NoButton)
        self.setCacheMode(QGraphicsItem.CacheMode.DeviceCoordinateCache)

    def set_way(self, boxes: frozenset[str]) -> None:
        """These boxes and the arrows between them stand out; none for nothing."""
        if boxes != self._way:
            self._way, self._boxes = boxes, None
            self.update()

    def _make(self) -> None:
        way, rects = self._way, self._layout.boxes
        boxes: dict[Look, list[QRectF]] = defaultdict(list)
        on_way: dict[Look, list[QRectF]] = defaultdict(list)
        for box in self._drawing.boxes:
            (on_way if box.id in way else boxes)[_look(box)].append(rectangle(rects[box.id]))
        lines: list[QLineF] = []
        way_lines: list[QLineF] = []
        for arrow, route in zip(self._drawing.arrows, self._layout.routes, strict=True):
            into = way_lines if way and arrow.source in way and arrow.target in way else lines
            ax, ay = route[0]
            for bx, by in route[1:]:
                into.append(QLineF(ax, ay, bx, by))
                ax, ay = bx, by
        self._boxes, self._way_boxes, self._lines, self._way_lines = boxes, on_way, lines, way_lines

    def boundingRect(self) -> QRectF:
        return self._area

    def paint(self, painter: QPainter, option: QStyleOptionGraphicsItem, widget: QWidget | None = None) -> None:
        if self._boxes is None:
            with gc_pause.put_off():
                self._make()
        assert self._boxes is not None
        now = current()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, False)
        if self._way:
            painter.setOpacity(DIMMED)
        self._paint_groups(painter, now)
        painter.setPen(QPen(mix(now.canvas, now.back, 0.72), 0))
        painter.drawLines(self._lines)
        _paint_boxes(painter, now, self._boxes)
        if self._way:
            painter.setOpacity(1.0)
            pen = QPen(now.back, 2)
            pen.setCosmetic(True)
            painter.setPen(pen)
            painter.drawLines(self._way_lines)
            _paint_boxes(painter, now, self._way_boxes)

    def _paint_groups(self, painter: QPainter, now: Theme) -> None:
        for group in self._drawing.groups:
            rect = self._layout.groups.get(group.id)
            if rect is None:
                continue
            painter.setPen(QPen(now.line2, 0))
            painter.setBrush(now.frame)
            painter.drawRect(rectangle(rect))
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(mix(now.raised, now.categories[group.category], now.header))
            painter.drawRect(QRectF(rect.x, rect.y, rect.width, HEADER))

    def paint_map(self, painter: QPainter, now: Theme) -> None:
        """The outermost groups and boxes as blocks of their categories' colours, at least a pixel each."""
        found: dict[str, list[QRectF]] = defaultdict(list)
        for group in self._drawing.groups:
            if group.parent is None and group.id in self._layout.groups:
                found[group.category].append(rectangle(self._layout.groups[group.id]))
        for box in self._drawing.boxes:
            if box.group is None:
                found[box.category].append(rectangle(self._layout.boxes[box.id]))
        for category, rects in found.items():
            color = mix(now.panel, now.categories[category], 0.62)
            painter.setPen(QPen(color, 0))
            painter.setBrush(color)
            painter.drawRects(rects)


class Marks(QGraphicsItem):
    """The rings of what is selected or linked, over the graph from afar."""

    def __init__(self, area: QRectF) -> None:
        super().__init__()
        self._area = area
        self._marked: list[tuple[QRectF, State]] = []
        self._ran: list[QRectF] = []
        self._after: QRectF | None = None
        self.setZValue(3)
        self.setAcceptedMouseButtons(Qt.MouseButton.NoButton)

    def set_marked(self, marked: Iterable[tuple[QRectF, State]]) -> None:
        self._marked = list(marked)
        self.update()

    def set_ran(self, ran: list[QRectF], after: QRectF | None) -> None:
        """Boxes that have run in a backward pass that is played, and the one that is next."""
        self._ran, self._after = ran, after
        self.update()

    def boundingRect(self) -> QRectF:
        return self._area.adjusted(-40, -40, 40, 40)

    def paint(self, painter: QPainter, option: QStyleOptionGraphicsItem, widget: QWidget | None = None) -> None:
        now = current()
        if self._ran or self._after is not None:
            paint_far(painter, now, self._ran, self._after)
        for area, state in self._marked:
            if state.hovered:
                painter.setPen(Qt.PenStyle.NoPen)
                painter.setBrush(faded(now.hover, 0.6))
                painter.drawRect(area)
            paint_rings(painter, area, 0.0, now, state)


def _look(box: Box) -> Look:
    return box.category, box.shape == "leaf"


def _paint_boxes(painter: QPainter, now: Theme, boxes: dict[Look, list[QRectF]]) -> None:
    painter.setPen(Qt.PenStyle.NoPen)
    for (category, leaf), rects in boxes.items():
        painter.setBrush(mix(now.raised, now.categories[category], 0.15 if leaf else 0.45))
        painter.drawRects(rects)
