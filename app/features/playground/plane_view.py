"""The plane, coloured by what the net says of it, with the points, which can be drawn."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from PySide6.QtCore import QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import (
    QColor,
    QFocusEvent,
    QFontMetrics,
    QImage,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QPixmap,
)
from PySide6.QtWidgets import QWidget

from app.data.own_points import OwnPoint
from app.features.playground.pictures import class_image, value_range
from app.features.playground.values import LOGIT, PROBABILITY, SCORES, Plane
from app.util.formatting import significant
from app.util.language import marked, tr
from app.views.ui import theme

LEFT, BOTTOM, GAP = 46, 26, 10  # px around the map
POINT = 3.2  # radius of a point, px
APART = 9.0  # px between two points of one stroke
REACH = 9.0  # px around the pointer within which points are erased
MOVE = 0.04  # of the plane that an arrow key moves the cross
ARROWS = {
    Qt.Key.Key_Left: (-1, 0),
    Qt.Key.Key_Right: (1, 0),
    Qt.Key.Key_Up: (0, 1),
    Qt.Key.Key_Down: (0, -1),
}
LABELS = {Qt.Key.Key_0: 0, Qt.Key.Key_1: 1}
ERASE = (Qt.Key.Key_Delete, Qt.Key.Key_Backspace)
EMPTY = ((-1.0, -1.0), (1.0, 1.0))
HOW = marked(
    "Drag with the left button for the first class, with the right one for the second; with Shift points are erased. "
    "By keys: arrows move the cross, 0 and 1 draw, Del erases."
)

_gestures = itertools.count()


class PlaneView(QWidget):
    """The map with its axes and points.

    With points of one's own: `drawn(x, y, label, gesture)` and `erased(x, y, reach, gesture)` ask for changes, in the
    units of the data; a gesture is one step to undo.
    """

    drawn = Signal(float, float, int, str)
    erased = Signal(float, float, float, str)

    def __init__(self) -> None:
        super().__init__()
        self.plane: Plane | None = None
        self.own: Sequence[OwnPoint] | None = None
        self.shows_points = True
        self._names = ("x", "y")
        self._image: QImage | None = None
        self._points = QPixmap()
        self._points_look: tuple[Any, ...] = ()
        self._cross: QPointF | None = None  # on the map, 0 to 1
        self._gesture = ""
        self._last = QPointF()
        self.setMinimumSize(220, 180)
        self.setAccessibleName("Decision surface")
        theme.manager().changed.connect(self._draw)

    def show_plane(self, plane: Plane | None, names: tuple[str, str]) -> None:
        """Show a plane; `names` are those of its axes."""
        self.plane, self._names = plane, names
        self._draw()
        if plane is not None:
            classes = ", ".join(plane.classes[:8])
            self.setAccessibleDescription(
                f"{names[0]} by {names[1]}, {len(plane.points)} points"
                + (f" of {classes}" if classes else "")
            )

    def set_own(self, points: Sequence[OwnPoint] | None) -> None:
        """Show points of one's own in place of the plane's, and have them drawn; None ends it."""
        self.own = points
        drawing = points is not None
        self.setFocusPolicy(
            Qt.FocusPolicy.StrongFocus if drawing else Qt.FocusPolicy.NoFocus
        )
        self.setToolTip(tr(HOW) if drawing else "")
        if drawing:
            self.setCursor(Qt.CursorShape.CrossCursor)
        else:
            self.unsetCursor()
        self.update()

    def _draw(self) -> None:
        now = theme.current()
        self._image = (
            class_image(self.plane, now.series, now.plot)
            if self.plane is not None
            else None
        )
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(520, 460)

    def map_rect(self) -> QRectF:
        """The square of the map."""
        side = max(
            40.0,
            min(self.width() - LEFT - GAP, self.height() - BOTTOM - GAP),
        )
        left = LEFT + max(0.0, (self.width() - LEFT - GAP - side) / 2)
        return QRectF(left, GAP, side, side)

    # --- Drawing points

    @property
    def _bounds(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """The corners of the map, in the units of the data."""
        plane = self.plane
        return (plane.shown_low, plane.shown_high) if plane is not None else EMPTY

    def _share_at(self, position: QPointF) -> QPointF:
        """Return where a position is on the map, 0 to 1 from the lower left corner."""
        rect = self.map_rect()
        x = (position.x() - rect.left()) / rect.width()
        y = (rect.bottom() - position.y()) / rect.height()
        return QPointF(min(max(x, 0.0), 1.0), min(max(y, 0.0), 1.0))

    def _value_at(self, share: QPointF) -> tuple[float, float]:
        (left, low), (right, high) = self._bounds
        return (
            left + share.x() * (right - left),
            low + share.y() * (high - low),
        )

    def _begin(self) -> None:
        self._gesture = f"playground points {next(_gestures)}"

    def _put(self, share: QPointF, label: int) -> None:
        self.drawn.emit(*self._value_at(share), label, self._gesture)

    def _take(self, share: QPointF) -> None:
        (left, _), (right, _) = self._bounds
        reach = (right - left) * REACH / self.map_rect().width()
        self.erased.emit(*self._value_at(share), reach, self._gesture)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if self.own is None or not self.map_rect().contains(event.position()):
            super().mousePressEvent(event)
            return
        self._begin()
        self._stroke(event)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        away = event.position() - self._last
        if self.own is not None and event.buttons() and away.manhattanLength() >= APART:
            self._stroke(event)

    def _stroke(self, event: QMouseEvent) -> None:
        self._last = event.position()
        share = self._share_at(self._last)
        if event.modifiers() & Qt.KeyboardModifier.ShiftModifier:
            self._take(share)
        else:
            self._put(share, int(bool(event.buttons() & Qt.MouseButton.RightButton)))

    def keyPressEvent(self, event: QKeyEvent) -> None:
        key = event.key()
        if self.own is None or key not in (*ARROWS, *LABELS, *ERASE):
            super().keyPressEvent(event)
            return
        cross = self._cross or QPointF(0.5, 0.5)
        if key in ARROWS:
            right, up = ARROWS[Qt.Key(key)]
            x, y = cross.x() + right * MOVE, cross.y() + up * MOVE
            self._cross = QPointF(min(max(x, 0.0), 1.0), min(max(y, 0.0), 1.0))
            self.update()
            return
        self._begin()
        if key in ERASE:
            self._take(cross)
        else:
            self._put(cross, LABELS[Qt.Key(key)])

    def focusInEvent(self, event: QFocusEvent) -> None:
        super().focusInEvent(event)
        self._cross = self._cross or QPointF(0.5, 0.5)
        self.update()

    def focusOutEvent(self, event: QFocusEvent) -> None:
        super().focusOutEvent(event)
        self.update()

    # --- Painting

    def paintEvent(self, _event: QPaintEvent) -> None:
        if self._image is None and self.own is None:
            return
        now, rect = theme.current(), self.map_rect()
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.SmoothPixmapTransform)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        if self._image is not None:
            painter.drawImage(rect, self._image)
        else:
            painter.fillRect(rect, now.plot)
        if self.shows_points:
            painter.drawPixmap(rect.topLeft(), self._points_picture(rect))
        painter.setPen(now.accent if self.hasFocus() else now.line3)
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.drawRect(rect)
        if self.own is not None and self.hasFocus() and self._cross is not None:
            x = rect.left() + self._cross.x() * rect.width()
            y = rect.bottom() - self._cross.y() * rect.height()
            painter.setPen(now.text)
            painter.drawLine(QPointF(x - 7, y), QPointF(x + 7, y))
            painter.drawLine(QPointF(x, y - 7), QPointF(x, y + 7))
        self._paint_axes(painter, rect)
        painter.end()

    def _points_picture(self, rect: QRectF) -> QPixmap:
        """Return the points, which are painted again where they, the size or the theme changed."""
        plane, now, own = self.plane, theme.current(), self.own
        if own is not None:
            (low, high), points = self._bounds, own
            places = np.array([point[:2] for point in own]).reshape(-1, 2)
            colors = [now.series[point.label] for point in own]
        else:
            assert plane is not None
            low, high, points = plane.low, plane.high, plane.points.tobytes()
            places, colors = np.asarray(plane.points), self._point_colors(plane)
        look = (rect.size(), now.name, low, high, points)
        if look != self._points_look:
            self._points_look, ratio = look, self.devicePixelRatioF()
            self._points = QPixmap((rect.size() * ratio).toSize())
            self._points.setDevicePixelRatio(ratio)
            self._points.fill(Qt.GlobalColor.transparent)
            painter = QPainter(self._points)
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            painter.setPen(now.plot)
            places = (places - np.array(low)) / (np.array(high) - np.array(low))
            for (x, y), color in zip(places.tolist(), colors, strict=True):
                painter.setBrush(color)
                center = QPointF(x * rect.width(), (1 - y) * rect.height())
                painter.drawEllipse(center, POINT, POINT)
            painter.end()
        return self._points

    def _point_colors(self, plane: Plane) -> list[QColor]:
        series, labels = theme.current().series, np.asarray(plane.labels)
        if plane.kind in (SCORES, LOGIT, PROBABILITY):
            return [series[int(label) % len(series)] for label in labels.tolist()]
        low, high = value_range(plane.outputs[..., 0], labels)
        return [
            theme.mix(series[0], series[1], (value - low) / (high - low))
            for value in labels.tolist()
        ]

    def _paint_axes(self, painter: QPainter, rect: QRectF) -> None:
        now, font = theme.current(), theme.font("axis")
        metrics = QFontMetrics(font)
        painter.setFont(font)
        painter.setPen(now.text3)
        (left, low), (right, high) = self._bounds
        ends = [significant(value, 3) for value in (left, right, low, high)]
        under = rect.bottom() + metrics.height()
        painter.drawText(QPointF(rect.left(), under), ends[0])
        width = metrics.horizontalAdvance(ends[1])
        painter.drawText(QPointF(rect.right() - width, under), ends[1])
        name = metrics.elidedText(
            self._names[0], Qt.TextElideMode.ElideRight, int(rect.width() / 2)
        )
        middle = rect.center().x() - metrics.horizontalAdvance(name) / 2
        painter.drawText(QPointF(middle, under), name)
        for text, y in (
            (ends[3], rect.top() + metrics.ascent()),
            (ends[2], rect.bottom()),
        ):
            painter.drawText(
                QPointF(rect.left() - 6 - metrics.horizontalAdvance(text), y), text
            )
        painter.save()
        painter.translate(rect.left() - 10, rect.center().y())
        painter.rotate(-90)
        name = metrics.elidedText(
            self._names[1], Qt.TextElideMode.ElideRight, int(rect.height() / 2)
        )
        painter.drawText(QPointF(-metrics.horizontalAdvance(name) / 2, 0), name)
        painter.restore()
