"""The backward tape as a strip: a cell per step, layer names above, memory held below.

The cost of painting does not depend on the number of steps: the strip is cached as pixmaps until its size changes, and
moving the play head copies two parts of them.
"""

from __future__ import annotations

import math

from PySide6.QtCore import QEvent, QPointF, QRect, QRectF, QSize, Qt, Signal
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

from app.autograd.playback.memory_timeline import (
    Stretch,
    categories,
    held_by_step,
    largest,
    released_by_step,
    stretches,
)
from app.autograd.tape import Tape
from app.util.formatting import bytes_text, significant
from app.views.ui.theme import Theme, current, faded, manager, mix
from app.views.ui.widgets.painting import KeyboardFocus, TextLine, box

# --- Static painting of the tape strip: cells, layer names, and the curve of memory held

LEFT, RIGHT = 46, 14
NAMES, CELL, LEAF = 18, 24, 12
GAP, AXIS = 12, 18
PASSED = 0.28


class StripFace:
    """A tape measured for a size. `held` are bytes by position, `released` by step, `pieces` the layers' segments."""

    def __init__(self, tape: Tape) -> None:
        self.tape = tape
        self.pieces = stretches(tape)
        self.categories = categories(tape)
        self.held, self.released = held_by_step(tape), released_by_step(tape)
        self.count = len(tape.order)
        self.labels: list[QRectF] = []  # where words are painted over the curve
        self.resize(1, 1)

    def resize(self, width: int, height: int) -> None:
        """Compute the layout for a size; `plot` is the area of the curve."""
        self.width, self.height = width, height
        top = NAMES + CELL + GAP
        self.plot = QRectF(
            LEFT, top, max(width - LEFT - RIGHT, 1), max(height - top - AXIS, 1)
        )
        # Cached: x and y are computed for every step.
        self._step = self.plot.width() / max(self.count, 1)
        self._bottom, self._byte = (
            self.plot.bottom(),
            self.plot.height() / (max(self.held[0], 1) * 1.18),
        )

    def x(self, position: float) -> float:
        return LEFT + self._step * position

    def y(self, memory: int) -> float:
        return self._bottom - self._byte * memory

    def step_at(self, x: float) -> int:
        """Return the step at an x of the strip."""
        return max(
            0, min(int((x - LEFT) / self.plot.width() * self.count), self.count - 1)
        )

    def position_at(self, x: float) -> int:
        """Return the play head position at an x of the strip."""
        return max(
            0, min(round((x - LEFT) / self.plot.width() * self.count), self.count)
        )

    def tooltip_lines(self, step: int) -> list[str]:
        """Return the tool tip of a step."""
        node = self.tape.nodes[self.tape.order[step]]
        name = f"{node.name} · {node.parameters[0]}" if node.parameters else node.name
        lines = [
            f"{step + 1:,} {name}",
            f"in {self.tape.title_of(node)}",
            f"{bytes_text(self.held[step])} held",
        ]
        if freed := self.released[step]:
            lines.append(f"frees {bytes_text(freed)} when it has run")
        return lines

    def picture(self, theme: Theme, ratio: float, passed: bool) -> QPixmap:
        """Return the whole strip as a pixmap, in the style of passed or of future steps."""
        picture = QPixmap(QSize(self.width, self.height) * ratio)
        picture.setDevicePixelRatio(ratio)
        picture.fill(theme.panel)
        painter = QPainter(picture)
        self._paint_grid(painter, theme)
        self._paint_cells(painter, theme, PASSED if passed else 1.0)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        self._paint_memory(painter, theme, passed)
        self._paint_names(painter, theme, passed)
        self._paint_labels(painter, theme)
        painter.end()
        return picture

    def _paint_cells(self, painter: QPainter, theme: Theme, share: float) -> None:
        """Paint one cell per step, or per column of pixels if there are more steps."""
        nodes, order, count = self.tape.nodes, self.tape.order, self.count
        colors = {
            key: mix(theme.panel, color, share)
            for key, color in theme.categories.items()
        }
        width = self.plot.width() / count
        bottom, gap = NAMES + CELL, 1 if width >= 4 else 0
        if width >= 2:
            for step, category in enumerate(self.categories):
                left, right = round(self.x(step)), round(self.x(step + 1))
                height = LEAF if nodes[order[step]].is_leaf else CELL
                painter.fillRect(
                    QRect(left, bottom - height, max(right - left - gap, 1), height),
                    colors[category],
                )
            return
        begun, looks = 0, ("", 0)  # columns that look alike are filled at once
        columns = min(int(self.plot.width()), math.ceil(count * width))
        for x in range(columns):
            first, end = int(x / width), min(int((x + 1) / width) + 1, count)
            leaves = all(
                nodes[order[step]].is_leaf for step in range(first, min(end, first + 4))
            )
            look = self.categories[first], LEAF if leaves else CELL
            if look != looks:
                _fill_columns(painter, colors, looks, begun, x)
                begun, looks = x, look
        _fill_columns(painter, colors, looks, begun, columns)

    def _paint_names(self, painter: QPainter, theme: Theme, passed: bool) -> None:
        """Paint names of layers at the start of their segments, as many as fit; long segments first."""
        spans: list[tuple[float, float]] = []
        by_length = sorted(
            self.pieces, key=lambda piece: (piece.first - piece.end, piece.first)
        )
        for piece in by_length[:200]:
            name = TextLine(piece.title, "axis")
            x = self.x(piece.first)
            right = x + name.width + 12
            if right > self.width or any(
                x < end and right > start for start, end in spans
            ):
                continue
            spans.append((x, right))
            painter.fillRect(QRectF(x, 3, 1, NAMES - 3), theme.line3)
            name.draw_in(
                painter,
                x + 5,
                QRectF(0, 1, 1, NAMES - 2),
                theme.text3 if passed else theme.text2,
            )

    def _paint_grid(self, painter: QPainter, theme: Theme) -> None:
        plot, most = self.plot, max(self.held[0], 1)
        unit = _unit(most)
        painter.fillRect(plot, theme.plot)
        step = _nice(most / unit / max(plot.height() / 34, 1))
        value = 0.0
        while value * unit <= most * 1.18:
            y = round(self.y(int(value * unit)))
            painter.fillRect(
                QRectF(plot.left(), y, plot.width(), 1),
                theme.line if value else theme.line2,
            )
            line = TextLine(significant(value), "axis")
            line.draw(
                painter, plot.left() - 6 - line.width, y - line.height / 2, theme.text3
            )
            value += step
        word = TextLine(_unit_name(unit), "axis")
        word.draw(painter, 4, plot.top() - 14, theme.text3)
        painter.fillRect(QRectF(plot.left(), plot.top(), 1, plot.height()), theme.line2)
        every = max(int(_nice(self.count / max(plot.width() / 90, 1))), 1)
        for at in (*range(0, self.count - every // 2, every), self.count):
            x, text = self.x(at), TextLine(f"{at:,}", "axis")
            if at:
                painter.fillRect(
                    QRectF(round(x), plot.top(), 1, plot.height()), theme.line
                )
            text.draw(
                painter,
                min(x - text.width / 2, self.width - text.width - 2),
                plot.bottom() + 3,
                theme.text3,
            )
        TextLine("step", "axis").draw(painter, 4, plot.bottom() + 3, theme.text3)

    def _paint_memory(self, painter: QPainter, theme: Theme, passed: bool) -> None:
        """Paint the memory as a step curve: one step each, or first and last value per pixel column."""
        memory, count, plot = self.held, self.count, self.plot
        stairs = [QPointF(plot.left(), self.y(memory[0]))]
        stride = max(count / plot.width(), 1.0)
        position = stride
        while position < count + stride:
            step = min(int(position), count)
            x = self.x(step)
            if memory[step] != memory[max(int(position - stride), 0)]:
                stairs += [QPointF(x, stairs[-1].y()), QPointF(x, self.y(memory[step]))]
            position += stride
        stairs.append(QPointF(plot.right(), stairs[-1].y()))
        color = theme.series[0]
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(faded(color, 0.13 if passed else 0.32))
        painter.drawPolygon(QPolygonF([*stairs, plot.bottomRight(), plot.bottomLeft()]))
        painter.setPen(QPen(faded(color, 0.45) if passed else color, 1.5))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.drawPolyline(QPolygonF(stairs))

    def _paint_labels(self, painter: QPainter, theme: Theme) -> None:
        """Label the memory at the end of forward, and the layers that free the most."""
        memory, plot = self.held, self.plot
        start = TextLine(f"{bytes_text(memory[0])} at the end of forward", "axis")
        high = start.height
        areas = [
            QRectF(
                plot.left() + 8,
                max(self.y(memory[0]) - high - 1, plot.top() - 8),
                start.width,
                high,
            )
        ]
        self._paint_label(painter, theme, start, areas[0])
        leads: list[QRectF] = []
        for piece in largest(self.pieces):
            steps = piece.end - piece.first
            within = f" in {steps:,} steps" if steps > 1 else ""
            line = TextLine(
                f"{piece.title} frees {bytes_text(piece.released)}{within}", "axis"
            )
            x = self.x(piece.end)
            above, below = self.y(memory[piece.first]), self.y(memory[piece.end])
            y = max(min((above + below - high) / 2, below - high - 2), plot.top())
            area = QRectF(x + 8, y, line.width, high)
            lead = None
            top = above - high - 2
            first, last = self.x(piece.first) + 4, x - line.width - 4
            tries = (
                QRectF(at, top, line.width, high)
                for at in (first, (first + last) / 2, last)
                if first <= last
            )
            free = (
                candidate
                for candidate in tries
                if not any(
                    candidate.adjusted(-8, 0, 8, 0).intersects(other) for other in areas
                )
            )
            over = next(free, None)
            if over is not None:
                area = over  # above the layer's own steps
            elif area.right() > plot.right():
                x = self.x(piece.first)
                left = x - 24 - line.width
                under = self.y(memory[self.step_at(max(left, plot.left()))])
                area = QRectF(left, under - high - 4, line.width, high)
                lead = (
                    QPointF(area.right() + 3, area.center().y()),
                    QPointF(x, self.y(memory[piece.first])),
                )
            fits = plot.left() < area.left() and plot.top() - 10 <= area.top()
            led = QRectF(*lead).normalized() if lead is not None else QRectF()
            parts = area.adjusted(-8, 0, 8, 0), led
            if not fits or any(
                rect.intersects(other) for rect in parts for other in (*areas, *leads)
            ):
                continue
            areas.append(area)
            self._paint_label(painter, theme, line, area)
            if lead is not None:
                leads.append(led)
                painter.setPen(QPen(theme.line3, 1))
                painter.drawLine(*lead)
        self.labels = areas

    def _paint_label(
        self, painter: QPainter, theme: Theme, line: TextLine, area: QRectF
    ) -> None:
        """Paint words with none of the grid behind them."""
        painter.fillRect(area.adjusted(-3, 1, 3, 0).intersected(self.plot), theme.plot)
        line.draw(painter, area.x(), area.y(), theme.text2)


def _fill_columns(
    painter: QPainter,
    colors: dict[str, QColor],
    look: tuple[str, int],
    first: int,
    end: int,
) -> None:
    """Fill columns of pixels of one category and height, counted from the first cell."""
    category, height = look
    if height:
        painter.fillRect(
            QRect(LEFT + first, NAMES + CELL - height, end - first, height),
            colors[category],
        )


def _unit(most: int) -> int:
    return next((unit for unit in (1 << 30, 1 << 20, 1 << 10) if most >= 2 * unit), 1)


def _unit_name(unit: int) -> str:
    return {1 << 30: "GiB", 1 << 20: "MiB", 1 << 10: "KiB", 1: "B"}[unit]


def _nice(least: float) -> float:
    """Return the first of 1, 2, 5, 10, ... that is not smaller."""
    size = 1.0
    while size * 10 <= least:
        size *= 10
    return next(size * factor for factor in (1, 2, 5, 10) if size * factor >= least)


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
