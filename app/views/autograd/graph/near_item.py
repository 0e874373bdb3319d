"""Detailed rendering of the visible graph: frames, arrows, and boxes and labels as sprites."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from PySide6.QtCore import QPointF, QRectF, Qt, QTimer
from PySide6.QtGui import QBrush, QColor, QPainter, QPen, QTransform
from PySide6.QtWidgets import QStyleOptionGraphicsItem, QWidget

from app.views.autograd.graph.faces import Text, paint_label
from app.views.autograd.graph.overview_item import DIMMED
from app.views.autograd.graph.parts import TAG, ArrowPath, BoxPart, GroupPart
from app.views.autograd.graph.playback_paint import EdgeFlow
from app.views.ui.graphview.small_names import LEGIBLE
from app.views.ui.graphview.sprites import PICTURES, SpriteItem, SpriteRequest
from app.views.ui.theme import Theme, current, manager, mix

if TYPE_CHECKING:
    from app.views.autograd.graph.scene import TapeScene


class NearGraph(SpriteItem):
    """Paints the parts of a scene."""

    def __init__(self, scene: TapeScene, rest: QTimer) -> None:
        super().__init__(None, rest)
        self._scene = scene
        self._area = QRectF()
        self.setZValue(2)

    def set_area(self, area: QRectF) -> None:
        """Another graph covers this area."""
        self.prepareGeometryChange()
        self._area = area.adjusted(-8, -8, 8, 8)
        self.update()

    def boundingRect(self) -> QRectF:
        return self._area

    def paint(
        self,
        painter: QPainter,
        option: QStyleOptionGraphicsItem,
        widget: QWidget | None = None,
    ) -> None:
        area = option.exposedRect
        groups, numbers, boxes, labels = self._scene.seen_in(
            area.adjusted(-TAG, -TAG, TAG, TAG)
        )
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        now = current()
        zoom = painter.worldTransform().m11()
        for group in groups:
            _paint_group(painter, group, now, zoom)
        self._paint_arrows(painter, numbers)
        painter.setOpacity(1.0)
        self.put_down(
            painter,
            partial(self._things, boxes, labels, zoom),
            None if widget is None else PICTURES,
        )

    def _paint_arrows(self, painter: QPainter, numbers: list[int]) -> None:
        """Paint plain arrows in a few calls, then marked ones and those with flows one by one."""
        scene, flows = self._scene, self._scene.played.flows
        apart = [
            number for number in numbers if number in flows or scene.is_marked(number)
        ]
        plain = [
            scene.path_of(number) for number in sorted(set(numbers).difference(apart))
        ]
        painter.setOpacity(DIMMED if scene.highlighted else 1.0)
        pen, fill = arrow_ink(current(), False, manager().strokes)
        painter.setPen(pen)
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.drawLines([way.line for way in plain if way.line is not None])
        for way in plain:
            if way.line is None:
                painter.drawPath(way.path)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(fill)
        for way in plain:
            painter.drawPath(way.head)
        for number in sorted(
            apart, key=lambda number: (scene.is_marked(number), number)
        ):
            painter.setOpacity(DIMMED if scene.is_dimmed(number) else 1.0)
            _paint_arrow(
                painter,
                scene.path_of(number),
                scene.is_marked(number),
                flows.get(number),
            )

    def _things(
        self,
        boxes: Iterable[BoxPart],
        labels: Iterable[int],
        zoom: float,
        view: QTransform,
    ) -> Iterator[SpriteRequest]:
        for box in boxes:
            paint = partial(box.paint, zoom)
            yield SpriteRequest(
                view.map(box.corner),
                box.picture,
                0,
                box.own_extent,
                paint,
                box.opacity(),
            )
        for number in labels if zoom >= LEGIBLE else ():
            position = self._scene.layout_.labels[number]
            assert position is not None
            text, color = self._scene.label_at(number)
            label = Text(text, "axis", 0, 0, "text2")
            extent = QRectF(-label.width / 2 - 9, -10, label.width + 18, 20)
            opacity = DIMMED if self._scene.is_dimmed(number) else 1.0
            paint = partial(_paint_label, label, color)
            yield SpriteRequest(
                view.map(QPointF(*position)), (text, color), 0, extent, paint, opacity
            )


@lru_cache(maxsize=8)
def arrow_ink(theme: Theme, marked: bool, strokes: float) -> tuple[QPen, QBrush]:
    """Return pen and brush of an arrow and its head, `strokes` times as thick as designed."""
    color = theme.back if marked else mix(theme.canvas, theme.back, 0.72)
    return QPen(color, strokes * (2.4 if marked else 1.6)), QBrush(color)


def _paint_group(painter: QPainter, frame: GroupPart, now: Theme, zoom: float) -> None:
    painter.save()
    painter.translate(frame.place.x, frame.place.y)
    painter.setOpacity(frame.opacity())
    size = frame.place.width, frame.place.height
    frame.face.paint(
        painter, now, size, frame.state(), zoom=zoom, played=frame.played()
    )
    painter.restore()


def _paint_arrow(
    painter: QPainter, way: ArrowPath, marked: bool, flow: EdgeFlow | None
) -> None:
    pen, fill = (
        arrow_ink(current(), marked, manager().strokes)
        if flow is None
        else _flow_ink(flow)
    )
    painter.setPen(pen)
    painter.setBrush(Qt.BrushStyle.NoBrush)
    if way.line is not None:
        painter.drawLine(way.line)
    else:
        painter.drawPath(way.path)
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(fill)
    painter.drawPath(way.head)


def _flow_ink(flow: EdgeFlow) -> tuple[QPen, QBrush]:
    """Return pen and brush of a flow, as wide as its norm."""
    color = flow.color(current())
    pen = QPen(color, flow.width, Qt.PenStyle.SolidLine, Qt.PenCapStyle.FlatCap)
    if flow.dashed:
        pen.setDashPattern([3, 3])
    return pen, QBrush(color)


def _paint_label(label: Text, color: int, painter: QPainter) -> None:
    paint_label(
        painter,
        label,
        QPointF(0, 0),
        current(),
        color=QColor.fromRgba(color) if color else None,
    )
