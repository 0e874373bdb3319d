"""The maps of the heads of one attention, as a grid of images; a click mutes a head."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from PySide6.QtCore import QPoint, QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import (
    QImage,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QPen,
    QResizeEvent,
)
from PySide6.QtWidgets import QFrame, QScrollArea, QSizePolicy, QWidget

from app.features.interpret.values import AttentionReading
from app.util.language import tr
from app.views.run.picture_grid import heat_colors, image_of
from app.views.ui import theme
from app.views.ui.layouts import vbox
from app.views.ui.present import present
from app.views.ui.widgets.painting import TipAt, announce, elided, start

SIDE, GAP, CAPTION, PAD = 112, 12, 18, 12


def heat_image(values: np.ndarray) -> QImage:
    """Return weights (H, W) in the heat ramp, from 0 to the largest of them."""
    largest = max(float(np.nanmax(values, initial=0.0)), 1e-12)
    return image_of(heat_colors(values / largest))


class HeadTiles(TipAt, QWidget):
    """`pointed(head)` comes when the current head changes, `toggled(head)` when one is to be muted, or heard again."""

    pointed = Signal(int)
    toggled = Signal(int)

    def __init__(self) -> None:
        super().__init__()
        self._images: list[QImage] = []
        self._entropy: tuple[float, ...] = ()
        self._changes: dict[int, float] = {}
        self.muted: frozenset[int] = frozenset()
        self.current = 0
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setMouseTracking(True)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setAccessibleName("Heads")
        theme.manager().changed.connect(self.update)

    @property
    def count(self) -> int:
        """The number of heads."""
        return len(self._images)

    def show_reading(self, reading: AttentionReading | None, group: int = 0) -> None:
        """Show the heads of an attention, of one of its windows; None for none."""
        maps = (
            reading.maps[group]
            if reading is not None and reading.maps is not None
            else ()
        )
        self._images = [heat_image(head_map) for head_map in maps]
        self._entropy = reading.entropy if reading is not None else ()
        self.current = min(self.current, max(self.count - 1, 0))
        self._fit()
        self.update()

    def set_muted(self, muted: Collection[int], changes: dict[int, float]) -> None:
        """Set which heads are muted, and by how much the loss grows with each of them alone, as far as measured."""
        self.muted, self._changes = frozenset(muted), changes
        self.update()

    @property
    def _across(self) -> int:
        return max((self.width() - 2 * PAD + GAP) // (SIDE + GAP), 1)

    def box(self, head: int) -> QRectF:
        """Return the area of a head's image."""
        row, column = divmod(head, self._across)
        return QRectF(
            PAD + column * (SIDE + GAP),
            PAD + row * (SIDE + 2 * CAPTION + GAP),
            SIDE,
            SIDE,
        )

    def _fit(self) -> None:
        self.setFixedHeight(
            round(self.box(self.count - 1).bottom() + 2 * CAPTION + PAD)
            if self.count
            else 1
        )

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()

    def _head_at(self, position: QPointF) -> int:
        return next(
            (head for head in range(self.count) if self.box(head).contains(position)),
            -1,
        )

    def _point(self, head: int) -> None:
        if head != self.current:
            self.current = head
            announce(self, self.description(head))
            self.update()
            self.pointed.emit(head)

    def description(self, head: int) -> str:
        """Describe a head in a line."""
        change = self._changes.get(head)
        text = tr(
            "Head {head}, mean entropy {entropy:.2f} nats",
            head=head,
            entropy=self._entropy[head],
        )
        if change is not None:
            changes = tr("muting it changes the loss by {change:+.3g}", change=change)
            text += f"; {changes}"
        return text + (f"; {tr('muted')}" if head in self.muted else "")

    def tip_at(self, at: QPoint) -> str:
        head = self._head_at(at.toPointF())
        mutes = tr("Click or Space mutes it.")
        return f"{self.description(head)}. {mutes}" if head >= 0 else ""

    def mousePressEvent(self, event: QMouseEvent) -> None:
        head = self._head_at(event.position())
        if head >= 0 and event.button() == Qt.MouseButton.LeftButton:
            self._point(head)
            self.toggled.emit(head)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        head = self._head_at(event.position())
        if head >= 0:
            self._point(head)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        steps = {
            Qt.Key.Key_Left: -1,
            Qt.Key.Key_Right: 1,
            Qt.Key.Key_Up: -self._across,
            Qt.Key.Key_Down: self._across,
        }
        if event.key() in steps and self.count:
            self._point(
                min(max(self.current + steps[Qt.Key(event.key())], 0), self.count - 1)
            )
        elif (
            event.key() in (Qt.Key.Key_Space, Qt.Key.Key_Return, Qt.Key.Key_Enter)
            and self.count
        ):
            self.toggled.emit(self.current)
        else:
            super().keyPressEvent(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter, look = start(self), theme.current()
        for head, image in enumerate(self._images):
            area = self.box(head)
            if not area.adjusted(0, 0, 0, 2 * CAPTION).intersects(QRectF(event.rect())):
                continue
            muted = head in self.muted
            painter.setRenderHint(
                QPainter.RenderHint.SmoothPixmapTransform, image.width() > SIDE
            )
            painter.setOpacity(0.25 if muted else 1.0)
            painter.drawImage(area, image)
            painter.setOpacity(1.0)
            if muted:
                painter.setPen(QPen(look.error, 2))
                painter.drawLine(area.topLeft(), area.bottomRight())
                painter.drawLine(area.topRight(), area.bottomLeft())
            if head == self.current:
                painter.setBrush(Qt.BrushStyle.NoBrush)
                painter.setPen(QPen(look.accent, 2 if self.hasFocus() else 1))
                painter.drawRect(area.adjusted(-3, -3, 3, 3))
            line = QRectF(area.left(), area.bottom() + 4, SIDE, CAPTION - 2)
            name = tr("head {head}", head=head)
            name += f", {tr('muted')}" if muted else ""
            elided(name, "caption", SIDE).draw_in(
                painter, line.left(), line, look.error if muted else look.text2
            )
            change = self._changes.get(head)
            if change is not None:
                below = line.translated(0, CAPTION - 3)
                tone = look.error if change > 0 else look.run
                elided(f"loss {change:+.3g}", "caption", SIDE).draw_in(
                    painter, below.left(), below, tone
                )
        painter.end()


class HeadGrid(QScrollArea):
    """The heads below what is said of them, scrolled together where there are many or the room is low."""

    def __init__(self, above: QWidget) -> None:
        super().__init__()
        self.tiles = HeadTiles()
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setWidgetResizable(True)
        column = QWidget()
        vbox(above, self.tiles, 1, on=column, margins=0, spacing=0)
        self.setWidget(column)
        self.setFocusProxy(self.tiles)
        self.setMinimumWidth(SIDE + 2 * PAD + 20)
        self.tiles.pointed.connect(self._reveal)

    def _reveal(self, head: int) -> None:
        center = self.tiles.mapTo(
            present(self.widget()), self.tiles.box(head).center().toPoint()
        )
        self.ensureVisible(center.x(), center.y(), 10, SIDE)

    def sizeHint(self) -> QSize:
        return QSize(4 * (SIDE + GAP) + 2 * PAD, 400)
