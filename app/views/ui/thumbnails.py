"""Thumbnails of projects, painted by the canvas's painter, one a turn of the event loop."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct
from PySide6.QtCore import (
    QObject,
    QPointF,
    QRectF,
    QSize,
    QSizeF,
    Qt,
    QTimer,
    Signal,
)
from PySide6.QtGui import QPainter, QPixmap

from app.builder.catalog.catalog import Catalog
from app.project.project import Project
from app.util.lru import LruCache
from app.views.canvas.scene import CanvasScene
from app.views.ui import theme

if TYPE_CHECKING:
    from app.builder.results import Analysis

SHARP = 2.0  # painted so much larger than shown, and made smaller by the screen: thin lines stay smooth
MARGIN = 28.0
LARGEST = 1.3
FEW = 600  # nodes at most that a thumbnail paints in detail: thousands of them take a minute of the thread
BOX = QSizeF(140, 60)  # of a node among so many

_cache: LruCache[QPixmap] = LruCache(64)


class ThumbnailRequest(Struct, frozen=True):
    """A requested thumbnail. `key` identifies the project and its state."""

    key: Hashable
    project: Project
    catalog: Catalog
    analysis: Analysis | None = None


class Thumbnails(QObject):
    """Paints thumbnails of one size, one after another, and emits each as `ready(key, pixmap)`."""

    ready = Signal(object, QPixmap)

    def __init__(self, size: QSize, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._size = size
        self._waiting: OrderedDict[Hashable, ThumbnailRequest] = OrderedDict()
        self._timer = QTimer(self, interval=0)
        self._timer.timeout.connect(self._go_on)

    def request(self, request: ThumbnailRequest) -> None:
        """Queue a thumbnail; a cached one is emitted at once."""
        thumbnail = _cache.get(self._cache_key(request))
        if thumbnail is not None:
            self.ready.emit(request.key, thumbnail)
            return
        self._waiting[request.key] = request
        self._timer.start()

    def forget(self) -> None:
        """Drop the requests that are not painted yet."""
        self._waiting.clear()
        self._timer.stop()

    def _cache_key(self, request: ThumbnailRequest) -> Hashable:
        size = (self._size.width(), self._size.height())
        return (request.key, request.analysis is not None, theme.current().name, size)

    def _go_on(self) -> None:
        if not self._waiting:
            self._timer.stop()
            return
        request = self._waiting.popitem(last=False)[1]
        if len(request.project.graph.nodes) > FEW:
            self._finish(
                request, partial(paint_boxes, request.project, request.catalog)
            )
            return
        scene = CanvasScene(request.catalog)
        scene.show_project(request.project)
        if request.analysis is not None:
            scene.set_analysis(request.analysis)
        self._finish(request, partial(paint, scene))
        scene.deleteLater()

    def _finish(
        self, request: ThumbnailRequest, painted: Callable[[QPixmap, QRectF], None]
    ) -> None:
        picture = QPixmap(self._size * SHARP)
        picture.setDevicePixelRatio(SHARP)
        picture.fill(Qt.GlobalColor.transparent)
        painted(picture, QRectF(0, 0, self._size.width(), self._size.height()))
        _cache.put(self._cache_key(request), picture)
        self.ready.emit(request.key, picture)


def paint(scene: CanvasScene, picture: QPixmap, room: QRectF) -> None:
    """Paint the whole scene centred in `room`, as large as it fits."""
    framed, area = _fitted(scene.content_rect(), room)
    painter = QPainter(picture)
    scene.render(painter, area, framed)
    painter.end()


def paint_boxes(
    project: Project, catalog: Catalog, picture: QPixmap, room: QRectF
) -> None:
    """Paint each node as a box in the colour of its category, at its place; one without a place is left out."""
    now, positions = theme.current(), project.positions
    boxes: dict[str, list[QRectF]] = {}
    for key, node in project.graph.nodes.items():
        if key in positions:
            category = catalog[node.op].category if node.op in catalog else ""
            boxes.setdefault(category, []).append(QRectF(QPointF(*positions[key]), BOX))
    if not boxes:
        return
    rects = [box for some in boxes.values() for box in some]
    left, top = min(box.left() for box in rects), min(box.top() for box in rects)
    size = QSizeF(
        max(box.right() for box in rects) - left,
        max(box.bottom() for box in rects) - top,
    )
    framed, area = _fitted(QRectF(QPointF(left, top), size), room)
    painter = QPainter(picture)
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    painter.translate(area.topLeft())
    painter.scale(area.width() / framed.width(), area.height() / framed.height())
    painter.translate(-framed.topLeft())
    painter.setPen(Qt.PenStyle.NoPen)
    for category, some in boxes.items():
        painter.setBrush(now.categories.get(category, now.line3))
        painter.drawRects(some)
    painter.end()


def _fitted(content: QRectF, room: QRectF) -> tuple[QRectF, QRectF]:
    """Return the content with a margin, and the area in the middle of `room` that it fills."""
    framed = content.adjusted(-MARGIN, -MARGIN, MARGIN, MARGIN)
    scale = min(room.width() / framed.width(), room.height() / framed.height(), LARGEST)
    area = QRectF(0, 0, framed.width() * scale, framed.height() * scale)
    area.moveCenter(room.center())
    return framed, area
