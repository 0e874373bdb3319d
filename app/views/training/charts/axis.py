"""Axes of the charts: few labels, at round numbers, formatted by `ticks`."""

from __future__ import annotations

from typing import Literal

import pyqtgraph as pg
from PySide6.QtGui import QFontMetricsF, QPen

from app.views.training.charts import ticks
from app.views.ui import theme

Scale = Literal["number", "log", "percent", "clock", "count"]

# Pixels for a tick label, along the axis.
ROOM = {"bottom": 46, "left": 26, "right": 26}


class FigureAxis(pg.AxisItem):
    """An axis whose ticks depend on its `kind`; on "log" the view's coordinates are log10 of the values."""

    def __init__(
        self, orientation: Literal["left", "bottom", "right"], kind: Scale = "number"
    ) -> None:
        # Set before super().__init__, which computes ticks.
        self._kind: Scale = kind
        super().__init__(orientation)
        self._room = ROOM[orientation]
        self.enableAutoSIPrefix(
            False
        )  # `text` adds its own prefixes; a title would be laid out at every change
        self.setStyle(
            tickLength=0,
            hideOverlappingLabels=False,
            autoExpandTextSpace=False,
            autoReduceTextSpace=False,
        )
        self.restyle()

    def _updateLabel(self) -> None:
        """Leave out the title, which no axis has: its empty text would be laid out at every change of the range."""
        self.picture = None
        self.update()

    @property
    def kind(self) -> Scale:
        return self._kind

    def set_kind(self, kind: Scale) -> None:
        if kind != self._kind:
            self._kind = kind
            self.picture = None
            self.update()

    def restyle(self) -> None:
        """Take colours and fonts from the theme in force."""
        now = theme.current()
        font = theme.font("axis")
        self.setStyle(
            tickFont=font, tickTextOffset=3 if self.orientation == "bottom" else 6
        )
        metrics = QFontMetricsF(font)
        if self.orientation == "bottom":
            self.setHeight(metrics.height() + 8)
        else:
            self.setWidth(metrics.horizontalAdvance("0.0005") + 12)
        self.setPen(QPen(now.line2, 1))
        self.setTextPen(QPen(now.text3, 1))
        self.setTickPen(QPen(now.line2, 1))

    def ticks(self, low: float, high: float, size: float) -> tuple[float, list[float]]:
        """Return the spacing and the positions of the labels on `size` pixels from `low` to `high`."""
        most = max(2, int(size / self._room))
        if self._kind == "log":
            return 1.0, self._apart(
                ticks.log_ticks(low, high, most + 1), size / max(high - low, 1e-9)
            )
        for parts in (
            most,
            2 * most,
        ):  # a single label, as 0 alone, says nothing of the scale
            step = (
                ticks.clock_step(high - low, parts)
                if self._kind == "clock"
                else ticks.nice_step(high - low, parts)
            )
            if self._kind == "count":
                step = max(1.0, step)
            first, last = int(-(-low // step)), int(high // step + 1e-9)
            if last > first:
                break
        return step, [index * step for index in range(first, last + 1)]

    def _apart(self, positions: list[float], pixels: float) -> list[float]:
        """Return those of the places whose labels do not touch, at `pixels` per unit; 1 and 3 are not evenly apart."""
        high = QFontMetricsF(theme.font("axis")).height() * 0.9
        spaced: list[float] = []
        for position in positions:
            if not spaced or (position - spaced[-1]) * pixels >= high:
                spaced.append(position)
        return spaced

    def tickValues(
        self, minVal: float, maxVal: float, size: float
    ) -> list[tuple[float, list[float]]]:
        return [self.ticks(min(minVal, maxVal), max(minVal, maxVal), size)]

    def tickStrings(
        self, values: list[float], scale: float, spacing: float
    ) -> list[str]:
        largest = max((abs(value) for value in values), default=0.0)
        return [self.text(value, spacing, largest) for value in values]

    def text(self, value: float, spacing: float, largest: float) -> str:
        """Return the label at `value` on an axis with labels every `spacing` up to `largest`."""
        if self._kind == "log":
            return ticks.log_tick(value)
        if self._kind == "clock":
            return ticks.clock_tick(value, spacing)
        return ticks.tick(value, spacing, largest)
