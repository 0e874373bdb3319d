"""Minimap: the whole graph in a corner with the viewport's frame; click or drag to go there."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Any, Protocol, TypeAlias

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray
from PySide6.QtCore import QPoint, QPointF, QRectF, QSize, Qt, QTimer
from PySide6.QtGui import (
    QImage,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QPen,
    QPixmap,
)
from PySide6.QtWidgets import QWidget
from shiboken6 import isValid

from app.views.ui import theme
from app.views.ui.graphview.pan_zoom_view import PanZoomView
from app.views.ui.widgets.painting import box, start

SIZE, SMALL = QSize(196, 92), QSize(132, 62)
ROOMY, TIGHT = (
    QSize(880, 440),
    QSize(420, 220),
)  # views that are smaller have a small map, or none
EDGE = 12  # from the corner
CORNERS = ((1, 1), (0, 1), (1, 0), (0, 0))  # right and bottom first
REST = 150  # milliseconds without a movement, until the map goes to a corner where it covers nothing
PAD = 8
DELAY = 40  # milliseconds between pictures while things move
THIN = 3  # pixels: a side that is shorter is drawn one longer, so that it is seen
FEW_PIXELS = (
    16  # what covers no more of them is put down together with all others of its kind
)

MapRects: TypeAlias = NDArray[np.float64]  # n×5, see `MapShapes`


class MapShapes(Struct, frozen=True):
    """Contents of a minimap: `rects` are n×5 (left, top, right, bottom on the scene, and 0xAARRGGBB), later ones on
    top.

    `outlines` are below them. If not `complete`, the minimap asks again soon.
    """

    rects: MapRects
    outlines: Sequence[QRectF] = ()
    complete: bool = True


class MapSource(Protocol):
    """A scene that can be shown small."""

    def content_rect(self) -> QRectF: ...

    def map_shapes(self) -> MapShapes: ...


class Minimap(QWidget):
    """Overlay at the bottom right of its parent. With `only_hidden_parts` it hides while everything is visible, and
    goes to another corner where it covers fewer nodes, once the view rests."""

    def __init__(
        self,
        view: PanZoomView,
        source: MapSource,
        parent: QWidget,
        *,
        only_hidden_parts: bool = False,
    ) -> None:
        super().__init__(parent)
        self.view, self._source, self._parent = view, source, parent
        self._only_hidden_parts = only_hidden_parts
        self._seen = QRectF()
        self._picture: QPixmap | None = None
        self._stale = True
        self._whole = QRectF()
        self.fits = True
        self.setFixedSize(SIZE)
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.setAccessibleName("Minimap")
        self._timer = QTimer(self, singleShot=True, interval=DELAY)
        self._timer.timeout.connect(self._outdate)
        self._corner = CORNERS[0]
        self._rest = QTimer(self, singleShot=True, interval=REST)
        self._rest.timeout.connect(self._choose_corner)
        view.moved.connect(self.follow)
        theme.manager().changed.connect(self.refresh)

    def refresh(self) -> None:
        """Schedule a repaint, debounced: once for many changes."""
        if not self._timer.isActive():
            self._timer.start()

    def rebuild(self) -> None:
        """Show another graph at once."""
        self._outdate()
        self.follow()

    def _outdate(self) -> None:
        self._stale = True
        self.update()

    def follow(self) -> None:
        """Update the visible area, and hide if there is no room or nothing to show."""
        if not isValid(
            self._parent
        ):  # the view still moves while both are being deleted
            return
        room = (
            self._parent.size() / self.view.unit
        )  # with larger text less of a graph is in sight
        self.fits = room.width() >= TIGHT.width() and room.height() >= TIGHT.height()
        map_size = (
            SIZE
            if room.width() >= ROOMY.width() and room.height() >= ROOMY.height()
            else SMALL
        )
        if map_size != self.size():
            self.setFixedSize(map_size)
            self._stale = True
        self.move(self._place(self._corner))
        visible, content = self.view.visible_area(), self._source.content_rect()
        hidden = not content.isEmpty() and not visible.adjusted(-1, -1, 1, 1).contains(
            content
        )
        self.setVisible(
            self.fits
            and not content.isEmpty()
            and (hidden or not self._only_hidden_parts)
        )
        if visible != self._seen:
            self._seen = visible
            self.update()
        if self._only_hidden_parts and self.isVisibleTo(self._parent):
            self._rest.start()

    def _place(self, corner: tuple[int, int]) -> QPoint:
        """Return where the map is in a corner: 1 for the right and the bottom."""
        room = self._parent.size() - self.size()
        x, y = (
            EDGE + at * (size - 2 * EDGE)
            for at, size in zip(corner, (room.width(), room.height()), strict=True)
        )
        return QPoint(x, y)

    def _choose_corner(self) -> None:
        """Go to the corner where the map covers the fewest nodes; it stays where others are no better."""
        if (
            not isValid(self._parent)
            or not self.isVisibleTo(self._parent)
            or self.underMouse()
        ):
            return
        nodes = self.nodes_in_view()

        def covered(corner: tuple[int, int]) -> int:
            at = self._place(corner)
            right, bottom = at.x() + self.width(), at.y() + self.height()
            return int(
                (
                    (nodes[:, 0] < right)
                    & (nodes[:, 2] > at.x())
                    & (nodes[:, 1] < bottom)
                    & (nodes[:, 3] > at.y())
                ).sum()
            )

        self._corner = min((self._corner, *CORNERS), key=covered)
        self.move(self._place(self._corner))

    def nodes_in_view(self) -> NDArray[np.float64]:
        """Return the areas of the nodes in sight, n×4: left, top, right, bottom in pixels of the view."""
        shapes = self._source.map_shapes()
        corner = self.view.viewportTransform().map(QPointF(0, 0))
        areas: NDArray[np.float64] = shapes.rects[:, :4] * self.view.zoom + [
            corner.x(),
            corner.y(),
            corner.x(),
            corner.y(),
        ]
        return areas[
            (areas[:, 2] > 0)
            & (areas[:, 3] > 0)
            & (areas[:, 0] < self.view.width())
            & (areas[:, 1] < self.view.height())
        ]

    def _scale(self) -> tuple[float, QPointF]:
        """Return the scale, minimap pixels per scene pixel, and the position of the scene's origin."""
        content = self._whole.adjusted(-40, -40, 40, 40)
        width, height = self.width() - 2 * PAD, self.height() - 2 * PAD
        scale = min(
            width / max(content.width(), 1), height / max(content.height(), 1), 0.2
        )
        middle = QPointF(self.width() / 2, self.height() / 2)
        return scale, middle - content.center() * scale

    def paintEvent(self, event: QPaintEvent) -> None:
        now = theme.current()
        if self._stale:
            self._make_picture()
        painter = start(self)
        box(painter, QRectF(self.rect()), 6, now.panel, now.line2)
        if self._picture is not None:
            painter.drawPixmap(0, 0, self._picture)
        scale, origin = self._scale()
        frame = QRectF(self._seen.topLeft() * scale + origin, self._seen.size() * scale)
        frame = frame.intersected(QRectF(self.rect()).adjusted(3, 3, -3, -3))
        if not frame.isEmpty():
            painter.setBrush(theme.faded(now.accent, 0.06))
            painter.setPen(QPen(now.accent, 1.25))
            painter.drawRoundedRect(frame, 2, 2)
        painter.end()

    def _make_picture(self) -> None:
        began = perf_counter()
        shapes = self._source.map_shapes()
        self._whole, self._stale = self._source.content_rect(), False
        self._picture = self._draw(shapes)
        # The picture of a very large drawing is made seldom, so that it takes no more than a tenth of the time.
        self._timer.setInterval(max(DELAY, round(10_000 * (perf_counter() - began))))
        if not shapes.complete:
            self.refresh()

    def _draw(self, shapes: MapShapes) -> QPixmap:
        ratio = self.devicePixelRatioF()
        picture = QPixmap(self.size() * ratio)
        picture.fill(Qt.GlobalColor.transparent)
        scale, origin = self._scale()
        painter = QPainter(picture)
        painter.scale(ratio, ratio)
        painter.setPen(QPen(theme.current().line3, 1))
        painter.drawRects(
            [
                QRectF(outline.topLeft() * scale + origin, outline.size() * scale)
                for outline in shapes.outlines
            ]
        )
        painter.resetTransform()
        painter.drawImage(
            0, 0, rastered(shapes.rects, scale * ratio, origin * ratio, picture.size())
        )
        painter.end()
        picture.setDevicePixelRatio(ratio)
        return picture

    def mousePressEvent(self, event: QMouseEvent) -> None:
        self._go(event.position())

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        if event.buttons() & Qt.MouseButton.LeftButton:
            self._go(event.position())

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        event.accept()  # it is not the view's

    def _go(self, spot: QPointF) -> None:
        scale, origin = self._scale()
        self.view.show_point((spot - origin) / scale)


