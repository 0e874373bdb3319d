"""A plot over the steps of a run: the layers that are painted, the curves among them, axes and mouse interaction."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from math import isfinite
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import pyqtgraph as pg
from PySide6.QtCore import QPointF, QRectF, Qt, Signal
from PySide6.QtGui import (
    QColor,
    QFontMetricsF,
    QMouseEvent,
    QPainter,
    QPainterPath,
    QPaintEvent,
    QPen,
)
from PySide6.QtWidgets import (
    QGraphicsObject,
    QSizePolicy,
)

from app.views.training.charts import series, ticks
from app.views.training.charts.axis import FigureAxis, Scale
from app.views.training.charts.readout import Readout, Row
from app.views.training.charts.series import Floats, Series
from app.views.ui import theme
from app.views.ui.widgets.painting import Drawn

FLAG = 4.0  # pixels: half the width of the triangle at a marked step
LABEL_GAP = 4  # pixels between a line and its label
EPOCH_ROOM = 58  # pixels between two lines of epochs: a label goes there
LABEL_OUTLINE = (
    3  # pixels around and between the letters of a label that lies over curves
)
CUT_ROOM = 120  # pixels of the label of a cut, at most
FAR = 10_000.0  # pixels outside of the view that a line is drawn to at most: the rasteriser counts in 32 bits
ALONE = 6.0  # pixels across a single value, which makes no line
CLEAR = 0.62  # the least opacity in a theme of high contrast
DOT = 3.0  # pixels: the radius of a point of a curve of few values


class CutLine(NamedTuple):
    """A line where the net of a run was edited: its x, what was edited, and the series of a run beside, else -1."""

    x: float
    text: str
    series: int = -1


class PlotLayer(Drawn, QGraphicsObject):
    """An item that covers the view, painted in its pixels."""

    def __init__(self, plot: StepPlot, z: float) -> None:
        super().__init__(plot.view)
        self._plot = plot
        self.setZValue(z)
        self.setAcceptedMouseButtons(Qt.MouseButton.NoButton)
        plot.view.sigResized.connect(self._resized)

    def _resized(self, _view: object) -> None:
        self.prepareGeometryChange()

    def boundingRect(self) -> QRectF:
        return self._plot.view.rect()

    def column(self, x: float) -> float:
        """Return the pixel of an x of the view."""
        rect, (low, high) = self.boundingRect(), self._plot.view.viewRange()[0]
        return rect.left() + (x - low) / (high - low) * rect.width()

    def row(self, y: float) -> float:
        """Return the pixel of a y of the view."""
        rect, (low, high) = self.boundingRect(), self._plot.view.viewRange()[1]
        return rect.bottom() - (y - low) / (high - low) * rect.height()

    def draw_upright(self, painter: QPainter, x: float) -> None:
        """Draw a line from top to bottom at a whole pixel."""
        rect, column = self.boundingRect(), round(x)
        painter.drawLine(QPointF(column, rect.top()), QPointF(column, rect.bottom()))

    def restyle(self) -> None:
        """Take colours from the theme in force."""


class EpochLine(NamedTuple):
    """The line at the end of an epoch: its pixel, and the label of the next epoch with its own, "" without room."""

    place: int
    label: str
    label_at: float


class Backdrop(PlotLayer):
    """The grid, a dashed line at the end of each epoch and at each manual change of the run, and a solid one where its
    net was edited.
    """

    def __init__(self, plot: StepPlot) -> None:
        super().__init__(plot, -10_000)
        self._epochs: Sequence[float] = ()
        self._marks: tuple[float, ...] = ()
        self._flags: tuple[float, ...] = ()
        self.cuts: tuple[CutLine, ...] = ()

    def set_cuts(self, cuts: Sequence[CutLine]) -> None:
        """Set the lines where the net was edited."""
        if tuple(cuts) != self.cuts:
            self.cuts = tuple(cuts)
            self.update()

    def set_epochs(self, ends: Sequence[float]) -> None:
        if len(ends) != len(self._epochs) or (
            len(ends) and ends[-1] != self._epochs[-1]
        ):
            self._epochs = list(ends)
            self.update()

    def set_marks(self, positions: Sequence[float]) -> None:
        """Set the positions of manual changes."""
        if tuple(positions) != self._marks:
            self._marks = tuple(positions)
            self.update()

    def set_flags(self, positions: Sequence[float]) -> None:
        """Set the positions of steps at which a watch point held or the loss was not finite."""
        if tuple(positions) != self._flags:
            self._flags = tuple(positions)
            self.update()

    def _paint_flags(
        self, painter: QPainter, rect: QRectF, x0: float, x1: float
    ) -> None:
        """Paint a small triangle on the x axis for each, those at the very edge whole."""
        if not self._flags:
            return
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(theme.current().error)
        shown = {round(self.column(x)) for x in self._flags if x0 <= x <= x1}
        for flag_x in shown:
            at = min(max(flag_x, rect.left() + FLAG), rect.right() - FLAG)
            corners = [
                QPointF(at - FLAG, rect.bottom()),
                QPointF(at + FLAG, rect.bottom()),
                QPointF(at, rect.bottom() - 2 * FLAG),
            ]
            painter.drawPolygon(corners)

    def draw(self, painter: QPainter) -> None:
        plot, now = self._plot, theme.current()
        rect = self.boundingRect()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, False)
        painter.setPen(QPen(now.line, 1))
        (x0, x1), (y0, y1) = plot.view.viewRange()
        for y in plot.left.ticks(y0, y1, rect.height())[1] if plot.grid_y else ():
            level = round(self.row(y))
            painter.drawLine(QPointF(rect.left(), level), QPointF(rect.right(), level))
        for x in plot.bottom.ticks(x0, x1, rect.width())[1] if plot.grid_x else ():
            self.draw_upright(painter, self.column(x))
        pen = QPen(now.line3, 1)
        pen.setDashPattern([2, 3])
        painter.setPen(pen)
        for line in self.epoch_lines():
            self.draw_upright(painter, line.place)
        pen = QPen(now.warn, 1)
        pen.setDashPattern([4, 3])
        painter.setPen(pen)
        for x in self._marks:
            if x0 <= x <= x1:
                self.draw_upright(painter, self.column(x))
        self._paint_flags(painter, rect, x0, x1)
        self._paint_cuts(painter, rect, x0, x1)

    def _paint_cuts(
        self, painter: QPainter, rect: QRectF, x0: float, x1: float
    ) -> None:
        """Paint the lines of the cuts, each with as much of its text as there is room for before the next."""
        now = theme.current()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, False)
        painter.setFont(theme.font("axis"))
        metrics = QFontMetricsF(painter.font())
        positions = [round(self.column(cut.x)) for cut in self.cuts]
        for cut, line_x in zip(self.cuts, positions, strict=True):
            if not x0 <= cut.x <= x1:
                continue
            painter.setPen(
                QPen(
                    now.accent
                    if cut.series < 0
                    else theme.faded(now.series[cut.series], 0.6),
                    1,
                )
            )
            self.draw_upright(painter, line_x)
            end = min([other for other in positions if other > line_x] + [rect.right()])
            room = min(end - line_x - 8, CUT_ROOM)
            if room > metrics.averageCharWidth() * 6:
                text = metrics.elidedText(cut.text, Qt.TextElideMode.ElideRight, room)
                painter.setPen(now.text2)
                painter.drawText(
                    QPointF(
                        line_x + 4, rect.top() + metrics.height() + metrics.ascent() + 2
                    ),
                    text,
                )

    def cuts_near(self, x: float, pixels: float) -> list[CutLine]:
        """Return the cuts within a number of pixels of an x."""
        low, high = self._plot.view.viewRange()[0]
        reach = pixels * (high - low) / max(self._plot.view.width(), 1)
        return [cut for cut in self.cuts if abs(cut.x - x) <= reach]

    def epoch_lines(self) -> list[EpochLine]:
        """Return the lines at the ends of epochs, as many as fit.

        Each is labelled with the epoch that begins there, the first as "epoch 5", the others by the number alone; at
        the right edge the label is left of its line.
        """
        rect, (x0, x1) = self.boundingRect(), self._plot.view.viewRange()[0]
        if len(self._epochs) < 2 or not self._plot.show_epochs:
            return []
        apart = (
            (self._epochs[-1] - self._epochs[0])
            / (len(self._epochs) - 1)
            / (x1 - x0)
            * rect.width()
        )
        metrics, lines, free = (
            QFontMetricsF(theme.font("axis")),
            list[EpochLine](),
            rect.left(),
        )
        longest = metrics.horizontalAdvance(f"epoch {len(self._epochs):,}")
        room = max(EPOCH_ROOM, longest + 2 * LABEL_GAP)
        every = max(1, round(ticks.nice_step(room / max(apart, 1e-6), 1)))
        for index in range(max(every - 1, 1), len(self._epochs) + 1, every):
            end = self._epochs[index - 1]
            if not x0 <= end <= x1:
                continue
            line_x = round(self.column(end))
            label = f"{index + 1:,}" if lines else f"epoch {index + 1:,}"
            width = metrics.horizontalAdvance(label)
            at: float = line_x + LABEL_GAP
            if at + width >= rect.right():
                at = line_x - LABEL_GAP - width
                label = (
                    label if at > free and index < len(self._epochs) else ""
                )  # no epoch may follow the last one
            free = max(free, at + width + LABEL_GAP if label else 0.0)
            lines.append(EpochLine(line_x, label, at))
        return lines


class EpochLabels(PlotLayer):
    """The labels of the lines of epochs, above the curves and outlined by the background."""

    def __init__(self, plot: StepPlot) -> None:
        super().__init__(plot, 5_000)

    def draw(self, painter: QPainter) -> None:
        now = theme.current()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setFont(theme.font("axis"))
        painter.setPen(now.text3)
        baseline = (
            self.boundingRect().top() + QFontMetricsF(painter.font()).ascent() + 2
        )
        for line in self._plot.backdrop.epoch_lines():
            outline = QPainterPath()
            outline.addText(line.label_at, baseline, painter.font(), line.label)
            painter.strokePath(outline, QPen(now.plot, LABEL_OUTLINE))
            painter.drawText(QPointF(line.label_at, baseline), line.label)


class CursorLine(PlotLayer):
    """The line at the step that the pointer is on, in every chart at once, with a dot on each curve."""

    def __init__(self, plot: StepPlot) -> None:
        super().__init__(plot, 10_000)
        self._x: float | None = None
        self._dots: Sequence[tuple[float, QColor]] = ()

    def show_at(
        self, x: float | None, dots: Sequence[tuple[float, QColor]] = ()
    ) -> None:
        if (x, dots) != (self._x, self._dots):
            self._x, self._dots = x, dots
            self.update()

    def draw(self, painter: QPainter) -> None:
        if self._x is None:
            return
        now = theme.current()
        (x0, x1), (y0, y1) = self._plot.view.viewRange()
        if not x0 <= self._x <= x1:
            return
        line_x = self.column(self._x)
        painter.setPen(QPen(now.text2, 1))
        self.draw_upright(painter, line_x)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        for y, color in self._dots:
            if y0 <= y <= y1:
                painter.setPen(QPen(now.plot, 1.5))
                painter.setBrush(color)
                painter.drawEllipse(QPointF(line_x, self.row(y)), 4, 4)


class Curve(PlotLayer):
    """The line of a series, broken where it is not finite, and its points, ringed by the background; where those would
    touch, the last alone.

    It is computed in pixels when painted, and kept as a picture until it changes: the cursor moves over it. pyqtgraph's
    own item is transformed with the view's ranges, which costs more than the line itself and requests another repaint
    of the chart during a repaint.
    """

    def __init__(self, plot: StepPlot) -> None:
        super().__init__(plot, 0)
        self.series: Series | None = None
        self._x: Floats = np.empty(0)
        self._y: Floats = np.empty(0)
        plot.view.sigRangeChanged.connect(self._range_changed)

    def _range_changed(self, _view: object, _ranges: object, _changed: object) -> None:
        self.update()

    def show_series(self, of: Series, x: Floats, y: Floats) -> None:
        """Draw a series at points in the view's x and y, both of shape (points,)."""
        self.series = of
        self.setZValue(100 if of.dots else 0)
        self.restyle()
        self.set_points(x, y)

    def restyle(self) -> None:
        """Take the colour from the theme in force."""
        now, of = theme.current(), self.series
        if of is None:
            return
        self.color = now.series[of.color] if of.color >= 0 else now.text
        opacity = max(of.opacity, CLEAR) if now.contrast else of.opacity
        width = of.width * theme.manager().strokes
        self._pen = QPen(theme.faded(self.color, opacity), width)
        self._pen.setJoinStyle(Qt.PenJoinStyle.RoundJoin)
        if of.dashed:
            self._pen.setDashPattern([5, 3])
        self.update()

    def set_points(self, x: Floats, y: Floats) -> None:
        if len(x) or len(self._x):
            self._x, self._y = x, y
            modes = self.CacheMode
            few = self.series is None or self.series.dots
            mode = modes.NoCache if few else modes.DeviceCoordinateCache
            if self.cacheMode() != mode:
                self.setCacheMode(mode)
            self.update()

    def clear(self) -> None:
        self.series = None
        self.set_points(np.empty(0), np.empty(0))

    def points(self) -> tuple[Floats, Floats]:
        return self._x, self._y

    def draw(self, painter: QPainter) -> None:
        if self.series is None or not len(self._x):
            return
        rect = self.boundingRect()
        (x0, x1), (y0, y1) = self._plot.view.viewRange()
        if self.series.at_right:
            y0, y1 = self._plot.right.range
        scale = rect.height() / (y1 - y0)
        x = rect.left() + (self._x - x0) * (rect.width() / (x1 - x0))
        x = np.clip(x, -FAR, FAR)
        y = np.clip(rect.bottom() - (self._y - y0) * scale, -FAR, FAR)
        path = pg.arrayToQPath(x, y, connect="finite", finiteCheck=True)
        painter.setClipRect(rect)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, self.series.antialiased)
        if self.series.fill:
            floor = np.clip(rect.bottom() + y0 * scale, -FAR, FAR)
            below = pg.arrayToQPath(
                np.concatenate([x, x[[-1, 0]]]), np.concatenate([y, [floor, floor]])
            )
            painter.fillPath(below, theme.faded(self.color, self.series.fill))
        painter.setPen(self._pen)
        painter.drawPath(path)
        if len(x) == 1 and np.isfinite(y[0]):
            pen = QPen(self._pen.color(), ALONE)
            pen.setCapStyle(Qt.PenCapStyle.RoundCap)
            painter.setPen(pen)
            painter.drawPoint(QPointF(x[0], y[0]))
        if self.series.dots:
            painter.setClipping(False)
            inside = series.visible(self._x, x0, x1)
            self._paint_dots(painter, rect, x[inside], y[inside])

    def _paint_dots(
        self, painter: QPainter, rect: QRectF, x: Floats, y: Floats
    ) -> None:
        if len(x) > 1 and (x[-1] - x[0]) / (len(x) - 1) < 4 * DOT:
            x, y = x[-1:], y[-1:]
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(QPen(theme.current().plot, 1))
        painter.setBrush(self.color)
        around = rect.adjusted(-1, -1, 1, 1)
        for a, b in zip(x.tolist(), y.tolist(), strict=True):
            if isfinite(b) and around.contains(a, b):
                painter.drawEllipse(QPointF(a, b), DOT + 0.5, DOT + 0.5)


