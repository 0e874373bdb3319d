"""Static painting of the tape strip: cells, layer names, and the curve of memory held."""

from __future__ import annotations

import math

from PySide6.QtCore import QPointF, QRect, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QPainter, QPen, QPixmap, QPolygonF

from app.autograd.playback.memory_timeline import (
    categories,
    held_by_step,
    largest,
    released_by_step,
    stretches,
)
from app.autograd.tape import Tape
from app.util.formatting import bytes_text, significant
from app.views.ui.theme import Theme, faded, mix
from app.views.ui.widgets.painting import TextLine

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
