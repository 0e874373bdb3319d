"""Graphics items of the scene: boxes, group frames, arrows and labels. Each paints a face measured before."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from PySide6.QtCore import QLineF, QPointF, QRectF, Qt
from PySide6.QtGui import QBrush, QPainter, QPainterPath, QPainterPathStroker, QPen
from PySide6.QtWidgets import QGraphicsItem, QGraphicsRectItem, QStyleOptionGraphicsItem, QWidget

from app.diagram.diagram import Arrow
from app.diagram.layout import HEADER, Rect
from app.util.formatting import figure
from app.views.autograd.graph.arrow_paths import arrow_head, arrow_path
from app.views.autograd.graph.faces import BoxFace, GroupFace, State, Text, paint_label
from app.views.autograd.graph.overview_item import DIMMED
from app.views.autograd.graph.playback_paint import FADED, Flow, Played
from app.views.ui.theme import Theme, current, mix

# Below this scale texts cannot be read and are left out.
SIMPLE_BELOW = 0.38
RING = 4.0


def _detailed(option: QStyleOptionGraphicsItem, painter: QPainter) -> bool:
    return option.levelOfDetailFromTransform(painter.worldTransform()) >= SIMPLE_BELOW


class Bounded(QGraphicsRectItem):
    """An item whose bounds Qt knows itself: it asks every item for them several times in every frame."""

    def __init__(self) -> None:
        super().__init__()
        self.setPen(Qt.PenStyle.NoPen)  # a pen's width would be added to the bounds


class _Part(Bounded):
    """A box or a group: something with a place that can be hovered, selected and linked."""

    def __init__(self, key: str, link: str | None, rect: Rect) -> None:
        super().__init__()
        self.key, self.link, self.place = key, link, rect
        self._state = State()
        self._played: Played | None = None
        self.setRect(-RING, -RING, rect.width + 2 * RING, rect.height + 2 * RING)
        self.setPos(rect.x, rect.y)
        self.setCacheMode(QGraphicsItem.CacheMode.DeviceCoordinateCache)

    def state(self) -> State:
        return self._state

    def set_state(self, state: State) -> None:
        if state != self._state:
            self._state = state
            self._fade()

    def played(self) -> Played | None:
        """How far a backward pass is here that is played."""
        return self._played

    def set_played(self, played: Played | None) -> None:
        if played != self._played:
            self._played = played
            self._fade()

    def _fade(self) -> None:
        over = self._played is not None and self._played.finished
        self.setOpacity(DIMMED if self._state.dimmed else FADED if over else 1.0)
        self.update()


class BoxItem(_Part):
    """A backward operation, a leaf or a folded group."""

    def __init__(self, face: BoxFace, rect: Rect) -> None:
        super().__init__(face.box.id, face.box.link, rect)
        self.face = face
        self.setZValue(3)
        lines = [face.box.title, face.box.subtitle, *face.box.lines, *(chip.text for chip in face.box.chips)]
        self.setToolTip("\n".join(line for line in lines if line))

    @property
    def foldable(self) -> bool:
        return self.face.box.shape == "folded"

    def paint(self, painter: QPainter, option: QStyleOptionGraphicsItem, widget: QWidget | None = None) -> None:
        self.face.paint(painter, current(), self._state, detail=_detailed(option, painter), played=self._played)


class GroupItem(_Part):
    """The frame of an open group; its header folds it."""

    def __init__(self, face: GroupFace, rect: Rect) -> None:
        super().__init__(face.group.id, face.group.link, rect)
        self.face = face
        self.setZValue(1)

    def in_header(self, at: QPointF) -> bool:
        """Whether a point of the scene lies in the header."""
        return 0 <= at.y() - self.place.y <= HEADER and 0 <= at.x() - self.place.x <= self.place.width

    def on_chevron(self, at: QPointF) -> bool:
        return self.in_header(at) and at.x() - self.place.x <= 20

    def paint(self, painter: QPainter, option: QStyleOptionGraphicsItem, widget: QWidget | None = None) -> None:
        size = (self.place.width, self.place.height)
        detail = _detailed(option, painter)
        self.face.paint(painter, current(), size, self._state, detail=detail, played=self._played)


@lru_cache(maxsize=8)
def arrow_ink(theme: Theme, marked: bool) -> tuple[QPen, QBrush]:
    """What an arrow and its head are painted with."""
    color = theme.back if marked else mix(theme.canvas, theme.back, 0.72)
    return QPen(color, 2.4 if marked else 1.6), QBrush(color)


class Way(NamedTuple):
    """Where an arrow runs, on the scene; `line` where it is straight."""

    path: QPainterPath
    head: QPainterPath
    line: QLineF | None
    bounds: QRectF


def arrow_way(route: tuple[tuple[float, float], ...]) -> Way:
    """What is painted of an arrow that has this route."""
    path = arrow_path(route)
    head = arrow_head(path)
    (ax, ay), (bx, by) = route[0], route[-1]
    straight = len(route) == 2 and (abs(ay - by) < 0.5 or abs(ax - bx) < 0.5)
    bounds = path.boundingRect().united(head.boundingRect()).adjusted(-8, -8, 8, 8)
    return Way(path, head, QLineF(ax, ay, bx, by) if straight else None, bounds)


class ArrowItem(Bounded):
    """A gradient's way from one box to another."""

    def __init__(self, arrow: Arrow, route: tuple[tuple[float, float], ...]) -> None:
        super().__init__()
        self.arrow = arrow
        self._path, self._head, self._line, bounds = arrow_way(route)
        self.setRect(bounds)
        self._marked = False
        self._flow: Flow | None = None
        self.setZValue(2)
        self.setAcceptedMouseButtons(Qt.MouseButton.NoButton)

    def set_marked(self, marked: bool) -> None:
        """An arrow that touches the selected box is strong, the others step back while there is one."""
        if marked != self._marked:
            self._marked = marked
            self.setZValue(2.5 if marked else 2)
            self.update()

    def set_dimmed(self, dimmed: bool) -> None:
        self.setOpacity(DIMMED if dimmed else 1.0)

    def flow(self) -> Flow | None:
        """What came over it in a backward pass that is played."""
        return self._flow

    def set_flow(self, flow: Flow | None) -> None:
        if flow != self._flow:
            self._flow = flow
            self._head = arrow_head(self._path, 7.0 if flow is None else 6.0 + flow.width)
            self.setToolTip(flow.words if flow is not None else "")
            self.update()

    def shape(self) -> QPainterPath:
        stroker = QPainterPathStroker()
        stroker.setWidth(6)
        return stroker.createStroke(self._path)

    def paint(self, painter: QPainter, option: QStyleOptionGraphicsItem, widget: QWidget | None = None) -> None:
        line, fill = arrow_ink(current(), self._marked)
        if self._flow is not None:
            line, fill = self._flow_ink(self._flow)
        painter.setPen(line)
        painter.setBrush(Qt.BrushStyle.NoBrush)
        if self._line is not None:
            painter.drawLine(self._line)
        else:
            painter.drawPath(self._path)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(fill)
        painter.drawPath(self._head)

    def _flow_ink(self, flow: Flow) -> tuple[QPen, QBrush]:
        """As wide as the norm asks for; a thick line ends within its head."""
        color, width = flow.color(current()), flow.width
        pen = QPen(color, width, Qt.PenStyle.CustomDashLine, Qt.PenCapStyle.FlatCap)
        if flow.dashed:
            pen.setDashPattern([3, 3])
        else:
            pen.setDashPattern([max(self._path.length() - 5 - width / 2, 1) / width, 1e4])
        return pen, QBrush(color)


