"""A small plot of a few curves over one axis, for forms and dialogs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from PySide6.QtCore import QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import (
    QColor,
    QFontMetricsF,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QPen,
    QPolygonF,
)
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from app.util.formatting import figure
from app.views.training.charts import series, ticks
from app.views.training.charts.ticks import log_tick
from app.views.ui import theme
from app.views.ui.widgets.painting import start

PAD = 6
ROOM_X, ROOM_Y = 58, 26  # px for a label along each axis
TALL = 140  # px, from which the y axis has labels: lower plots say their range alone


class PlotLine(Struct, frozen=True):
    """One curve: its y at each x of the plot."""

    y: tuple[float, ...]
    opacity: float = 1.0
    width: float = 1.5


class SmallPlot(QWidget):
    """Curves between the least and the greatest value of the last; the pointer reads that. `picked(x)` is a click."""

    picked = Signal(float)

    def __init__(self, name: str, height: int = 96) -> None:
        super().__init__()
        self.setAccessibleName(name)
        self.setMinimumSize(QSize(120, height))
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setMouseTracking(True)
        self._x: series.Floats = np.empty(0)
        self._lines: tuple[PlotLine, ...] = ()
        self._log_x = False
        self._ends = ("", "")
        self._unit = ("", "")
        self._marks: tuple[tuple[float, str], ...] = ()

    def sizeHint(self) -> QSize:
        return QSize(240, self.minimumHeight())

    def show_lines(
        self,
        x: Sequence[float],
        lines: Sequence[PlotLine],
        *,
        log_x: bool = False,
        ends: tuple[str, str] = ("", ""),
        unit: tuple[str, str] = ("", ""),
        marks: Sequence[tuple[float, str]] = (),
    ) -> None:
        """Draw them. `ends` are the words below the first and the last x, `unit` what x and y are called; on a log axis
        the labels of round values are below instead.

        `marks` are places on the x axis with the colour token of their line.
        """
        self._x, self._lines, self._log_x = np.asarray(x, float), tuple(lines), log_x
        self._ends, self._unit, self._marks = ends, unit, tuple(marks)
        low, high = self._range()
        self.setAccessibleDescription(
            f"{self._unit[1]} from {figure(low)} to {figure(high)}"
        )
        self.update()

    def set_marks(self, marks: Sequence[tuple[float, str]]) -> None:
        self._marks = tuple(marks)
        self.update()

    def _range(self) -> tuple[float, float]:
        values = np.asarray(self._lines[-1].y if self._lines else (), float)
        finite = values[np.isfinite(values)]
        return (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)

    def _area(self) -> QRectF:
        metrics = QFontMetricsF(theme.font("axis"))
        left = max(
            (metrics.horizontalAdvance(text) + 6 for _, text in self.levels()),
            default=0.0,
        )
        return QRectF(self.rect()).adjusted(
            left + 0.5, 0.5, -0.5, -metrics.height() - 4.5
        )

    def places(self) -> list[tuple[float, str]]:
        """Return the labels of a log x axis, with their values."""
        if not self._log_x or len(self._x) < 2 or self._x[0] <= 0:
            return []
        most = max(2, self.width() // ROOM_X)
        exponents = ticks.log_ticks(
            float(np.log10(self._x[0])), float(np.log10(self._x[-1])), most
        )
        return [(10**exponent, log_tick(exponent)) for exponent in exponents]

    def levels(self) -> list[tuple[float, str]]:
        """Return the labels of the y axis of a tall plot, with their values."""
        low, high = self._range()
        if self.minimumHeight() < TALL or not high > low:
            return []
        return ticks.labels(low, high, max(2, self.minimumHeight() // ROOM_Y))

    def _pixels(self, x: series.Floats) -> series.Floats:
        """Return the pixels of x values."""
        area = self._area().adjusted(PAD, 0, -PAD, 0)
        scale = np.log10 if self._log_x else np.asarray
        first, last = float(scale(self._x[0])), float(scale(self._x[-1]))
        return (
            area.left() + (scale(x) - first) / max(last - first, 1e-12) * area.width()
        )

    def paintEvent(self, event: QPaintEvent) -> None:
        now, painter = theme.current(), start(self)
        area = self._area()
        painter.setPen(QPen(now.line, 1))
        painter.setBrush(now.plot)
        painter.drawRoundedRect(area, 4, 4)
        if len(self._x) > 1:
            for mark_x, token in self._marks:
                painter.setPen(QPen(now.color(token), 1.5))
                at = float(self._pixels(np.asarray([mark_x]))[0])
                painter.drawLine(QPointF(at, area.top()), QPointF(at, area.bottom()))
            self._paint_grid(painter, area)
            painter.setClipRect(area)
            for line in self._lines:
                self._paint_line(painter, area, line, now.series[0])
            painter.setClipping(False)
            self._paint_labels(painter, area)
        painter.end()

    def _heights(self, area: QRectF, y: series.Floats) -> series.Floats:
        """Return the pixels of y values."""
        (low, high), inside = self._range(), area.adjusted(0, 18, 0, -PAD)
        return inside.bottom() - (y - low) / (high - low) * inside.height()

    def _paint_grid(self, painter: QPainter, area: QRectF) -> None:
        """Paint a line and a label at each labelled value."""
        now, metrics = theme.current(), QFontMetricsF(theme.font("axis"))
        painter.setFont(theme.font("axis"))
        for value, text in self.places():
            x, half = (
                float(self._pixels(np.asarray([value]))[0]),
                metrics.horizontalAdvance(text) / 2,
            )
            painter.setPen(QPen(now.line, 1))
            painter.drawLine(QPointF(x, area.top() + 18), QPointF(x, area.bottom()))
            painter.setPen(now.text3)
            left = min(max(x - half, area.left()), area.right() - 2 * half)
            painter.drawText(QPointF(left, area.bottom() + 3 + metrics.ascent()), text)
        for value, text in self.levels():
            y = float(self._heights(area, np.asarray([value]))[0])
            painter.setPen(QPen(now.line, 1))
            painter.drawLine(QPointF(area.left(), y), QPointF(area.right(), y))
            painter.setPen(now.text3)
            left = area.left() - 6 - metrics.horizontalAdvance(text)
            painter.drawText(QPointF(left, y + metrics.capHeight() / 2), text)

    def _paint_line(
        self, painter: QPainter, area: QRectF, line: PlotLine, color: QColor
    ) -> None:
        low, high = self._range()
        x, y = series.thin_peaks(
            self._pixels(self._x[: len(line.y)]),
            np.asarray(line.y, float),
            int(area.width()),
        )
        level = (
            self._heights(area, y) if high > low else np.full(len(y), area.center().y())
        )
        painter.setPen(QPen(theme.faded(color, line.opacity), line.width))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        points = [
            QPointF(a, b)
            for a, b in zip(x.tolist(), level.tolist(), strict=True)
            if b == b
        ]
        painter.drawPolyline(QPolygonF(points))

    def _paint_labels(self, painter: QPainter, area: QRectF) -> None:
        now, (low, high) = theme.current(), self._range()
        painter.setFont(theme.font("axis"))
        painter.setPen(now.text3)
        left, right = Qt.AlignmentFlag.AlignLeft, Qt.AlignmentFlag.AlignRight
        inside = area.adjusted(PAD, 3, -PAD, -3)
        caption = (
            f"{self._unit[1]} {figure(low)} to {figure(high)}"
            if high > low
            else f"{self._unit[1]} {figure(high)}"
        )
        painter.drawText(inside, left | Qt.AlignmentFlag.AlignTop, caption.strip())
        below = QRectF(
            area.left(),
            area.bottom() + 3,
            area.width(),
            self.height() - area.bottom() - 3,
        )
        if not self.places():
            painter.drawText(below, left, self._ends[0])
            painter.drawText(below, right, self._ends[1])

    def _nearest(self, event: QMouseEvent) -> int | None:
        if len(self._x) < 2:
            return None
        return int(np.abs(self._pixels(self._x) - event.position().x()).argmin())

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        index = self._nearest(event)
        if index is not None:
            values = [
                figure(line.y[index])
                for line in self._lines[-1:]
                if index < len(line.y)
            ]
            where = f"{self._unit[0]} {figure(float(self._x[index]))}"
            QToolTip.showText(
                event.globalPosition().toPoint(), f"{where}: {', '.join(values)}", self
            )

    def mousePressEvent(self, event: QMouseEvent) -> None:
        index = self._nearest(event)
        if index is not None and event.button() == Qt.MouseButton.LeftButton:
            self.picked.emit(float(self._x[index]))