def rastered(rects: MapRects, scale: float, origin: QPointF, size: QSize) -> QImage:
    """Rasterize to an image of `size` pixels: filled rectangles, at least one pixel each, transparent elsewhere.

    A QPainter would get each of very many small rectangles as an object; an array is filled at once.
    """
    width, height = size.width(), size.height()
    pixels = np.zeros((height, width), np.uint32)
    corners = np.rint(
        rects[:, :4] * scale + [origin.x(), origin.y(), origin.x(), origin.y()]
    ).astype(np.int64)
    corners[:, 2:] += corners[:, 2:] - corners[:, :2] < THIN
    left, top = corners[:, 0].clip(0, width - 1), corners[:, 1].clip(0, height - 1)
    right, bottom = (
        corners[:, 2].clip(left + 1, width),
        corners[:, 3].clip(top + 1, height),
    )
    across, count = right - left, (right - left) * (bottom - top)
    colors = rects[:, 4].astype(np.uint32)
    for number in np.flatnonzero(count > FEW_PIXELS):
        pixels[top[number] : bottom[number], left[number] : right[number]] = colors[
            number
        ]
    few = np.flatnonzero(count <= FEW_PIXELS)
    which = np.repeat(few, count[few])
    within = np.arange(len(which)) - np.repeat(
        np.cumsum(count[few]) - count[few], count[few]
    )
    pixels[
        top[which] + within // across[which], left[which] + within % across[which]
    ] = colors[which]
    data: Any = pixels
    return QImage(data, width, height, 4 * width, QImage.Format.Format_ARGB32).copy()
