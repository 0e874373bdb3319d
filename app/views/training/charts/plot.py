"""A plot over the steps of a run: view, layers behind and above the curves, mouse interaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isfinite
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np
from PySide6.QtCore import QEvent, QObject, QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QColor, QFontMetricsF, QMouseEvent, QPainter, QPaintEvent, QPen, QResizeEvent, QWheelEvent
from PySide6.QtWidgets import QApplication, QSizePolicy, QWidget

from app.util.late_dataclass import dataclass
from app.views.training.charts import series
from app.views.training.charts.axis import FigureAxis, Scale
from app.views.training.charts.readout import Readout
from app.views.ui import theme

if TYPE_CHECKING:
    from app.views.training.charts.curve import Curve

EPOCH_ROOM = 58  # pixels between two lines of epochs: a label goes there
ROOM_ABOVE, ROOM_RIGHT = 8, 14  # pixels beside the view
WHEEL = 0.743  # of a range is left by one click of the wheel
RIGHT = 1.02  # times the range, by a pixel of a drag with the right button
FINEST = 3e-15  # of a value: a narrower range would have hardly any floats in it


@dataclass
class Drag:
    """A pressed button, and what is moved by it."""

    button: Qt.MouseButton
    start: QPointF
    last: QPointF
    axes: tuple[int, ...]
    moved: bool = False


class StepView(QObject):
    """The part of the plane that a plot shows, and its place among the plot's pixels.

    `handled` is emitted when the user changed x, `clicked` with the point of a click, `resized` with another size.
    """

    handled = Signal()
    clicked = Signal(float, float)
    resized = Signal()

    def __init__(self, plot: StepPlot) -> None:
        super().__init__(plot)
        self._plot = plot
        self._rect = QRectF(0, 0, 1, 1)
        self._ranges = [[0.0, 1.0], [0.0, 1.0]]
        self._zooms = (True, True)
        self.free_y = False

    def ranges(self) -> tuple[list[float], list[float]]:
        """Return the ends of x and those of y."""
        x, y = self._ranges
        return list(x), list(y)

    def rect(self) -> QRectF:
        """Return the place in the plot, in pixels."""
        return QRectF(self._rect)

    def set_rect(self, rect: QRectF) -> None:
        if rect != self._rect:
            self._rect = rect
            self.resized.emit()

    def set_range(self, axis: int, low: float, high: float) -> None:
        """Show x (axis 0) or y (1) from `low` to `high`, or a little more where floats hardly tell the ends apart."""
        finest = FINEST * max(abs(low), abs(high))
        if high - low < finest:
            low, high = low - finest, high + finest
        if isfinite(high - low) and high > low and self._ranges[axis] != [low, high]:
            self._ranges[axis] = [low, high]
            self._plot.update()

    def set_zoomable(self, *, x: bool, y: bool) -> None:
        """Let the mouse change x and y, or not."""
        self._zooms = (x, y)

    def zooms(self, axes: Sequence[int]) -> list[int]:
        """Return those of the axes that the mouse may change."""
        return [axis for axis in axes if self._zooms[axis]]

    def at(self, place: QPointF) -> tuple[float, float]:
        """Return x and y at a pixel of the plot."""
        (x0, x1), (y0, y1) = self._ranges
        rect = self._rect
        x = x0 + (place.x() - rect.left()) / rect.width() * (x1 - x0)
        return x, y0 + (rect.bottom() - place.y()) / rect.height() * (y1 - y0)

    def scale(self, axes: Sequence[int], factors: tuple[float, float], centre: QPointF) -> None:
        """Multiply what is shown of these axes by their factors, round a pixel."""
        fixed = self.at(centre)
        self._handle(axes, lambda axis, end: fixed[axis] + (end - fixed[axis]) * factors[axis])

    def move(self, axes: Sequence[int], pixels: QPointF) -> None:
        """Move the plane along these axes, with the pointer."""
        before, after = self.at(QPointF(0, 0)), self.at(pixels)
        self._handle(axes, lambda axis, end: end - (after[axis] - before[axis]))

    def _handle(self, axes: Sequence[int], moved: Callable[[int, float], float]) -> None:
        for axis in axes:
            low, high = self._ranges[axis]
            self.set_range(axis, moved(axis, low), moved(axis, high))
        if 1 in axes:
            self.free_y = True
        if 0 in axes:
            self.handled.emit()


class PlotLayer:
    """What is painted over the view, in its pixels; those of a higher `z` over the others."""

    def __init__(self, plot: StepPlot, z: float) -> None:
        self._plot = plot
        self.z = z
        plot.add_layer(self)

    def update(self) -> None:
        """Have it painted again."""
        self._plot.update()

    def rect(self) -> QRectF:
        """Return the view in its own pixels."""
        return QRectF(QPointF(0, 0), self._plot.view.rect().size())

    def paint(self, painter: QPainter) -> None:
        """Paint; whatever is set of the painter is put back afterwards."""
        raise NotImplementedError


class Backdrop(PlotLayer):
    """The grid, a dashed line at the end of each epoch, and one at each manual change of the run."""

    def __init__(self, plot: StepPlot) -> None:
        super().__init__(plot, -10_000)
        self._epochs: Sequence[float] = ()
        self._marks: tuple[float, ...] = ()

    def set_epochs(self, ends: Sequence[float]) -> None:
        if len(ends) != len(self._epochs) or (len(ends) and ends[-1] != self._epochs[-1]):
            self._epochs = list(ends)
            self.update()

    def set_marks(self, places: Sequence[float]) -> None:
        """Set the positions of manual changes."""
        if tuple(places) != self._marks:
            self._marks = tuple(places)
            self.update()

    def paint(self, painter: QPainter) -> None:
        plot, now = self._plot, theme.current()
        rect = self.rect()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, False)
        painter.setPen(QPen(now.line, 1))
        (x0, x1), (y0, y1) = plot.view.ranges()
        for y in plot.left.ticks(y0, y1, rect.height())[1] if plot.grid_y else ():
            level = round(rect.bottom() - (y - y0) / (y1 - y0) * rect.height())
            painter.drawLine(QPointF(rect.left(), level), QPointF(rect.right(), level))
        for x in plot.bottom.ticks(x0, x1, rect.width())[1] if plot.grid_x else ():
            place = round(rect.left() + (x - x0) / (x1 - x0) * rect.width())
            painter.drawLine(QPointF(place, rect.top()), QPointF(place, rect.bottom()))
        self._paint_epochs(painter, rect, x0, x1)
        pen = QPen(now.warn, 1)
        pen.setDashPattern([4, 3])
        painter.setPen(pen)
        for x in self._marks:
            if x0 <= x <= x1:
                place = round(rect.left() + (x - x0) / (x1 - x0) * rect.width())
                painter.drawLine(QPointF(place, rect.top()), QPointF(place, rect.bottom()))

    def _paint_epochs(self, painter: QPainter, rect: QRectF, x0: float, x1: float) -> None:
        """Paint lines at the ends of epochs, as many as fit; a label names the next epoch."""
        if len(self._epochs) < 2 or not self._plot.show_epochs:
            return
        now = theme.current()
        apart = (self._epochs[-1] - self._epochs[0]) / (len(self._epochs) - 1) / (x1 - x0) * rect.width()
        every = max(1, round(series.nice_step(EPOCH_ROOM / max(apart, 1e-6), 1)))
        pen = QPen(now.line3, 1)
        pen.setDashPattern([2, 3])
        painter.setFont(theme.font("axis"))
        metrics = QFontMetricsF(painter.font())
        for index in range(max(every - 1, 1), len(self._epochs) + 1, every):
            end = self._epochs[index - 1]
            if not x0 <= end <= x1:
                continue
            place = round(rect.left() + (end - x0) / (x1 - x0) * rect.width())
            painter.setPen(pen)
            painter.drawLine(QPointF(place, rect.top()), QPointF(place, rect.bottom()))
            label = f"epoch {index + 1:,}"
            if place + 4 + metrics.horizontalAdvance(label) < rect.right():
                painter.setPen(now.text3)
                painter.drawText(QPointF(place + 4, rect.top() + metrics.ascent() + 2), label)


class CursorLine(PlotLayer):
    """The line at the step that the pointer is on, in every chart at once, with a dot on each curve."""

    def __init__(self, plot: StepPlot) -> None:
        super().__init__(plot, 10_000)
        self._x: float | None = None
        self._dots: Sequence[tuple[float, QColor]] = ()

    def show_at(self, x: float | None, dots: Sequence[tuple[float, QColor]] = ()) -> None:
        if (x, dots) != (self._x, self._dots):
            self._x, self._dots = x, dots
            self.update()

    def paint(self, painter: QPainter) -> None:
        if self._x is None:
            return
        rect, now = self.rect(), theme.current()
        (x0, x1), (y0, y1) = self._plot.view.ranges()
        if not x0 <= self._x <= x1:
            return
        place = rect.left() + (self._x - x0) / (x1 - x0) * rect.width()
        painter.setPen(QPen(now.text2, 1))
        painter.drawLine(QPointF(round(place), rect.top()), QPointF(round(place), rect.bottom()))
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        for y, color in self._dots:
            if y0 <= y <= y1:
                painter.setPen(QPen(now.plot, 1.5))
                painter.setBrush(color)
                painter.drawEllipse(QPointF(place, rect.bottom() - (y - y0) / (y1 - y0) * rect.height()), 4, 4)


class StepPlot(QWidget):
    """A chart over the steps, independent of the run's data.

    The wheel and a drag change the x range that all charts share; with Ctrl, or over the left axis, this chart's y
    range; a drag with the right button zooms. `pointed(x)` follows the pointer, None when it leaves; a double click
    emits `released`: follow the run again.
    """

    pointed = Signal(object)
    released = Signal()
    grid_x = True
    grid_y = True
    show_epochs = True

    def __init__(self, left: FigureAxis | None = None, kind: Scale = "number") -> None:
        super().__init__()
        self._layers: list[PlotLayer] = []
        self._drag: Drag | None = None
        self.view = StepView(self)
        self.left = left or FigureAxis("left", kind)
        self.bottom = FigureAxis("bottom", "count")
        for axis in (self.left, self.bottom):
            axis.setParent(self)
            axis.changed.connect(self._lay_out)
        self.curves: list[Curve] = []
        self.paint_seconds = 0.0
        self.blank = False  # nothing but the background is painted
        self.pointer_y = 0.0  # of the view, where the pointer was last
        self.backdrop = Backdrop(self)
        self.cursor_line = CursorLine(self)
        self.readout = Readout(self)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        self.setAttribute(Qt.WidgetAttribute.WA_OpaquePaintEvent)
        self.setMinimumSize(90, 60)
        self.setMouseTracking(True)
        self.restyle()

    def sizeHint(self) -> QSize:
        return QSize(256, 192)

    def restyle(self) -> None:
        """Take colours and fonts from the theme in force."""
        self.left.restyle()
        self.bottom.restyle()
        for curve in self.curves:
            curve.restyle()
        self.readout.update()
        self.update()

    def add_layer(self, layer: PlotLayer) -> None:
        """Paint another layer, over those of the same or a lower `z`."""
        self._layers.append(layer)
        self._layers.sort(key=lambda each: each.z)
        self.update()

    def drop(self, curve: Curve) -> None:
        """Take a curve away."""
        self.curves.remove(curve)
        self._layers.remove(curve)
        self.update()

    def set_x_range(self, low: float, high: float) -> None:
        if high > low:
            self.view.set_range(0, low, high)

    def set_y_range(self, low: float, high: float) -> None:
        """Set the range of the curves, unless the user zoomed y."""
        if not self.view.free_y and high > low:
            self.view.set_range(1, low, high)

    @property
    def pixels(self) -> int:
        """The width of the view."""
        return max(1, int(self.view.rect().width()))

    def clear_cursor(self) -> None:
        self.cursor_line.show_at(None)
        self.readout.hide()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._lay_out()

    def _lay_out(self) -> None:
        """Put the view beside its axes."""
        right, bottom = self.width() - ROOM_RIGHT, self.height() - self.bottom.thickness
        left = min(self.left.thickness, right - 1)
        self.view.set_rect(QRectF(left, ROOM_ABOVE, right - left, max(1, bottom - ROOM_ABOVE)))
        self.update()

    # -- painting

    def set_blank(self, blank: bool) -> None:
        """Paint nothing but the background, or everything."""
        self.blank = blank
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        began = perf_counter()
        painter, now = QPainter(self), theme.current()
        painter.fillRect(event.rect(), now.panel)
        if not self.blank:
            self._paint(painter, now)
            self.paint_seconds += perf_counter() - began
        painter.end()

    def _paint(self, painter: QPainter, now: theme.Theme) -> None:
        rect = self.view.rect()
        x, y = self.view.ranges()
        painter.fillRect(rect, now.plot)
        for axis, (low, high) in ((self.left, y), (self.bottom, x)):
            painter.save()
            axis.paint(painter, rect, low, high)
            painter.restore()
        painter.setClipRect(rect)
        painter.translate(rect.topLeft())
        for layer in self._layers:
            painter.save()
            layer.paint(painter)
            painter.restore()

    # -- the mouse

    def _axes_at(self, place: QPointF) -> tuple[int, ...]:
        """Return what a drag that starts at a pixel moves: x (0), y (1), both, or nothing."""
        rect = self.view.rect()
        within_x, within_y = rect.left() <= place.x() <= rect.right(), rect.top() <= place.y() <= rect.bottom()
        if within_x and within_y:
            return (0, 1) if self.view.free_y else (0,)
        if within_y and place.x() < rect.left():
            return (1,)
        return (0,) if within_x and place.y() > rect.bottom() else ()

    def wheelEvent(self, event: QWheelEvent) -> None:
        over = self._axes_at(event.position())[:1]
        if over == (0,) and event.modifiers() & Qt.KeyboardModifier.ControlModifier:
            over = (1,)
        axes = self.view.zooms(over)
        turned = event.angleDelta().y() or event.angleDelta().x()
        if not axes or not turned:
            event.ignore()
            return
        factor = WHEEL ** (turned / 120)
        self.view.scale(axes, (factor, factor), event.position())

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if self._drag is None or not event.buttons() & self._drag.button:
            place = event.position()
            self._drag = Drag(event.button(), place, place, self._axes_at(place))

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        place = event.position()
        if not event.buttons() and self.view.rect().contains(place):
            x, self.pointer_y = self.view.at(place)
            self.pointed.emit(x)
        else:
            self.pointed.emit(None)
        drag = self._drag
        if drag is None or not event.buttons() & drag.button:
            return
        if not drag.moved and (place - drag.start).manhattanLength() < QApplication.startDragDistance():
            return
        drag.moved, before, drag.last = True, drag.last, place
        axes = self.view.zooms(drag.axes)
        if not axes:
            return
        if drag.button == Qt.MouseButton.RightButton:
            self.view.scale(axes, (RIGHT ** (before.x() - place.x()), RIGHT ** (place.y() - before.y())), drag.start)
        else:
            self.view.move(axes, place - before)

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        drag = self._drag
        if drag is None or event.button() != drag.button:
            return
        self._drag = None
        if event.button() == Qt.MouseButton.LeftButton and not drag.moved and drag.axes:
            self.view.clicked.emit(*self.view.at(event.position()))

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        if event.button() == Qt.MouseButton.LeftButton:
            self.view.free_y = False
            self.released.emit()

    def leaveEvent(self, event: QEvent) -> None:
        super().leaveEvent(event)
        self.pointed.emit(None)


class CurveDots(PlotLayer):
    """The points of a series of few values, ringed by the background; where they would touch, the last alone."""

    RADIUS = 3.0

    def __init__(self, plot: StepPlot, color: int) -> None:
        super().__init__(plot, 100)
        self._color = color
        self._x: series.Floats = np.empty(0)
        self._y: series.Floats = np.empty(0)

    def set_points(self, x: series.Floats, y: series.Floats) -> None:
        self._x, self._y = x, y
        self.update()

    def paint(self, painter: QPainter) -> None:
        rect, now = self.rect(), theme.current()
        (x0, x1), (y0, y1) = self._plot.view.ranges()
        inside = series.visible(self._x, x0, x1)
        x = rect.left() + (self._x[inside] - x0) / (x1 - x0) * rect.width()
        y = rect.bottom() - (self._y[inside] - y0) / (y1 - y0) * rect.height()
        if len(x) > 1 and (x[-1] - x[0]) / (len(x) - 1) < 4 * self.RADIUS:
            x, y = x[-1:], y[-1:]
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(QPen(now.plot, 1))
        painter.setBrush(now.series[self._color])
        for a, b in zip(x.tolist(), y.tolist(), strict=True):
            if isfinite(b) and rect.adjusted(-1, -1, 1, 1).contains(a, b):
                painter.drawEllipse(QPointF(a, b), self.RADIUS + 0.5, self.RADIUS + 0.5)
