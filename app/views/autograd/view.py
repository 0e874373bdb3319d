"""The window onto the scene: zoom at the pointer, pan, frame, walk with the keys, fold with a click."""

from __future__ import annotations

from functools import lru_cache

from PySide6.QtCore import QEvent, QPoint, QPointF, QRectF, Qt, Signal
from PySide6.QtGui import QColor, QKeyEvent, QMouseEvent, QPainter, QPixmap, QResizeEvent, QWheelEvent
from PySide6.QtWidgets import QGraphicsView, QWidget

from app.views.autograd.items import SIMPLE_BELOW, BoxItem, GroupItem
from app.views.autograd.scene import TapeScene
from app.views.theme import current, manager

LEAST, MOST = 0.04, 3.0
STEP = 1.0015
DOTS = 24.0
HIDDEN = 0.2
_KEYS = {
    Qt.Key.Key_Left: "left",
    Qt.Key.Key_Right: "right",
    Qt.Key.Key_Up: "up",
    Qt.Key.Key_Down: "down",
}


class TapeView(QGraphicsView):
    """`folded(key)` asks to open or close a group."""

    folded = Signal(str)
    zoomed = Signal(float)
    moved = Signal()

    def __init__(self, scene: TapeScene, parent: QWidget | None = None) -> None:
        super().__init__(scene, parent)
        self._scene = scene
        self._framed = True
        self._pan_from: QPoint | None = None
        self._pressed_at: QPoint | None = None
        self._space = False
        self.setRenderHint(QPainter.RenderHint.Antialiasing)
        self.setFrameShape(QGraphicsView.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setTransformationAnchor(QGraphicsView.ViewportAnchor.NoAnchor)
        self.setResizeAnchor(QGraphicsView.ViewportAnchor.NoAnchor)
        self.setViewportUpdateMode(QGraphicsView.ViewportUpdateMode.SmartViewportUpdate)
        self.setMouseTracking(True)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setAccessibleName("Autograd graph")
        self.setAccessibleDescription("Arrow keys walk along the gradients, Enter folds, Home shows everything")
        self.setCursor(Qt.CursorShape.ArrowCursor)
        manager().changed.connect(self.viewport().update)

    # -- what is in sight ----------------------------------------------------------------------------------------------

    def scale_now(self) -> float:
        return self.transform().m11()

    def frame_all(self) -> None:
        """Everything in sight, not larger than life."""
        self._frame(self._scene.sceneRect(), 1.0)
        self._framed = True

    def frame_selection(self) -> None:
        """What is selected or linked in sight; everything if nothing is."""
        key = self._scene.current_key()
        part = self._scene.part(key) if key else None
        parts = [part] if part is not None else self._scene.linked_parts()
        if not parts:
            self.frame_all()
            return
        self._frame(self._scene.area_of(parts).adjusted(-60, -60, 60, 60), 1.25)

    def _frame(self, area: QRectF, largest: float) -> None:
        room = self.viewport().size()
        if area.isEmpty() or room.width() < 2 or room.height() < 2:
            return
        scale = min(room.width() / area.width(), room.height() / area.height(), largest)
        self.resetTransform()
        self._widen()
        self.scale(max(scale, LEAST), max(scale, LEAST))
        self.centerOn(area.center())
        self._framed = False
        self._tell()

    def ensure_seen(self, area: QRectF) -> None:
        """Move only as far as needed to bring an area of the scene into sight."""
        seen = self.mapToScene(self.viewport().rect()).boundingRect()
        if not seen.contains(area):
            self._widen()
            self.ensureVisible(area, 8, 8)
            self._framed = False
            self._tell()

    def show_if_it_fits(self) -> None:
        """Scroll so that all of the picture is in sight where it has room at this scale and much of it is hidden.

        A little may stay hidden: what the pointer is on should stay there.
        """
        area, scale, room = self._scene.itemsBoundingRect(), self.scale_now(), self.viewport().size()
        seen = self.mapToScene(self.viewport().rect()).boundingRect().intersected(area)
        hidden = 1 - seen.width() * seen.height() / max(area.width() * area.height(), 1.0)
        fits = area.width() * scale <= room.width() and area.height() * scale <= room.height()
        if fits and hidden > HIDDEN:
            self.ensure_seen(area)

    def zoom(self, factor: float, at: QPointF | None = None) -> None:
        """Zoom so that what is under `at` (a point of the viewport; its middle by default) stays there."""
        place = at if at is not None else QPointF(self.viewport().rect().center())
        scale = min(max(self.scale_now() * factor, LEAST), MOST)
        before = self.mapToScene(place.toPoint())
        self._widen()
        self.resetTransform()
        self.scale(scale, scale)
        after = self.mapFromScene(before)
        self._scroll(after - place.toPoint())
        self._framed = False
        self._tell()

    def _widen(self) -> None:
        """Let the view scroll far enough past the picture that any point of it can be anywhere."""
        area = self._scene.sceneRect()
        wide, high = area.width() + 4000, area.height() + 4000
        self.setSceneRect(area.adjusted(-wide, -high, wide, high))

    def scroll_by(self, by: QPoint) -> None:
        """Move the view over the scene by pixels of the window."""
        self._widen()
        self._scroll(by)
        self._framed = False
        self._tell()

    def _scroll(self, by: QPoint) -> None:
        for bar, way in ((self.horizontalScrollBar(), by.x()), (self.verticalScrollBar(), by.y())):
            bar.setValue(bar.value() + way)

    def _tell(self) -> None:
        self._scene.set_far(self.scale_now() < SIMPLE_BELOW)
        self.zoomed.emit(self.scale_now())
        self.moved.emit()

    # -- events --------------------------------------------------------------------------------------------------------

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if self._framed:
            self.frame_all()
        self.moved.emit()

    def wheelEvent(self, event: QWheelEvent) -> None:
        turned = event.angleDelta().y() or event.angleDelta().x()
        if event.modifiers() & Qt.KeyboardModifier.ShiftModifier:
            self._scroll(QPoint(-turned // 2, 0))
            self._tell()
        elif turned:
            self.zoom(STEP**turned, event.position())
        event.accept()

    def mousePressEvent(self, event: QMouseEvent) -> None:
        self.setFocus(Qt.FocusReason.MouseFocusReason)
        at = event.position().toPoint()
        middle = event.button() == Qt.MouseButton.MiddleButton
        if middle or (event.button() == Qt.MouseButton.LeftButton and (self._space or self._part_at(at) is None)):
            self._pan_from = at
            self.viewport().setCursor(Qt.CursorShape.ClosedHandCursor)
        if event.button() == Qt.MouseButton.LeftButton:
            self._pressed_at = at
        event.accept()

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        at = event.position().toPoint()
        if self._pan_from is not None:
            self._widen()
            self._scroll(self._pan_from - at)
            self._pan_from = at
            self._framed = False
            self._tell()
            return
        part = self._part_at(at)
        self._scene.hover(part.key if part is not None else None)
        self.viewport().setCursor(
            Qt.CursorShape.PointingHandCursor if part is not None else Qt.CursorShape.ArrowCursor
        )

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        at = event.position().toPoint()
        pressed, self._pressed_at, self._pan_from = self._pressed_at, None, None
        self.viewport().unsetCursor()
        if event.button() != Qt.MouseButton.LeftButton or pressed is None or self._space:
            return
        if (at - pressed).manhattanLength() <= 4:
            self._click(at)

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        at = event.position().toPoint()
        part = self._part_at(at)
        if event.button() == Qt.MouseButton.LeftButton and part is not None and not self._on_chevron(part, at):
            self.fold_at(part.key)
        event.accept()

    def _click(self, at: QPoint) -> None:
        part = self._part_at(at)
        if part is None:
            self._scene.choose("")
        elif self._on_chevron(part, at):
            self.fold_at(part.key)
        else:
            self._scene.choose(part.key)

    def _on_chevron(self, part: BoxItem | GroupItem, at: QPoint) -> bool:
        point = self.mapToScene(at)
        if isinstance(part, GroupItem):
            return part.on_chevron(point)
        return part.foldable and point.x() - part.rect.x <= 20 and point.y() - part.rect.y <= 22

    def _part_at(self, at: QPoint) -> BoxItem | GroupItem | None:
        return self._scene.part_at(self.mapToScene(at))

    def fold_at(self, key: str) -> None:
        """Ask to open or close the group of this key, or the group that the box of this key stands in."""
        item = self._scene.boxes.get(key)
        if key in self._scene.groups:
            self.folded.emit(key)
        elif item is not None and item.foldable:
            self.folded.emit(key.removeprefix("fold:"))
        elif item is not None and item.face.box.group is not None:
            self.folded.emit(item.face.box.group)

    def leaveEvent(self, event: QEvent) -> None:
        self._scene.hover(None)
        super().leaveEvent(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        key = Qt.Key(event.key())
        here = self._scene.current_key()
        if key in _KEYS:
            there = self._scene.neighbour(here, _KEYS[key])
            if there:
                self._scene.choose(there)
                self.ensure_seen(self._scene.boxes[there].sceneBoundingRect())
        elif key == Qt.Key.Key_Space and not event.isAutoRepeat():
            self._space = True
        elif key in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and here:
            self.fold_at(here)
        elif key == Qt.Key.Key_Home:
            self.frame_all()
        elif key in (Qt.Key.Key_F, Qt.Key.Key_Period):
            self.frame_selection()
        elif key in (Qt.Key.Key_Plus, Qt.Key.Key_Equal):
            self.zoom(1.2)
        elif key == Qt.Key.Key_Minus:
            self.zoom(1 / 1.2)
        elif key == Qt.Key.Key_Escape:
            self._scene.choose("")
        else:
            super().keyPressEvent(event)

    def keyReleaseEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Space and not event.isAutoRepeat():
            self._space = False
        else:
            super().keyReleaseEvent(event)

    def focusOutEvent(self, event: QEvent) -> None:
        self._space = False
        super().focusOutEvent(event)

    def drawBackground(self, painter: QPainter, rect: QRectF) -> None:
        """The canvas with its dots, which stay one size."""
        painter.fillRect(rect, current().canvas)
        step = DOTS * self.scale_now()
        if step < 12:
            return
        tile = _dots(round(step), current().dot.name())
        origin = self.mapFromScene(QPointF(0, 0))
        painter.save()
        painter.resetTransform()
        area = self.viewport().rect()
        painter.drawTiledPixmap(area, tile, QPoint(-origin.x() % tile.width(), -origin.y() % tile.height()))
        painter.restore()


@lru_cache(maxsize=64)
def _dots(step: int, color: str) -> QPixmap:
    """One dot on a transparent tile."""
    tile = QPixmap(step, step)
    tile.fill(Qt.GlobalColor.transparent)
    painter = QPainter(tile)
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(QColor(color))
    painter.drawEllipse(QPointF(1.5, 1.5), 0.9, 0.9)
    painter.end()
    return tile
