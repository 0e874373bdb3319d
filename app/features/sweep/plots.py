"""Pictures of a sweep's trials: history, parallel coordinates, importance, slices, and what accuracy costs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

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

from app.features.sweep.values import SweepTable, TrialRow, text_of
from app.util.formatting import bytes_text, figure
from app.views.training.charts import ticks
from app.views.ui import theme
from app.views.ui.widgets.painting import start

KINDS = {
    "history": "History",
    "parallel": "Parallel",
    "importance": "Importance",
    "slices": "Slices",
    "pareto": "Cost",
}
COSTS = {
    "parameters": "Parameters",
    "bytes": "Bytes of a checkpoint",
    "milliseconds": "Milliseconds of a step",
}
DOT, GAP, NEAR = 3.5, 14, 10.0  # px
TICK_ROOM = 62  # px of a label along an axis
TONES = {"done": 0, "pruned": 1, "failed": 3, "running": 2}  # of the theme's series


class Axis(Struct, frozen=True):
    """Places values between 0 and 1: numbers from `low` to `high`, by their logarithm if `log`, else `words` evenly."""

    title: str
    low: float = 0.0
    high: float = 1.0
    log: bool = False
    words: tuple[str, ...] = ()

    def at(self, value: Any) -> float | None:
        """Return the place of a value; None for one that has none.

        >>> Axis("lr", 1e-4, 1e-2, True).at(1e-3), Axis("name", words=("a", "b", "c")).at("b")
        (0.5, 0.5)
        """
        if self.words:
            count = len(self.words)
            text = str(value)
            if text not in self.words:
                return None
            return self.words.index(text) / (count - 1) if count > 1 else 0.5
        if not isinstance(value, int | float) or not math.isfinite(value):
            return None
        low, high, value = (
            (math.log10(each) if each > 0 else -math.inf) if self.log else each
            for each in (self.low, self.high, value)
        )
        place = (value - low) / (high - low) if high > low else 0.5
        return float(place) if math.isfinite(place) else None

    def ticks(self, most: int) -> list[tuple[float, str]]:
        """Return places and labels."""
        if self.words:
            return [(self.at(word) or 0.0, word) for word in self.words]
        if not self.high > self.low:
            return [(0.5, figure(self.low))]
        if self.log:
            low, high = math.log10(self.low), math.log10(self.high)
            marks = ticks.log_ticks(low, high, max(most, 2))
            return [((e - low) / (high - low), ticks.log_tick(e)) for e in marks]
        step = ticks.nice_step(self.high - self.low, max(most, 2))
        first, last = math.ceil(self.low / step), math.floor(self.high / step)
        levels = [number * step for number in range(first, last + 1)]
        largest = max(abs(self.low), abs(self.high))
        return [(self.at(v) or 0.0, ticks.tick(v, step, largest)) for v in levels]


def axis_of(title: str, values: Sequence[Any], log: bool | None = None) -> Axis:
    """Return the axis of some values; by their logarithm if they span a factor of 30, unless it is given."""
    if any(not isinstance(v, int | float) or isinstance(v, bool) for v in values):
        return Axis(title, words=tuple(sorted({str(v) for v in values})))
    numbers = [float(v) for v in values if math.isfinite(v)]
    low, high = min(numbers, default=0.0), max(numbers, default=1.0)
    log = low > 0 and (high / low > 30 if log is None else log)
    room = 0.0 if log else 0.04 * (high - low)
    return Axis(title, low - room, high + room, log)


class SweepPlot(QWidget):
    """One picture of the trials of a sweep. `chosen(number)` is a click on a trial."""

    chosen = Signal(int)

    def __init__(self) -> None:
        super().__init__()
        self.kind, self.cost = "history", "parameters"
        self.table: SweepTable | None = None
        self.marked = -1  # the trial that is chosen in the table
        self._places: list[tuple[QPointF, TrialRow]] = []
        self.setMouseTracking(True)
        self.setMinimumSize(QSize(220, 120))
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)

    def show_table(self, table: SweepTable | None) -> None:
        self.table = table
        self._changed()

    def show_kind(self, kind: str) -> None:
        self.kind = kind
        self._changed()

    def show_cost(self, cost: str) -> None:
        """Show accuracy against another cost."""
        self.cost = cost
        self._changed()

    def mark(self, number: int) -> None:
        """Mark a trial."""
        self.marked = number
        self.update()

    def _changed(self) -> None:
        self.setAccessibleName(f"{KINDS[self.kind]} of the sweep")
        best = min(self._measured, key=lambda row: row.value or 0.0, default=None)
        self.setAccessibleDescription(
            f"{len(self._measured)} trials; the best is {text_of(best.values)}"
            if best is not None
            else "no trial has ended"
        )
        self.update()

    @property
    def _measured(self) -> list[TrialRow]:
        trials = self.table.trials if self.table is not None else ()
        return [row for row in trials if row.value is not None]

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = start(self)
        painter.setFont(theme.font("axis"))
        self._places = []
        rows = self._measured
        area = QRectF(self.rect()).adjusted(6, 6, -6, -6)
        paint: dict[str, Callable[[QPainter, QRectF, list[TrialRow]], str]] = {
            "history": self._history,
            "parallel": self._parallel,
            "importance": self._importance,
            "slices": self._slices,
            "pareto": self._pareto,
        }
        lacking = (
            paint[self.kind](painter, area, rows) if rows else "No trial has ended yet"
        )
        if lacking:
            painter.setPen(theme.current().text3)
            painter.drawText(area, Qt.AlignmentFlag.AlignCenter, lacking)
        painter.end()

    # -- the pictures -------------------------------------------------------------------------------------------------

    def _history(self, painter: QPainter, area: QRectF, rows: list[TrialRow]) -> str:
        losses = axis_of("validation loss", [row.value for row in rows])
        numbers = Axis("trial", -0.5, max(row.number for row in rows) + 0.5)
        best, steps = math.inf, list[tuple[Any, Any]]()
        for row in rows:
            if row.state == "done" and (row.value or 0.0) < best:
                best = row.value or 0.0
            if best < math.inf:
                steps.append((row.number, best))
        points = [(row.number, row.value, row) for row in rows]
        self._scatter(painter, area, numbers, losses, points, steps)
        return ""

    def _slices(self, painter: QPainter, area: QRectF, rows: list[TrialRow]) -> str:
        axes = self._axes(rows)
        if not axes:
            return "No setting varies"
        losses = axis_of("validation loss", [row.value for row in rows])
        columns = min(len(axes), max(1, int(area.width() // 150)))
        lines = math.ceil(len(axes) / columns)
        for index, axis in enumerate(axes):
            across, down = area.width() / columns, area.height() / lines
            place = QRectF(
                area.left() + index % columns * across,
                area.top() + index // columns * down,
                across - GAP * (columns > 1),
                down - 4 * (lines > 1),
            )
            points = [
                (row.values[axis.title], row.value, row)
                for row in rows
                if axis.title in row.values
            ]
            self._scatter(painter, place, axis, losses, points)
        return ""

    def _pareto(self, painter: QPainter, area: QRectF, rows: list[TrialRow]) -> str:
        measured = [row for row in rows if getattr(row, self.cost) is not None]
        scored = [row for row in measured if row.accuracy is not None]
        shown, score, sign = (
            (scored, "accuracy", -1) if scored else (measured, "value", 1)
        )
        if not shown:
            return "No trial has measured this cost"
        points = [(getattr(row, self.cost), getattr(row, score), row) for row in shown]
        front, reached = list[tuple[Any, Any]](), math.inf
        for cost, value, _ in sorted(points, key=lambda p: (p[0], sign * p[1])):
            if sign * value < reached:
                reached = sign * value
                front.append((cost, value))
        across = axis_of(COSTS[self.cost], [point[0] for point in points])
        title = "validation accuracy" if scored else "validation loss"
        upward = axis_of(title, [point[1] for point in points], False)
        self._scatter(painter, area, across, upward, points, front)
        return ""

    def _importance(self, painter: QPainter, area: QRectF, rows: list[TrialRow]) -> str:
        shares = self.table.importance if self.table is not None else {}
        if not shares:
            return "More trials must end before the settings can be compared"
        now, metrics = theme.current(), QFontMetricsF(painter.font())
        left = max(map(metrics.horizontalAdvance, shares)) + 10
        high = min(area.height() / len(shares), metrics.height() + 16)
        for index, (name, share) in enumerate(shares.items()):
            line = QRectF(area.left(), area.top() + index * high, area.width(), high)
            painter.setPen(now.text2)
            painter.drawText(line, Qt.AlignmentFlag.AlignVCenter, name)
            bar = line.adjusted(left, 5, -44, -5)
            painter.fillRect(bar, now.plot)
            bar.setWidth(max(bar.width() * share, 1.0))
            painter.fillRect(bar, now.series[0])
            painter.setPen(now.text)
            painter.drawText(
                line,
                Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignRight,
                f"{share:.0%}",
            )
        return ""

    def _parallel(self, painter: QPainter, area: QRectF, rows: list[TrialRow]) -> str:
        loss = axis_of("loss", [row.value for row in rows])
        axes = [*self._axes(rows), loss]
        now, metrics = theme.current(), QFontMetricsF(painter.font())
        inner = area.adjusted(30, metrics.height() + 8, -30, -8)
        gap = inner.width() / max(len(axes) - 1, 1)
        ranked = sorted(rows, key=lambda row: row.value or 0.0, reverse=True)
        for rank, row in enumerate(ranked):
            places = [
                (
                    index,
                    axis.at(row.value if axis is loss else row.values.get(axis.title)),
                )
                for index, axis in enumerate(axes)
            ]
            line = [
                QPointF(
                    inner.left() + index * gap, inner.bottom() - at * inner.height()
                )
                for index, at in places
                if at is not None
            ]
            color = QColor(now.series[0 if row.state == "done" else 1])
            best = rank == len(ranked) - 1 or row.number == self.marked
            color.setAlphaF(1.0 if best else 0.12 + 0.5 * rank / len(ranked))
            painter.setPen(QPen(color, 2.5 if best else 1.2))
            painter.drawPolyline(QPolygonF(line))
            self._places += [(point, row) for point in line]
        for index, axis in enumerate(axes):
            x = inner.left() + index * gap
            painter.setPen(QPen(now.line, 1))
            painter.drawLine(QPointF(x, inner.top()), QPointF(x, inner.bottom()))
            self._outlined(painter, QPointF(x, area.top()), axis.title, now.text2, gap)
            for at, text in axis.ticks(max(2, int(inner.height() // 34))):
                y = inner.bottom() - at * inner.height() - metrics.height() / 2
                self._outlined(painter, QPointF(x, y), text, now.text3, gap)
        return ""

    def _outlined(
        self, painter: QPainter, at: QPointF, text: str, color: QColor, room: float
    ) -> None:
        """Write a label amid lines, centred below a point."""
        metrics = QFontMetricsF(painter.font())
        shown = metrics.elidedText(
            text, Qt.TextElideMode.ElideMiddle, max(room - 6, 44)
        )
        width = metrics.horizontalAdvance(shown) + 4
        left = min(max(at.x() - width / 2, 0.0), self.width() - width)
        place = QRectF(left, at.y(), width, metrics.height())
        ground = QColor(theme.current().panel)
        ground.setAlphaF(0.8)
        painter.fillRect(place, ground)
        painter.setPen(color)
        painter.drawText(place, Qt.AlignmentFlag.AlignCenter, shown)

    def _axes(self, rows: list[TrialRow]) -> list[Axis]:
        """Return an axis for each setting that varies between the trials."""
        assert self.table is not None
        axes = []
        for setting in self.table.search.settings:
            values = [r.values[setting.name] for r in rows if setting.name in r.values]
            if len({repr(value) for value in values}) > 1:
                log = setting.log if setting.bounds is not None else None
                axes.append(axis_of(setting.name, values, log))
        return axes

    def _scatter(
        self,
        painter: QPainter,
        area: QRectF,
        across: Axis,
        upward: Axis,
        points: Sequence[tuple[Any, Any, TrialRow]],
        line: Sequence[tuple[Any, Any]] = (),
    ) -> None:
        """Paint trials as points between two axes, and steps through `line`."""
        now, metrics = theme.current(), QFontMetricsF(painter.font())
        high = metrics.height()
        levels = upward.ticks(max(2, int(area.height() // 30)))
        left = (
            max((metrics.horizontalAdvance(text) for _, text in levels), default=0) + 8
        )
        inner = area.adjusted(left, high + 4, -6, -2 * high - 8)
        painter.setPen(QPen(now.line, 1))
        painter.setBrush(now.plot)
        painter.drawRect(inner)
        middle = Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignRight
        centre = Qt.AlignmentFlag.AlignCenter
        painter.setPen(now.text3)
        for at, text in levels:
            y = inner.bottom() - at * inner.height()
            painter.drawText(
                QRectF(area.left(), y - high / 2, left - 5, high), middle, text
            )
        for at, text in across.ticks(max(2, int(inner.width() // TICK_ROOM))):
            x = min(inner.left() + at * inner.width(), area.right() - TICK_ROOM / 2)
            box = QRectF(x - TICK_ROOM / 2, inner.bottom() + 3, TICK_ROOM, high)
            label = bytes_text(round(across.low + at * (across.high - across.low)))
            shown = label if across.title == COSTS["bytes"] and not across.log else text
            painter.drawText(box, centre, shown)
        painter.setPen(now.text2)
        below = QRectF(inner.left(), inner.bottom() + high + 4, inner.width(), high)
        painter.drawText(below, centre, across.title)
        painter.drawText(
            QPointF(area.left(), area.top() + metrics.ascent()), upward.title
        )

        def place(x: Any, y: Any) -> QPointF | None:
            right, up = across.at(x), upward.at(y)
            if right is None or up is None:
                return None
            return QPointF(
                inner.left() + right * inner.width(),
                inner.bottom() - up * inner.height(),
            )

        corners = list[QPointF]()
        for x, y in line:
            if (point := place(x, y)) is not None:
                if corners:
                    corners.append(QPointF(point.x(), corners[-1].y()))
                corners.append(point)
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.setPen(QPen(now.series[2], 1.5))
        painter.drawPolyline(QPolygonF(corners))
        for x, y, row in points:
            if (point := place(x, y)) is None:
                continue
            marked = row.number == self.marked
            painter.setPen(QPen(now.text, 1.5) if marked else Qt.PenStyle.NoPen)
            painter.setBrush(now.series[TONES.get(row.state, 0)])
            painter.drawEllipse(point, DOT + 2 * marked, DOT + 2 * marked)
            self._places.append((point, row))

    # -- the pointer --------------------------------------------------------------------------------------------------

    def trial_at(self, at: QPointF) -> TrialRow | None:
        """Return the trial that is painted near a point."""
        near = [
            ((place - at).manhattanLength(), index)
            for index, (place, _) in enumerate(self._places)
        ]
        distance, index = min(near, default=(math.inf, 0))
        return self._places[index][1] if distance <= NEAR else None

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        row = self.trial_at(event.position())
        if row is None:
            QToolTip.hideText()
            return
        text = f"Trial {row.number}, loss {figure(row.value)}\n{text_of(row.values)}"
        QToolTip.showText(event.globalPosition().toPoint(), text, self)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        row = self.trial_at(event.position())
        if row is not None:
            self.chosen.emit(row.number)
