"""Chart of the gradient gain from layer to layer, over the depth of the net."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from PySide6.QtCore import QPoint, QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import (
    QFocusEvent,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QPen,
)
from PySide6.QtWidgets import QWidget

from app.util.formatting import MINUS, figure
from app.util.language import marked, tr
from app.views.ui import theme
from app.views.ui.widgets.painting import TextLine, TipAt, box, elided, start

if TYPE_CHECKING:
    from app.autograd.diagnostics.gradient_gain import Ladder, Rung

LEFT, RIGHT, TOP, BOTTOM = 58, 18, 30, 26  # px around the plot
NAMES = 76  # px for a layer's name
DECADES = 14  # that are shown at most
LOST = {
    "vanishes": marked("vanishes at {layer}"),
    "explodes": marked("explodes at {layer}"),
    "non_finite": marked("not finite at {layer}"),
}


class GainChart(TipAt, QWidget):
    """One point per layer, from the input at the left to the loss: |grad in| / |grad out| on a log axis.

    A thin line shows the gradient norm relative to the last layer. `chosen(key)` is emitted with the group of
    a clicked point, or of the focused one on Enter.
    """

    chosen = Signal(str)

    def __init__(self) -> None:
        super().__init__()
        self._rungs: tuple[Rung, ...] = ()
        self._lost: dict[str, str] = {}
        self._at = -1
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setMouseTracking(True)
        self.setMinimumHeight(110)
        self.setAccessibleName(tr("Gain of each layer, |grad in| / |grad out|"))
        theme.manager().changed.connect(self.update)

    def set_ladder(self, ladder: Ladder | None) -> None:
        """Show another backward pass."""
        self._rungs = tuple(reversed(ladder.rungs)) if ladder is not None else ()
        self._lost = (
            {lost.key: lost.kind for lost in ladder.lost} if ladder is not None else {}
        )
        self._at = -1
        self._update_description()
        self.update()

    @property
    def rungs(self) -> tuple[Rung, ...]:
        """In forward order."""
        return self._rungs

    def sizeHint(self) -> QSize:
        return QSize(480, 170)

    # -- where things are ----------------------------------------------------------------------------------------------

    def _plot(self) -> QRectF:
        return QRectF(
            LEFT,
            TOP,
            max(self.width() - LEFT - RIGHT, 1),
            max(self.height() - TOP - BOTTOM, 1),
        )

    def _x(self, index: int) -> float:
        plot, count = self._plot(), len(self._rungs)
        return plot.left() + plot.width() * (index + 0.5) / max(count, 1)

    def _span(self) -> tuple[int, int]:
        """Return the lowest and highest decade of the axis."""
        values = [
            value
            for rung in self._rungs
            for value in (rung.gain, rung.reach)
            if _usable(value)
        ]
        logs = [math.log10(value) for value in values if value] or [0.0]
        low, high = math.floor(min([*logs, -0.5])), math.ceil(max([*logs, 0.5]))
        return max(low, high - DECADES), high

    def point_of(self, index: int) -> QPointF:
        """Return the position of a layer's point; at the bottom if its gradient ends there."""
        return QPointF(self._x(index), self._y(self._rungs[index].gain))

    def _lost_at(self, index: int) -> QPointF:
        """Return the position, on the line of the remaining gradient, of a layer where it vanishes or explodes."""
        return QPointF(self._x(index), self._y(self._rungs[index].reach))

    def _y(self, value: float | None) -> float:
        plot, (low, high) = self._plot(), self._span()
        log = (
            math.log10(value)
            if value and math.isfinite(value)
            else low
            if not value
            else high
        )
        share = (min(max(log, low), high) - low) / (high - low)
        return plot.bottom() - share * plot.height()

    # -- painting ------------------------------------------------------------------------------------------------------

    def paintEvent(self, event: QPaintEvent) -> None:
        colors = theme.current()
        painter = start(self)
        painter.fillRect(self.rect(), colors.plot)
        self._paint_axis(painter)
        self._paint_legend(painter)
        reach = QPen(colors.series[0], 1.25)
        self._paint_line(painter, [rung.reach for rung in self._rungs], reach)
        self._paint_line(
            painter, [rung.gain for rung in self._rungs], QPen(colors.back, 1.75)
        )
        few = len(self._rungs) <= max(self._plot().width() / 7, 1)
        for index, rung in enumerate(self._rungs):
            if rung.gain is None:
                continue
            lost = self._lost.get(rung.key)
            if few or lost or index == self._at:
                painter.setPen(Qt.PenStyle.NoPen)
                painter.setBrush(colors.error if lost else colors.back)
                size = 5.0 if index == self._at else 3.0
                painter.drawEllipse(self.point_of(index), size, size)
                if lost:
                    painter.drawEllipse(self._lost_at(index), 5.0, 5.0)
        self._paint_names(painter)
        self._paint_labels(painter)
        if self.hasFocus():
            box(
                painter,
                QRectF(self.rect()).adjusted(1, 1, -1, -1),
                4,
                line=colors.accent,
                width=1.5,
            )
        painter.end()

    def _paint_axis(self, painter: QPainter) -> None:
        colors, plot, (low, high) = theme.current(), self._plot(), self._span()
        step = max(1, math.ceil((high - low) * 20 / plot.height()))
        for power in range(low, high + 1):
            if power % step and power:
                continue
            y = self._y(10.0**power)
            painter.setPen(
                QPen(
                    colors.line3 if power == 0 else colors.line,
                    1,
                    Qt.PenStyle.DashLine if power == 0 else Qt.PenStyle.SolidLine,
                )
            )
            painter.drawLine(QPointF(plot.left(), y), QPointF(plot.right(), y))
            text = TextLine(f"{10.0**power:g}".replace("-", MINUS), "axis")
            text.draw(painter, LEFT - 8 - text.width, y - text.height / 2, colors.text3)

    def _paint_legend(self, painter: QPainter) -> None:
        colors, x = theme.current(), float(LEFT)
        for caption, color in (
            (tr("gain of the layer, |grad in| / |grad out|"), colors.back),
            (tr("gradient norm relative to the last layer"), colors.series[0]),
        ):
            text = TextLine(caption, "caption")
            painter.setPen(QPen(color, 2))
            painter.drawLine(QPointF(x, 13), QPointF(x + 16, 13))
            text.draw(painter, x + 22, 13 - text.height / 2, colors.text3)
            x += text.width + 46

    def _paint_line(
        self, painter: QPainter, values: list[float | None], pen: QPen
    ) -> None:
        painter.setPen(pen)
        before: QPointF | None = None
        for index, value in enumerate(values):
            here = None if value is None else QPointF(self._x(index), self._y(value))
            if before is not None and here is not None:
                painter.drawLine(before, here)
            before = here

    def _paint_names(self, painter: QPainter) -> None:
        """Paint as many names as fit."""
        colors, plot, count = theme.current(), self._plot(), len(self._rungs)
        if not count:
            return
        step = max(1, math.ceil(count * NAMES / plot.width()))
        room = plot.width() / count * step - 8
        for index in range(0, count, step):
            text = elided(self._rungs[index].title, "axis", room)
            x = min(
                max(self._x(index) - text.width / 2, 2), self.width() - text.width - 2
            )
            color = (
                colors.text
                if index == self._at
                else colors.error
                if self._rungs[index].key in self._lost
                else colors.text3
            )
            text.draw(painter, x, plot.bottom() + 7, color)

    def _paint_labels(self, painter: QPainter) -> None:
        """Beside the first layer of each kind what happens there."""
        colors, plot = theme.current(), self._plot()
        for index, rung in enumerate(self._rungs):
            if kind := self._lost.get(rung.key):
                text = TextLine(tr(LOST[kind], layer=rung.title), "caption")
                point = self._lost_at(index)
                x = (
                    point.x() + 9
                    if point.x() + 9 + text.width < plot.right()
                    else point.x() - 9 - text.width
                )
                below = (
                    kind == "vanishes" and point.y() + text.height + 4 < plot.bottom()
                )
                y = (
                    point.y() + 3
                    if below
                    else max(point.y() - text.height - 3, plot.top())
                )
                text.draw(painter, x, y, colors.error)

    # -- gestures ------------------------------------------------------------------------------------------------------

    def _near(self, x: float) -> int:
        if not self._rungs:
            return -1
        plot = self._plot()
        return min(
            max(int((x - plot.left()) / plot.width() * len(self._rungs)), 0),
            len(self._rungs) - 1,
        )

    def description_of(self, index: int) -> str:
        """Return the values of a layer as a few lines."""
        rung = self._rungs[index]
        return "\n".join(
            [
                rung.title,
                tr(
                    "|grad out| {arriving}, |grad in| {leaving}: gain {gain}",
                    arriving=figure(rung.arriving),
                    leaving=figure(rung.leaving),
                    gain=figure(rung.gain),
                ),
                tr("parameter gradients {norm}", norm=figure(rung.parameters)),
                tr("{share} of the norm at the last layer", share=figure(rung.reach)),
            ]
        )

    def tip_at(self, at: QPoint) -> str:
        return self.description_of(self._near(at.x())) if self._rungs else ""

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        self._move_to(self._near(event.position().x()))

    def mousePressEvent(self, event: QMouseEvent) -> None:
        index = self._near(event.position().x())
        if event.button() == Qt.MouseButton.LeftButton and index >= 0:
            self._move_to(index)
            self.chosen.emit(self._rungs[index].key)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        steps = {
            Qt.Key.Key_Left: -1,
            Qt.Key.Key_Right: 1,
            Qt.Key.Key_Home: -len(self._rungs),
            Qt.Key.Key_End: len(self._rungs),
        }
        if event.key() in steps and self._rungs:
            self._move_to(
                min(max(self._at + steps[Qt.Key(event.key())], 0), len(self._rungs) - 1)
            )
        elif (
            event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter, Qt.Key.Key_Space)
            and self._at >= 0
        ):
            self.chosen.emit(self._rungs[self._at].key)
        else:
            super().keyPressEvent(event)

    def focusInEvent(self, event: QFocusEvent) -> None:
        super().focusInEvent(event)
        self.update()

    def _move_to(self, index: int) -> None:
        if index != self._at:
            self._at = index
            self._update_description()
            self.update()

    def _update_description(self) -> None:
        self.setAccessibleDescription(
            self.description_of(self._at) if self._at >= 0 else ""
        )


def _usable(value: float | None) -> bool:
    return value is not None and value > 0 and math.isfinite(value)
