"""The backward tape as a strip: a cell per step, layer names above, memory held below.

The cost of painting does not depend on the number of steps: the strip is cached as pixmaps until its size changes, and
moving the play head copies two parts of them.
"""

from __future__ import annotations

from PySide6.QtCore import QEvent, QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import (
    QColor,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QPen,
    QPixmap,
    QPolygonF,
    QResizeEvent,
)
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.autograd.playback.memory_timeline import Stretch
from app.autograd.tape import Tape
from app.util.formatting import bytes_text
from app.views.autograd.tape.strip_face import (
    AXIS,
    CELL,
    LEAF,
    LEFT,
    NAMES,
    RIGHT,
    StripFace,
)
from app.views.ui.theme import Theme, current, manager
from app.views.ui.widgets.painting import KeyboardFocus, TextLine, box

HEAD = 12  # px around the play head within which it is taken hold of


class TapeStrip(KeyboardFocus, QWidget):
    """`sought(position)` requests to seek to that number of steps: by click, by dragging the play head, or by keys."""

    sought = Signal(int)
    toggled = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.setAccessibleName("Steps of the backward pass")
        self.setAccessibleDescription(
            "Left and Right step, Page Up and Page Down go from layer to layer, Home and End to the ends, Space plays"
        )
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setMouseTracking(True)
        self.setMinimumSize(QSize(200, 96))
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        self._face: StripFace | None = None
        self._position = 0
        self._wanted: int | None = None  # where the head is dragged to
        self._breaks: frozenset[int] = frozenset()
        self._hover: int | None = None
        self._pictures: dict[bool, QPixmap] = {}  # by whether the steps have run
        manager().changed.connect(self._forget)

    def sizeHint(self) -> QSize:
        return QSize(700, 200)

    # -- content -------------------------------------------------------------------------------------------------------

    def set_tape(self, tape: Tape | None) -> None:
        self._face = StripFace(tape) if tape is not None and tape.order else None
        self._position, self._hover, self._wanted = 0, None, None
        self._forget()

    @property
    def pieces(self) -> tuple[Stretch, ...]:
        """Return the segments of layers."""
        return self._face.pieces if self._face is not None else ()

    def set_position(self, position: int) -> None:
        """Move the play head."""
        if position != self._position and self._face is not None:
            before, self._position = self._position, position
            ends = sorted((self._face.x(before), self._face.x(position)))
            # The pill of the head is on either side of it.
            self.update(
                QRectF(
                    ends[0] - 150, 0, ends[1] - ends[0] + 300, self.height()
                ).toAlignedRect()
            )

    def set_breaks(self, steps: frozenset[int]) -> None:
        """Set the steps with a breakpoint before them."""
        self._breaks = steps
        self.update()

    def _forget(self) -> None:
        self._pictures = {}
        self.update()

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._forget()

    # -- places --------------------------------------------------------------------------------------------------------

    def place_of(self, step: int) -> QPointF:
        """Return the centre of a step's cell, in the strip's coordinates."""
        assert self._face is not None
        return QPointF(self._face.x(step + 0.5), NAMES + CELL - LEAF / 2)

    # -- painting ------------------------------------------------------------------------------------------------------

    def paintEvent(self, event: QPaintEvent) -> None:
        theme = current()
        painter = QPainter(self)
        painter.fillRect(self.rect(), theme.panel)
        if self._face is not None:
            if not self._pictures:
                self._face.resize(self.width(), self.height())
            # At position 0 nothing has run: both pictures show the same left margin.
            at = self._face.x(self._position) if self._position else 0.0
            for passed, left, right in (
                (True, 0.0, at),
                (False, at, float(self.width())),
            ):
                if right > left:
                    self._paint_part(painter, theme, passed, left, right)
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            self._paint_breaks(painter, theme)
            self._paint_hover(painter, theme)
            self._paint_head(painter, theme)
        self.paint_ring(painter, QRectF(self.rect()).adjusted(1, 1, -1, -1), 4)
        painter.end()

    def _paint_part(
        self, painter: QPainter, theme: Theme, passed: bool, left: float, right: float
    ) -> None:
        """Copy a range from its picture, which is created on first use."""
        assert self._face is not None
        picture = self._pictures.get(passed)
        if picture is None:
            picture = self._pictures[passed] = self._face.picture(
                theme, self.devicePixelRatioF(), passed
            )
        ratio = picture.devicePixelRatio()
        source = QRectF(left * ratio, 0, (right - left) * ratio, picture.height())
        painter.drawPixmap(
            QRectF(left, 0, right - left, self.height()), picture, source
        )

    def _paint_breaks(self, painter: QPainter, theme: Theme) -> None:
        assert self._face is not None
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(theme.error)
        for x in {round(self._face.x(step)) for step in self._breaks}:
            painter.drawEllipse(QPointF(x, NAMES + CELL + 4), 3, 3)

    def _paint_hover(self, painter: QPainter, theme: Theme) -> None:
        if self._hover is None or self._face is None:
            return
        x = self._face.x(self._hover + 0.5)
        painter.fillRect(
            QRectF(round(x), NAMES, 1, self.height() - NAMES - AXIS), theme.text2
        )
        lines = [
            TextLine(text, "caption") for text in self._face.tooltip_lines(self._hover)
        ]
        width = max(line.width for line in lines) + 20
        left = x + 10 if x + 10 + width < self.width() else x - 10 - width
        area = QRectF(left, NAMES + CELL + 8, width, 16 * len(lines) + 10)
        box(painter, area, 5, theme.raised, theme.line3)
        for row, line in enumerate(lines):
            line.draw(
                painter,
                area.x() + 10,
                area.y() + 5 + 16 * row,
                theme.text2 if row else theme.text,
            )

    def _paint_head(self, painter: QPainter, theme: Theme) -> None:
        """Paint the play head across cells and curve, with the memory held there."""
        assert self._face is not None
        seeking = self._wanted is not None
        position = self._wanted if self._wanted is not None else self._position
        x, memory = self._face.x(position), self._face.held[position]
        painter.setPen(
            QPen(
                theme.back,
                1.5,
                Qt.PenStyle.DashLine if seeking else Qt.PenStyle.SolidLine,
            )
        )
        painter.drawLine(QPointF(x, NAMES - 2), QPointF(x, self._face.plot.bottom()))
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(theme.back)
        top = NAMES + CELL + 2
        painter.drawPolygon(
            QPolygonF([QPointF(x - 6, top), QPointF(x + 6, top), QPointF(x, top + 8)])
        )
        y = self._face.y(memory)
        painter.setPen(QPen(theme.panel, 1.5))
        painter.drawEllipse(QPointF(x, y), 4.5, 4.5)
        text = TextLine(f"{bytes_text(memory)} held", "section")
        area = self.held_area(position, text.width + 18)
        painter.setPen(Qt.PenStyle.NoPen)
        box(painter, area, 10, theme.back)
        text.draw_in(
            painter,
            area.x() + 9,
            area,
            theme.window if theme.dark else QColor("#FFFFFF"),
        )

    def held_area(self, position: int, width: float) -> QRectF:
        """Return where the memory held at a position is written: beside the head, over no other words if possible."""
        assert self._face is not None
        x, y, plot = (
            self._face.x(position),
            self._face.y(self._face.held[position]),
            self._face.plot,
        )
        sides = [x + 10, x - 10 - width]
        if x + 10 + width >= self.width() - 4:
            sides.reverse()
        tops = [
            max(min(top, plot.bottom() - 22), plot.top() + 1)
            for top in (y - 26, y + 8, plot.top(), plot.bottom())
        ]
        areas = [QRectF(left, top, width, 20) for top in tops for left in sides]
        inside = [
            area
            for area in areas
            if area.left() >= 4 and area.right() < self.width() - 4
        ]
        return next(
            (
                area
                for area in inside
                if not any(
                    area.intersects(label_area) for label_area in self._face.labels
                )
            ),
            areas[0],
        )

    # -- events --------------------------------------------------------------------------------------------------------

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if event.button() != Qt.MouseButton.LeftButton or self._face is None:
            return
        x = event.position().x()
        near = (
            abs(x - self._face.x(self._position)) <= HEAD
            and event.position().y() > NAMES + CELL
        )
        self._wanted = self._position if near else self._face.step_at(x)
        if not near:
            self.sought.emit(self._wanted)
        self._hover = None
        self.update()

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        if self._face is None:
            return
        x = event.position().x()
        if self._wanted is not None:
            position = self._face.position_at(x)
            if position != self._wanted:
                self._wanted = position
                self.sought.emit(position)
                self.update()
            return
        hover = (
            self._face.step_at(x)
            if LEFT <= x <= self.width() - RIGHT and event.position().y() > NAMES
            else None
        )
        if hover != self._hover:
            self._hover = hover
            self.update()

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        self._wanted = None
        self.update()

    def leaveEvent(self, event: QEvent) -> None:
        self._hover = None
        self.update()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        key, position, end = (
            event.key(),
            self._position,
            self._face.count if self._face is not None else 0,
        )
        firsts = [piece.first for piece in self.pieces]
        target = {
            Qt.Key.Key_Left: position - 1,
            Qt.Key.Key_Right: position + 1,
            Qt.Key.Key_Home: 0,
            Qt.Key.Key_End: end,
            Qt.Key.Key_PageUp: max(
                (first for first in firsts if first < position), default=0
            ),
            Qt.Key.Key_PageDown: min(
                (first for first in firsts if first > position), default=end
            ),
        }.get(Qt.Key(key))
        if target is not None and self._face is not None:
            self.sought.emit(max(0, min(target, end)))
        elif key == Qt.Key.Key_Space and not event.isAutoRepeat():
            self.toggled.emit()
        else:
            super().keyPressEvent(event)
