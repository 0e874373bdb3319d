"""What stands in the scene: boxes, group frames, arrows and labels. Each paints a face that was measured before."""

from __future__ import annotations

from functools import lru_cache

from PySide6.QtCore import QLineF, QPointF, QRectF, Qt
from PySide6.QtGui import QBrush, QPainter, QPainterPath, QPainterPathStroker, QPen
from PySide6.QtWidgets import QGraphicsItem, QStyleOptionGraphicsItem, QWidget

from app.drawing import Arrow
from app.layout import HEADER, Rect
from app.views.autograd.faces import (
    BoxFace,
    GroupFace,
    State,
    Text,
    arrow_head,
    arrow_path,
    paint_label,
)
from app.views.autograd.far import DIMMED
from app.views.theme import Theme, current, mix

# Below this scale texts cannot be read and are left out.
SIMPLE_BELOW = 0.38
RING = 4.0


def _detailed(option: QStyleOptionGraphicsItem, painter: QPainter) -> bool:
    return option.levelOfDetailFromTransform(painter.worldTransform()) >= SIMPLE_BELOW


class _Part(QGraphicsItem):
    """A box or a group: something with a place that can be hovered, selected and linked."""

    def __init__(self, key: str, link: str | None, rect: Rect) -> None:
        super().__init__()
        self.key, self.link, self.rect = key, link, rect
        self._state = State()
        self._bounds = QRectF(-RING, -RING, rect.width + 2 * RING, rect.height + 2 * RING)
        self.setPos(rect.x, rect.y)
        self.setCacheMode(QGraphicsItem.CacheMode.DeviceCoordinateCache)

    def state(self) -> State:
        return self._state

    def set_state(self, state: State) -> None:
        if state != self._state:
            self.setOpacity(DIMMED if state.dimmed else 1.0)
            self._state = state
            self.update()

    def boundingRect(self) -> QRectF:
        return self._bounds


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
        self.face.paint(painter, current(), self._state, detail=_detailed(option, painter))


class GroupItem(_Part):
    """The frame of an open group; its header folds it."""

    def __init__(self, face: GroupFace, rect: Rect) -> None:
        super().__init__(face.group.id, face.group.link, rect)
        self.face = face
        self.setZValue(1)

    def in_header(self, at: QPointF) -> bool:
        """Whether a point of the scene lies in the header."""
        return 0 <= at.y() - self.rect.y <= HEADER and 0 <= at.x() - self.rect.x <= self.rect.width

    def on_chevron(self, at: QPointF) -> bool:
        return self.in_header(at) and at.x() - self.rect.x <= 20

    def paint(self, painter: QPainter, option: QStyleOptionGraphicsItem, widget: QWidget | None = None) -> None:
        size = (self.rect.width, self.rect.height)
        self.face.paint(painter, current(), size, self._state, detail=_detailed(option, painter))


@lru_cache(maxsize=8)
def _ink(theme: Theme, marked: bool) -> tuple[QPen, QBrush]:
    """What an arrow and its head are painted with."""
    color = theme.back if marked else mix(theme.canvas, theme.back, 0.72)
    return QPen(color, 2.4 if marked else 1.6), QBrush(color)


class ArrowItem(QGraphicsItem):
    """A gradient's way from one box to another."""

    def __init__(self, arrow: Arrow, route: tuple[tuple[float, float], ...]) -> None:
        super().__init__()
        self.arrow = arrow
        self._path = arrow_path(route)
        self._head = arrow_head(self._path)
        (ax, ay), (bx, by) = route[0], route[-1]
        straight = len(route) == 2 and (abs(ay - by) < 0.5 or abs(ax - bx) < 0.5)
        self._line = QLineF(ax, ay, bx, by) if straight else None
        self._bounds = self._path.boundingRect().united(self._head.boundingRect()).adjusted(-2, -2, 2, 2)
        self._marked = False
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

    def boundingRect(self) -> QRectF:
        return self._bounds

    def shape(self) -> QPainterPath:
        stroker = QPainterPathStroker()
        stroker.setWidth(6)
        return stroker.createStroke(self._path)

    def paint(self, painter: QPainter, option: QStyleOptionGraphicsItem, widget: QWidget | None = None) -> None:
        line, fill = _ink(current(), self._marked)
        painter.setPen(line)
        painter.setBrush(Qt.BrushStyle.NoBrush)
        if self._line is not None:
            painter.drawLine(self._line)
        else:
            painter.drawPath(self._path)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(fill)
        painter.drawPath(self._head)


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
        self._text = Text(text, "axis", 0, 0, "text2")
        self.setPos(*at)
        self.setZValue(4)
        self.setAcceptedMouseButtons(Qt.MouseButton.NoButton)
        self.setCacheMode(QGraphicsItem.CacheMode.DeviceCoordinateCache)

    def boundingRect(self) -> QRectF:
        half = self._text.width / 2 + 9
        return QRectF(-half, -10, 2 * half, 20)

    def paint(self, painter: QPainter, option: QStyleOptionGraphicsItem, widget: QWidget | None = None) -> None:
        paint_label(painter, self._text, QPointF(0, 0), current())
