"""Histograms over one axis of values: an outline each, as high as the share of values there."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from PySide6.QtCore import QPoint, QPointF, QRectF, QSize, Qt
from PySide6.QtGui import (
    QFontMetricsF,
    QPainter,
    QPaintEvent,
    QPen,
    QPolygonF,
)
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.telemetry.histogram import Histogram
from app.util.formatting import figure, percent
from app.views.training.charts import ticks
from app.views.ui import theme
from app.views.ui.widgets.painting import TipAt, start

LEFT, TOP, RIGHT, LABELS = 12.0, 6.0, 12.0, 20.0
LABEL = 58  # px along the axis for a label
FILLED, SAME = 0.14, 1e-12


class RunHistogram(Struct, frozen=True):
    """A histogram of a run, measured after a step, None for one of no run; `color` is its chart colour."""

    name: str
    color: int
    step: int | None
    values: Histogram

    @property
    def title(self) -> str:
        return self.name if self.step is None else f"{self.name}, step {self.step:,}"


def densities(values: Histogram) -> list[float]:
    """Return the height of each bin, so that the bins of a histogram have the area 1 whatever their width."""
    count, wide = sum(values.counts), (values.high - values.low) / len(values.counts)
    return (
        [count_in_bin / (count * wide) for count_in_bin in values.counts]
        if count and wide > SAME
        else []
    )


def share_text(values: Histogram, value: float) -> str:
    """Return which share of the values is in the bin of a value.

    >>> share_text(Histogram("fc", 0.0, 2.0, (1, 3)), 1.5), share_text(Histogram("fc", 0.0, 2.0, (1, 3)), 3.0)
    ('75.00 % from 1.00 to 2.00', 'none here')
    """
    wide = (values.high - values.low) / len(values.counts)
    if wide <= SAME:
        return f"all are {figure(values.low)}"
    if not values.low <= value <= values.high:
        return "none here"
    at = min(int((value - values.low) / wide), len(values.counts) - 1)
    share = percent(values.counts[at] / sum(values.counts))
    return f"{share} % from {figure(values.low + at * wide)} to {figure(values.low + (at + 1) * wide)}"


class RunHistograms(TipAt, QWidget):
    """Shows histograms from the least to the greatest value of all, or `nothing` where there are none. The tool tip has
    the shares at the pointer."""

    def __init__(self, nothing: str = "No values recorded") -> None:
        super().__init__()
        self._nothing = nothing
        self._shown: tuple[RunHistogram, ...] = ()
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        self.setMinimumSize(90, 60)
        theme.manager().changed.connect(self.update)

    def show_histograms(self, shown: Sequence[RunHistogram]) -> None:
        """Show these; those without a finite value are left out."""
        self._shown = tuple(
            histogram for histogram in shown if any(histogram.values.counts)
        )
        self.setAccessibleDescription(
            "; ".join(
                f"{histogram.title}: {figure(histogram.values.low)} to {figure(histogram.values.high)}"
                for histogram in self._shown
            )
        )
        self.update()

    @property
    def shown(self) -> tuple[RunHistogram, ...]:
        """The histograms, those without a finite value left out."""
        return self._shown

    def sizeHint(self) -> QSize:
        return QSize(320, 200)

    def span(self) -> tuple[float, float]:
        """Return the ends of the axis."""
        low = min((histogram.values.low for histogram in self._shown), default=0.0)
        high = max((histogram.values.high for histogram in self._shown), default=1.0)
        pad = (
            0.0 if high - low > SAME else max(abs(high), 1.0) / 2
        )  # of values that are all equal
        return low - pad, high + pad

    def _area(self) -> QRectF:
        return QRectF(self.rect()).adjusted(
            LEFT, TOP, -RIGHT, -LABELS * theme.manager().scale
        )

    def x_of(self, value: float) -> float:
        """Return the place of a value."""
        (low, high), area = self.span(), self._area()
        return area.left() + (value - low) / (high - low) * area.width()

    def shares_at(self, x: float) -> list[str]:
        """Return what each run has in its bin at a place."""
        (low, high), area = self.span(), self._area()
        value = low + (x - area.left()) / max(area.width(), 1.0) * (high - low)
        return [
            f"{histogram.title}: {share_text(histogram.values, value)}"
            for histogram in self._shown
        ]

    def tip_at(self, at: QPoint) -> str:
        return "\n".join(self.shares_at(at.x()))

    def paintEvent(self, _event: QPaintEvent) -> None:
        painter, now = start(self), theme.current()
        painter.setFont(theme.font("axis"))
        if not self._shown:
            painter.setPen(now.text3)
            painter.drawText(
                QRectF(self.rect()), Qt.AlignmentFlag.AlignCenter, self._nothing
            )
            painter.end()
            return
        area = self._area()
        painter.fillRect(area, now.plot)
        self._paint_labels(painter, area)
        heights = [densities(run_histogram.values) for run_histogram in self._shown]
        tallest = max(
            (max(bin_heights) for bin_heights in heights if bin_heights), default=1.0
        )
        for histogram, tall in zip(self._shown, heights, strict=True):
            self._paint_outline(
                painter, area, histogram, [height / tallest for height in tall]
            )
        painter.end()

    def _paint_labels(self, painter: QPainter, area: QRectF) -> None:
        now, (low, high) = theme.current(), self.span()
        metrics = QFontMetricsF(painter.font())
        most = max(2, int(area.width() / (LABEL * theme.manager().scale)))
        for value, text in ticks.labels(low, high, most):
            x = self.x_of(value)
            painter.setPen(now.line3 if value == 0 else now.line)
            painter.drawLine(QPointF(x, area.top()), QPointF(x, area.bottom()))
            wide = metrics.horizontalAdvance(text)
            left = min(max(x - wide / 2, 0.0), self.width() - wide)
            painter.setPen(now.text3)
            painter.drawText(QPointF(left, area.bottom() + metrics.ascent() + 4), text)

    def _paint_outline(
        self,
        painter: QPainter,
        area: QRectF,
        histogram: RunHistogram,
        heights: list[float],
    ) -> None:
        color = theme.current().series[histogram.color]
        painter.setPen(QPen(color, 1.5))
        if not heights:  # all values are equal
            x = self.x_of(histogram.values.low)
            painter.drawLine(QPointF(x, area.top()), QPointF(x, area.bottom()))
            return
        left, right = self.x_of(histogram.values.low), self.x_of(histogram.values.high)
        wide = (right - left) / len(heights)
        outline = QPolygonF([QPointF(left, area.bottom())])
        for number, height in enumerate(heights):
            y = area.bottom() - height * area.height()
            outline.append(QPointF(left + number * wide, y))
            outline.append(QPointF(left + (number + 1) * wide, y))
        outline.append(QPointF(right, area.bottom()))
        painter.setBrush(theme.faded(color, FILLED))
        painter.drawPolygon(outline)
        painter.setBrush(Qt.BrushStyle.NoBrush)