class StepView(pg.ViewBox):
    """Wheel and drag change the x range that all charts share; with Ctrl, or over the left axis, this chart's y range.

    `handled` is emitted when the user changed x, `clicked` with the point of a click, `menuWanted` with that of a click
    with the right button and the point of the screen.
    """

    handled = Signal()
    clicked = Signal(float, float)
    menuWanted = Signal(float, object)

    def __init__(self) -> None:
        super().__init__(enableMenu=False, defaultPadding=0.0)
        self.disableAutoRange()
        self.setMouseEnabled(x=True, y=True)
        self.free_y = False

    def wheelEvent(self, ev: Any, axis: int | None = None) -> None:
        if axis is None:
            axis = 1 if ev.modifiers() & Qt.KeyboardModifier.ControlModifier else 0
        super().wheelEvent(ev, axis)
        self._note(axis)

    def mouseDragEvent(self, ev: Any, axis: int | None = None) -> None:
        if axis is None and not self.free_y:
            axis = 0
        super().mouseDragEvent(ev, axis)
        self._note(axis)

    def mouseClickEvent(self, ev: Any) -> None:
        if ev.button() == Qt.MouseButton.LeftButton and not ev.double():
            ev.accept()
            position = self.mapSceneToView(ev.scenePos())
            self.clicked.emit(float(position.x()), float(position.y()))
        elif ev.button() == Qt.MouseButton.RightButton:
            ev.accept()
            self.menuWanted.emit(
                float(self.mapSceneToView(ev.scenePos()).x()), ev.screenPos().toPoint()
            )

    def _note(self, axis: int | None) -> None:
        if axis != 0:
            self.free_y = True
        if axis != 1:
            self.handled.emit()


