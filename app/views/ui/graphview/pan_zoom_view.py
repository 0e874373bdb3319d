"""A graphics view with zoom at the pointer, endless panning and framing, over a dotted grid."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

from PySide6.QtCore import QEvent, QObject, QPoint, QPointF, QRect, QRectF, Qt, Signal
from PySide6.QtGui import (
    QAccessible,
    QAccessibleInterface,
    QFocusEvent,
    QHelpEvent,
    QKeyEvent,
    QPainter,
    QPixmap,
    QResizeEvent,
    QTransform,
    QWheelEvent,
)
from PySide6.QtWidgets import QFrame, QGraphicsScene, QGraphicsView, QToolTip, QWidget

from app.views.ui import theme
from app.views.ui.graphview.accessible import ViewInterface
from app.views.ui.theme import manager

if TYPE_CHECKING:
    from app.views.ui.graphview.accessible import GraphAccess

WHEEL = 1.0015  # zoom for an eighth of a degree
NEARLY = (
    0.6  # of `readable_zoom`: what would be smaller is shown whole and without names
)
LEGIBLE = 0.8  # of the zoom at which texts have the size that is set, where larger text is asked for
DOTS = 16  # scene pixels between dots at 100 %, every second step of the grid
LEAST_ROOM = 48  # px that an area is framed in, however small the view is
Pads = tuple[int, int, int, int]


class PanZoomView(QGraphicsView):
    """Base class of the canvas and the autograd graph. A subclass implements `whole_area` and `zoom_changed`.

    `zoomed(zoom)`, `moved` and `resized` notify overlays.
    """

    zoomed = Signal(float)
    moved = Signal()
    resized = Signal()

    LEAST, MOST = 0.05, 4.0  # zoom
    MARGIN = 2000.0  # scene pixels that the view reaches past the picture at least
    SHOWS_END = True  # of what does not fit; else its beginning
    PADS: Pads = (48, 64, 48, 72)  # left, top, right, bottom: room for overlays

    def __init__(self, scene: QGraphicsScene, parent: QWidget | None = None) -> None:
        super().__init__(scene, parent)
        # Set by the owner of a view whose parts a screen reader can find; called when one asks for the view.
        self.make_access: Callable[[], GraphAccess] | None = None
        self._access: GraphAccess | None = None
        _install_interfaces()
        self._dots = GridDots()
        self._space = False
        self.whole = False  # everything is framed, also after the view is resized
        # Returns the room to leave around an area, and the share of the text size that is legible; for owners whose
        # overlays are to cover nothing.
        self.find_pads: Callable[[QRectF, float], tuple[Pads, float]] = (
            lambda _area, _most: (self.PADS, LEGIBLE)
        )
        manager().scaled.connect(self._rescale)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setRenderHint(QPainter.RenderHint.Antialiasing)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setTransformationAnchor(QGraphicsView.ViewportAnchor.NoAnchor)
        self.setResizeAnchor(QGraphicsView.ViewportAnchor.NoAnchor)
        self.setViewportUpdateMode(QGraphicsView.ViewportUpdateMode.SmartViewportUpdate)
        self.setMouseTracking(True)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)

    def accessible_interface(self) -> QAccessibleInterface | None:
        """Return what a screen reader finds in place of the view; None for Qt's own."""
        if self.make_access is None:
            return None

        if self._access is None:
            self._access = self.make_access()
        return ViewInterface(self, self._access)

    @property
    def access(self) -> GraphAccess | None:
        """The parts as a screen reader finds them; None as long as none has asked."""
        return self._access

    def focusInEvent(self, event: QFocusEvent) -> None:
        super().focusInEvent(event)
        if self._access is not None:
            self._access.focus_came()

    def whole_area(self) -> QRectF:
        """Return the bounds of everything in the scene."""
        return self.scene().itemsBoundingRect()

    def zoom_changed(self, zoom: float) -> None:
        """React to a zoom; for subclasses with levels of detail."""

    def readable_zoom(self) -> float:
        """Return the zoom from which names are drawn: what would nearly fit so is not made smaller."""
        return 0.0

    @property
    def unit(self) -> float:
        """The zoom at which texts have the size that is set for the program."""
        return manager().scale

    def _rescale(self, share: float) -> None:
        if self.whole and not self.whole_area().isEmpty():
            self.frame(self.whole_area())
        else:
            self.zoom_by(share)

    @property
    def zoom(self) -> float:
        return self.transform().m11()

    def visible_area(self) -> QRectF:
        """Return the visible part of the scene."""
        return self.mapToScene(self.viewport().rect()).boundingRect()

    def zoom_by(self, factor: float, at: QPointF | None = None) -> None:
        """Zoom by a factor, keeping the point under the pointer, or the middle, in place."""
        self.zoom_to(self.zoom * factor, at)

    def zoom_to(self, zoom: float, at: QPointF | None = None) -> None:
        self.whole = False
        zoom = min(max(zoom, self.LEAST), self.MOST)
        if math.isclose(zoom, self.zoom):
            return
        spot = at or QPointF(self.viewport().rect().center())
        fixed = self.viewportTransform().inverted()[0].map(spot)
        self.setTransform(QTransform.fromScale(zoom, zoom))
        self.zoom_changed(zoom)
        self.widen()
        self._put(fixed, spot)
        self.zoomed.emit(zoom)
        self.moved.emit()

    def pan(self, dx: float, dy: float) -> None:
        """Pan by pixels of the viewport."""
        self.whole = False
        self.widen()
        self.horizontalScrollBar().setValue(
            self.horizontalScrollBar().value() - round(dx)
        )
        self.verticalScrollBar().setValue(self.verticalScrollBar().value() - round(dy))
        self.moved.emit()

    def frame(self, area: QRectF, most: float = 1.0, pads: Pads | None = None) -> None:
        """Show the whole of an area, at a zoom of at most `most`; its end where names would be lost otherwise."""
        if area.isEmpty():
            return
        zoom, point, spot = self.framing(
            area, most, *((pads,) if pads else self.find_pads(area, most))
        )
        self.zoom_to(zoom)
        self.widen()
        self._put(point, spot)
        self.whole = area == self.whole_area()
        self.moved.emit()

    def framing(
        self, area: QRectF, most: float, pads: Pads, legible: float = LEGIBLE
    ) -> tuple[float, QPointF, QPointF]:
        """Return the zoom that shows an area within pads, and a point of it with the point of the viewport that it is
        at."""
        left, top, right, bottom = pads
        width = max(self.viewport().width() - left - right, LEAST_ROOM)
        height = max(self.viewport().height() - top - bottom, LEAST_ROOM)
        fitting_zoom = min(width / area.width(), height / area.height())
        zoom = min(fitting_zoom, most * self.unit)
        if (
            self.unit > 1.0
            and legible * self.unit / 3 <= fitting_zoom < legible * self.unit
        ):
            zoom = (
                legible * self.unit
            )  # larger text is worth more than the rest of the picture
        readable = self.readable_zoom()
        if (
            NEARLY * readable <= zoom < readable
        ):  # from there on names have one size on the screen
            zoom = readable
        zoom = min(max(zoom, self.LEAST), self.MOST)
        # Of what does not fit its end is shown, where the backward pass begins, or its beginning.
        across, down = width / 2 / zoom, height / 2 / zoom
        x, y = (
            max(area.center().x(), area.right() - across),
            max(area.center().y(), area.bottom() - down),
        )
        if not self.SHOWS_END:
            x, y = (
                min(area.center().x(), area.left() + across),
                min(area.center().y(), area.top() + down),
            )
        return zoom, QPointF(x, y), QPointF(left + width / 2, top + height / 2)

    def show_corner(self, corner: QPointF, spot: QPointF, zoom: float) -> None:
        """Show the scene at a zoom, with a point of it at a point of the viewport."""
        self.zoom_to(zoom)
        self.widen()
        self._put(corner, spot)
        self.moved.emit()

    def ensure_seen(self, area: QRectF) -> None:
        """Scroll as little as needed to show an area of the scene."""
        if not self.visible_area().contains(area):
            self.widen()
            self.ensureVisible(area, 8, 8)
            self.whole = False
            self.moved.emit()

    def show_point(self, point: QPointF) -> None:
        """Centre the view on a point of the scene."""
        self.whole = False
        self.widen()
        self._put(point, QPointF(self.viewport().rect().center()))
        self.moved.emit()

    def widen(self) -> None:
        """Extend the scene rectangle well past the content and the visible area, so that panning never ends."""
        room = max(
            self.MARGIN,
            self.viewport().width() / self.zoom,
            self.viewport().height() / self.zoom,
        )
        target_area = self.whole_area().adjusted(-room, -room, room, room)
        if not self.sceneRect().contains(target_area):
            # Growing the rectangle moves the origin of the scroll bars: keep the picture where it is.
            spot = QPointF(0, 0)
            fixed = self.viewportTransform().inverted()[0].map(spot)
            self.setSceneRect(
                self.sceneRect().united(
                    target_area.adjusted(-room / 2, -room / 2, room / 2, room / 2)
                )
            )
            self._put(fixed, spot)

    def _put(self, point: QPointF, spot: QPointF) -> None:
        """Scroll so that a point of the scene is at a point of the viewport."""
        off = self.viewportTransform().map(point) - spot
        self.horizontalScrollBar().setValue(
            self.horizontalScrollBar().value() + round(off.x())
        )
        self.verticalScrollBar().setValue(
            self.verticalScrollBar().value() + round(off.y())
        )

    @property
    def space_held(self) -> bool:
        """True while the space bar makes a press pan."""
        return self._space

    def wheelEvent(self, event: QWheelEvent) -> None:
        turn = event.angleDelta().y() or event.pixelDelta().y()
        if turn and not event.modifiers() & Qt.KeyboardModifier.ShiftModifier:
            self.zoom_by(WHEEL**turn, event.position())
        else:
            self.pan(event.angleDelta().x() or event.angleDelta().y(), 0)
        event.accept()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Space and not event.isAutoRepeat():
            self._space = True
            self.viewport().setCursor(Qt.CursorShape.OpenHandCursor)
            event.accept()
        else:
            super().keyPressEvent(event)

    def keyReleaseEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Space and not event.isAutoRepeat():
            self._space = False
            self.viewport().unsetCursor()
            event.accept()
        else:
            super().keyReleaseEvent(event)

    def focusOutEvent(self, event: QFocusEvent) -> None:
        self._space = False
        super().focusOutEvent(event)

    def tip_at(self, position: QPoint) -> str:
        """Return the tooltip at a point of the viewport, "" for none."""
        return ""

    def viewportEvent(self, event: QEvent) -> bool:
        if isinstance(event, QHelpEvent) and event.type() == QEvent.Type.ToolTip:
            tip = self.tip_at(event.pos())
            QToolTip.showText(event.globalPos(), tip, self.viewport())
            return True
        return super().viewportEvent(event)

    def scrollContentsBy(self, dx: int, dy: int) -> None:
        super().scrollContentsBy(dx, dy)
        self.moved.emit()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if self.whole:
            self.frame(self.whole_area())
        self.widen()
        self.moved.emit()
        self.resized.emit()

    def drawBackground(self, painter: QPainter, rect: QRectF | QRect) -> None:
        self._dots.paint(
            painter,
            QRectF(rect),
            self.viewportTransform(),
            self.zoom,
            self.devicePixelRatioF(),
        )


