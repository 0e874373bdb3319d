"""Minimap: the whole graph in a corner with the viewport's frame; click or drag to go there."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, QPointF, QRectF, Qt
from PySide6.QtGui import QMouseEvent, QPainter, QPaintEvent, QPixmap
from PySide6.QtWidgets import QWidget

from app.views.autograd.graph.scene import MARGIN as SLACK
from app.views.autograd.graph.view import TapeView
from app.views.ui.theme import current, faded, manager
from app.views.ui.widgets.painting import box, start

WIDTH, HEIGHT, MARGIN, PAD = 158, 66, 14, 7


class Minimap(QWidget):
    """Lies on the view, at its bottom right; hides while all is in sight, and where it would cover much of it."""

    def __init__(self, view: TapeView) -> None:
        super().__init__(view)
        self._view = view
        self._picture = QPixmap()
        self.setFixedSize(WIDTH, HEIGHT)
        self.setAccessibleName("Overview of the graph")
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        view.installEventFilter(self)
        view.moved.connect(self._follow)
        manager().changed.connect(self.rebuild)

    def rebuild(self) -> None:
        """Paint the overview anew: groups and single boxes as blocks of their category's colour."""
        ratio = self.devicePixelRatioF()
        self._picture = QPixmap(round(WIDTH * ratio), round(HEIGHT * ratio))
        self._picture.setDevicePixelRatio(ratio)
        self._picture.fill(Qt.GlobalColor.transparent)
        painter = QPainter(self._picture)
        scale, x, y = self._scale()
        painter.translate(x, y)
        painter.scale(scale, scale)
        self._view.tape_scene.far.paint_map(painter, current())
        painter.end()
        self._follow()

    def _scale(self) -> tuple[float, float, float]:
        """(scale, x and y of the scene's corner on the map)."""
        area = self._view.scene().sceneRect()
        if area.isEmpty():
            return 1.0, 0.0, 0.0
        scale = min((WIDTH - 2 * PAD) / area.width(), (HEIGHT - 2 * PAD) / area.height())
        x = (WIDTH - area.width() * scale) / 2 - area.x() * scale
        y = (HEIGHT - area.height() * scale) / 2 - area.y() * scale
        return scale, x, y

    def _to_map(self, rect: QRectF) -> QRectF:
        scale, x, y = self._scale()
        width, height = max(rect.width() * scale, 1), max(rect.height() * scale, 1)
        return QRectF(rect.x() * scale + x, rect.y() * scale + y, width, height)

    def _seen(self) -> QRectF:
        return self._view.mapToScene(self._view.viewport().rect()).boundingRect()

    def _follow(self) -> None:
        area = self._view.scene().sceneRect()
        all_seen = self._seen().adjusted(-1, -1, 1, 1).contains(area.adjusted(SLACK, SLACK, -SLACK, -SLACK))
        roomy = self._view.width() > 2 * (WIDTH + MARGIN) and self._view.height() > 2 * (HEIGHT + MARGIN)
        self.setVisible(roomy and not area.isEmpty() and not all_seen)
        self.move(self._view.width() - WIDTH - MARGIN, self._view.height() - HEIGHT - MARGIN)
        self.update()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Resize:
            self._follow()
        return False

    def mousePressEvent(self, event: QMouseEvent) -> None:
        self._go(event.position())

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        if event.buttons() & Qt.MouseButton.LeftButton:
            self._go(event.position())

    def _go(self, at: QPointF) -> None:
        scale, x, y = self._scale()
        there = QPointF((at.x() - x) / scale, (at.y() - y) / scale)
        here = self._seen().center()
        by = (here - there) * self._view.zoom
        self._view.pan(by.x(), by.y())

    def paintEvent(self, event: QPaintEvent) -> None:
        theme = current()
        painter = start(self)
        area = QRectF(self.rect())
        box(painter, area, 6, faded(theme.panel, 0.94), theme.line2)
        painter.drawPixmap(0, 0, self._picture)
        frame = self._to_map(self._seen()).intersected(area.adjusted(3, 3, -3, -3))
        box(painter, frame, 2, faded(theme.accent, 0.12), theme.accent)
        painter.end()
