"""Axes of the charts: few labels, at round numbers, formatted by `ticks`."""

from __future__ import annotations

from math import ceil
from typing import Literal

from PySide6.QtCore import QObject, QPointF, QRectF, Qt, Signal
from PySide6.QtGui import QFontMetricsF, QPainter, QPen

from app.views.training.charts import series, ticks
from app.views.ui import theme

Scale = Literal["number", "log", "percent", "clock", "count"]

# Pixels for a tick label, along the axis.
ROOM = {"bottom": 46, "left": 26}


OVERHANG = 15  # pixels that a label may reach beyond the view
GAP = {"bottom": 3, "left": 6}  # pixels between a label and the view


class FigureAxis(QObject):
    """An axis whose ticks depend on its `kind`; on "log" the view's coordinates are log10 of the values.

    `changed` is emitted when it looks different or takes another `thickness`, in pixels.
    """

    changed = Signal()

    def __init__(self, orientation: Literal["left", "bottom"], kind: Scale = "number") -> None:
        super().__init__()
        self._kind: Scale = kind
        self._orientation = orientation
        self.thickness = 0
        self.restyle()

    @property
    def kind(self) -> Scale:
        return self._kind

    def set_kind(self, kind: Scale) -> None:
        if kind != self._kind:
            self._kind = kind
            self.changed.emit()

    def restyle(self) -> None:
        """Take fonts from the theme in force."""
        self.thickness = ceil(self._thickness(QFontMetricsF(theme.font("axis"))))
        self.changed.emit()

    def _thickness(self, metrics: QFontMetricsF) -> float:
        """Return the pixels that the labels need across the axis."""
        return metrics.horizontalAdvance("0.003") + 12 if self._orientation == "left" else metrics.height() + 8

    def ticks(self, low: float, high: float, size: float) -> tuple[float, list[float]]:
        """Return the spacing and the positions of the labels on `size` pixels from `low` to `high`."""
        most = max(2, int(size / ROOM[self._orientation]))
        if self._kind == "log":
            return 1.0, series.log_ticks(low, high, most + 1)
        step = series.clock_step(high - low, most) if self._kind == "clock" else series.nice_step(high - low, most)
        if self._kind == "count":
            step = max(1.0, step)
        first = int(-(-low // step))
        last = int(high // step + 1e-9)
        return step, [index * step for index in range(first, last + 1)]

    def paint(self, painter: QPainter, view: QRectF, low: float, high: float) -> None:
        """Paint the line and the labels beside a view that shows `low` to `high`."""
        now, font = theme.current(), theme.font("axis")
        metrics = QFontMetricsF(font)
        painter.setPen(QPen(now.line2, 1))
        left = self._orientation == "left"
        if left:
            painter.drawLine(QPointF(view.left() - 1, view.top() - 1), QPointF(view.left() - 1, view.bottom() + 1))
        else:
            painter.drawLine(QPointF(view.left() - 1, view.bottom() + 1), QPointF(view.right() + 1, view.bottom() + 1))
        painter.setFont(font)
        painter.setPen(now.text3)
        size = view.height() if left else view.width()
        spacing, values = self.ticks(low, high, size)
        largest = max((abs(value) for value in values), default=0.0)
        for value in values:
            part = (value - low) / (high - low)
            if not -1e-9 <= part <= 1 + 1e-9:
                continue
            text = self.text(value, spacing, largest)
            width, height = metrics.horizontalAdvance(text), metrics.height()
            if left:
                room = QRectF(0, view.bottom() - part * size - height / 2, view.left() - GAP["left"], height)
                sides = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
            else:
                place = view.left() + part * size
                if place + width / 2 > view.right() + OVERHANG:
                    continue
                room = QRectF(place - width / 2, view.bottom() + GAP["bottom"], width, height)
                sides = Qt.AlignmentFlag.AlignHCenter | Qt.AlignmentFlag.AlignTop
            painter.drawText(room, sides | Qt.TextFlag.TextDontClip, text)

    def text(self, value: float, spacing: float, largest: float) -> str:
        """Return the label at `value` on an axis with labels every `spacing` up to `largest`."""
        if self._kind == "log":
            return ticks.log_tick(value)
        if self._kind == "clock":
            return ticks.clock_tick(value, spacing)
        return ticks.tick(value, spacing, largest)