@cache
def _install_interfaces() -> None:
    """Have Qt ask views and their parts for their interfaces; it does so only for an assistive technology."""
    QAccessible.installFactory(_interface_of)


def _interface_of(_class_name: str, thing: QObject) -> QAccessibleInterface | None:
    make = getattr(thing, "accessible_interface", None)
    return make() if make is not None else None


class GridDots:
    """Paints the dotted grid; the tile is cached until zoom, theme or resolution change."""

    def __init__(self) -> None:
        self._key: object = None
        self._tile = QPixmap()
        self._count = 1

    def paint(
        self,
        painter: QPainter,
        rect: QRectF,
        view: QTransform,
        zoom: float,
        ratio: float,
    ) -> None:
        """Paint the dots in `rect` of the scene; fewer when zoomed out, none when far out."""
        now = theme.current()
        painter.fillRect(rect, now.canvas)
        if zoom < 0.15:
            return
        scale = zoom * DOTS * (1 if zoom >= 0.7 else 2 if zoom >= 0.35 else 4)
        self._make_tile(now, scale, ratio)
        painter.save()
        painter.resetTransform()
        origin = view.map(QPointF(0, 0))
        area = view.mapRect(rect).toAlignedRect()
        period = scale * self._count
        left = area.left() - (area.left() - origin.x()) % period
        y = area.top() - (area.top() - origin.y()) % period
        while y < area.bottom() + 1:
            x = left
            while x < area.right() + 1:
                painter.drawPixmap(QPointF(round(x), round(y)), self._tile)
                x += period
            y += period
        painter.restore()

    def _make_tile(self, now: theme.Theme, scale: float, ratio: float) -> None:
        """Render the cached tile: several rows and columns of dots on a transparent ground."""
        key = (now, round(scale, 4), ratio)
        if key == self._key:
            return
        self._key, self._count = key, max(1, int(256 // scale))
        offsets = [round(i * scale * ratio) / ratio for i in range(self._count)]
        side = math.ceil((scale * self._count + 2) * ratio)
        self._tile = QPixmap(side, side)
        self._tile.setDevicePixelRatio(ratio)
        self._tile.fill(Qt.GlobalColor.transparent)
        painter = QPainter(self._tile)
        for x in offsets:
            for y in offsets:
                painter.fillRect(QRectF(x, y, 1, 1), now.dot)
        painter.end()