class StepPlot(pg.GraphicsView):
    """A chart over the steps, independent of the run's data.

    `pointed(x)` follows the pointer, None when it leaves; a double click emits `double_clicked`.

    pyqtgraph's own plot makes two more axes, a title and a menu of fifty widgets, which take longer than all the rest.
    """

    pointed = Signal(object)
    double_clicked = Signal()
    grid_x = True
    grid_y = True
    show_epochs = True

    def __init__(self, left: FigureAxis | None = None, kind: Scale = "number") -> None:
        super().__init__()
        self.view = StepView()
        self.left = left or FigureAxis("left", kind)
        self.bottom, self.right = FigureAxis("bottom", "count"), FigureAxis("right")
        self.curves: list[Curve] = []
        self.omitted = False
        self.paint_seconds = 0.0
        self.pointer_y = 0.0  # of the view, where the pointer was last
        self._lay_out()
        self.backdrop = Backdrop(self)
        self.epoch_labels = EpochLabels(self)
        self.cursor_line = CursorLine(self)
        self.readout = Readout(self)
        self.setFrameShape(self.Shape.NoFrame)
        for widget in (self, self.viewport()):
            widget.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.setMinimumSize(90, 60)
        self.setMouseTracking(True)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        self.restyle()

    def _lay_out(self) -> None:
        """Put the axes left of the view and below it."""
        layout = self.centralLayout
        layout.setContentsMargins(0, 8, 14, 0)
        layout.setSpacing(0)
        layout.addItem(self.view, 0, 1)
        for axis, row, column in ((self.left, 0, 0), (self.bottom, 1, 1)):
            axis.linkToView(self.view)
            axis.setZValue(0.5)
            layout.addItem(axis, row, column)
        layout.setRowStretchFactor(0, 100)
        layout.setColumnStretchFactor(1, 100)

    def restyle(self) -> None:
        """Take colours and fonts from the theme in force."""
        now = theme.current()
        self.setBackground(now.panel)
        self.view.setBackgroundColor(now.plot)
        self.left.restyle()
        self.bottom.restyle()
        self.right.restyle()
        self.backdrop.update()
        self.readout.update()
        for curve in self.curves:
            curve.restyle()

    def set_x_range(self, low: float, high: float) -> None:
        if high > low and self.view.viewRange()[0] != [low, high]:
            self.view.setXRange(low, high, padding=0)

    def set_y_range(self, low: float, high: float) -> None:
        """Set the range of the curves, unless the user zoomed y."""
        if (
            not self.view.free_y
            and high > low
            and self.view.viewRange()[1] != [low, high]
        ):
            self.view.setYRange(low, high, padding=0)

    @property
    def pixels(self) -> int:
        """The width of the view."""
        return max(1, int(self.view.width()))

    def level(self, values: Floats) -> Floats:
        """Return values in the view's y; NaN for those that a log scale cannot show."""
        if self.left.kind != "log":
            return values
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.log10(np.where(values > 0, values, np.nan))

    def draw(self, shown: Sequence[Series]) -> Floats:
        """Draw what is in view of these series, in their order; return the finite levels of those on the left axis.

        `omitted` tells whether there are values that the log scale cannot show.
        """
        low, high = self.view.viewRange()[0]
        drawn = [of for of in shown if of.drawn]
        self.curves += [Curve(self) for _ in range(len(drawn) - len(self.curves))]
        self.omitted, levels, at_right = False, [np.empty(0)], [np.empty(0)]
        for curve, of in zip_longest(self.curves, drawn):
            if of is None:
                curve.clear()
                continue
            x = of.x
            window = series.visible(x, low, high)
            thinned = series.thin if of.mean else series.thin_peaks
            x, y = thinned(x[window], of.values[window], self.pixels // 2)
            curve.show_series(of, x, y if of.at_right else self.level(y))
            (at_right if of.at_right else levels).append(curve.points()[1])
            self.omitted |= self.left.kind == "log" and bool(np.any(y <= 0))
        self._show_right(_finite(at_right))
        return _finite(levels)

    def _show_right(self, levels: Floats) -> None:
        """Fit the right axis to the levels that are read on it; without any there is none."""
        is_there = self.right.parentLayoutItem() is not None
        if levels.size:
            self.right.setRange(
                *ticks.snapped(float(levels.min()), float(levels.max()))
            )
            if not is_there:
                self.centralLayout.addItem(self.right, 0, 2)
        elif is_there:
            self.centralLayout.removeItem(self.right)
            self.right.scene().removeItem(self.right)

    def show_readout(
        self, x: float, heading: str, note: str, rows: Sequence[Row]
    ) -> None:
        """Show values in a box beside an x of the view."""
        low, high = self.view.viewRange()[0]
        rect = self.view.sceneBoundingRect()
        at = rect.left() + (x - low) / (high - low) * rect.width()
        self.readout.show_at(at, heading, note, rows)

    def clear_cursor(self) -> None:
        self.cursor_line.show_at(None)
        self.readout.hide()

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        super().mouseMoveEvent(event)
        position = self.mapToScene(event.position().toPoint())
        rect = self.view.sceneBoundingRect()
        if rect.contains(position) and not event.buttons():
            inside = self.view.mapSceneToView(position)
            self.pointer_y = float(inside.y())
            self.pointed.emit(float(inside.x()))
        else:
            self.pointed.emit(None)

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        super().mouseDoubleClickEvent(event)
        if event.button() == Qt.MouseButton.LeftButton:
            event.accept()  # else the card around it takes it for its own
            self.double_clicked.emit()

    def leaveEvent(self, event: Any) -> None:
        super().leaveEvent(event)
        self.pointed.emit(None)

    def paintEvent(self, event: QPaintEvent) -> None:
        began = perf_counter()
        super().paintEvent(event)
        self.paint_seconds += perf_counter() - began


def _finite(levels: Sequence[Floats]) -> Floats:
    together = np.concatenate(levels)
    return together[np.isfinite(together)]
