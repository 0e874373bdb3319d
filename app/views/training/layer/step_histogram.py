"""The histogram of a layer's values at one step, as bars."""

from __future__ import annotations

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QFontMetricsF, QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.telemetry.histogram import Histogram
from app.util.formatting import figure, grouped_digits
from app.views.ui import theme
from app.views.ui.widgets.painting import start

LEFT, TOP, RIGHT, ROOM = 12.0, 8.0, 14.0, 20.0


class StepHistogram(QWidget):
    """A bar for each bin, from the lowest value to the highest; the counts are written below."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._shown: Histogram | None = None
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        self.setMinimumSize(90, 60)
        theme.manager().changed.connect(self.update)

    @property
    def shown(self) -> Histogram | None:
        return self._shown

    def show_histogram(self, histogram: Histogram | None) -> None:
        """Show a histogram; None if the layer has none of this kind at the step."""
        self._shown = histogram
        self.setAccessibleName(self._text())
        self.update()

    def _text(self) -> str:
        shown = self._shown
        if shown is None:
            return "No values at this step"
        count = sum(shown.counts)
        return (
            f"{grouped_digits(count)} finite values"
            if count
            else "No finite value at this step"
        )

    def sizeHint(self) -> QSize:
        return QSize(320, 200)

    def paintEvent(self, _event: QPaintEvent) -> None:
        painter, now = start(self), theme.current()
        painter.setFont(theme.font("axis"))
        area = QRectF(self.rect()).adjusted(LEFT, TOP, -RIGHT, -ROOM)
        below = QRectF(area.left(), area.bottom(), area.width(), ROOM)
        painter.setPen(now.text3)
        shown = self._shown
        if shown is None or not sum(shown.counts):
            painter.drawText(
                QRectF(self.rect()), Qt.AlignmentFlag.AlignCenter, self._text()
            )
            painter.end()
            return
        self._paint_bars(painter, area, shown)
        painter.setPen(now.text3)
        low, high = figure(shown.low), figure(shown.high)
        metrics = QFontMetricsF(painter.font())
        painter.drawText(
            below, Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter, low
        )
        painter.drawText(
            below, Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter, high
        )
        if (
            sum(map(metrics.horizontalAdvance, (low, high, self._text()))) + 40
            < below.width()
        ):
            painter.drawText(below, Qt.AlignmentFlag.AlignCenter, self._text())
        painter.end()

    def _paint_bars(self, painter: QPainter, area: QRectF, shown: Histogram) -> None:
        now, most = theme.current(), max(shown.counts)
        painter.fillRect(area, now.plot)
        painter.setPen(Qt.PenStyle.NoPen)
        wide = area.width() / len(shown.counts)
        for number, count in enumerate(shown.counts):
            if count:
                tall = max(area.height() * count / most, 1.0)
                bar = QRectF(
                    area.left() + number * wide,
                    area.bottom() - tall,
                    max(wide - 1, 1),
                    tall,
                )
                painter.fillRect(bar, now.series[0])
        if shown.low < 0 < shown.high:
            zero = area.left() - shown.low / (shown.high - shown.low) * area.width()
            painter.setPen(now.line3)
            painter.drawLine(
                round(zero), round(area.top()), round(zero), round(area.bottom())
            )