class Sheet(QGraphicsItem):
    """What holds all items that are seen near, so that they come and go at once."""

    def __init__(self) -> None:
        super().__init__()
        self.setFlag(QGraphicsItem.GraphicsItemFlag.ItemHasNoContents)

    def boundingRect(self) -> QRectF:
        return QRectF()

    def paint(self, painter: QPainter, option: QStyleOptionGraphicsItem, widget: QWidget | None = None) -> None:
        pass


class LabelItem(QGraphicsItem):
    """The shape of the gradients on an arrow."""

    def __init__(self, text: str, at: tuple[float, float]) -> None:
        super().__init__()
        self._shape = self._text = Text(text, "axis", 0, 0, "text2")
        self._flow: Flow | None = None
        self.setPos(*at)
        self.setZValue(4)
        self.setAcceptedMouseButtons(Qt.MouseButton.NoButton)
        self.setCacheMode(QGraphicsItem.CacheMode.DeviceCoordinateCache)

    def text(self) -> str:
        """What stands there now: a shape, or the norm of what came."""
        return self._text.text

    def set_flow(self, flow: Flow | None) -> None:
        """Show the norm of what came over the arrow in place of its shape."""
        if flow == self._flow:
            return
        self.prepareGeometryChange()
        self._flow = flow
        known = flow is not None and flow.norm is not None
        self._text = Text(figure(flow.norm), "axis", 0, 0) if flow is not None and known else self._shape
        self.setToolTip(f"{self._shape.text}\n{flow.words}" if flow is not None else "")
        self.update()

    def boundingRect(self) -> QRectF:
        half = self._text.width / 2 + 9
        return QRectF(-half, -10, 2 * half, 20)

    def paint(self, painter: QPainter, option: QStyleOptionGraphicsItem, widget: QWidget | None = None) -> None:
        theme = current()
        color = self._flow.color(theme) if self._flow is not None and self._flow.norm is not None else None
        paint_label(painter, self._text, QPointF(0, 0), theme, color=color)
