"""A plot over the steps of a run: view, axes and mouse interaction around the layers that are painted."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from time import perf_counter
from typing import Any

import numpy as np
import pyqtgraph as pg
from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QMouseEvent, QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QSizePolicy

from app.views.training.charts import series
from app.views.training.charts.axis import FigureAxis, Scale
from app.views.training.charts.layers import Backdrop, CursorLine, Curve, EpochLabels
from app.views.training.charts.readout import Readout, Row
from app.views.training.charts.series import Floats, Series
from app.views.ui import theme


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

    `pointed(x)` follows the pointer, None when it leaves; a double click emits `released`: follow the run again.

    pyqtgraph's own plot makes two more axes, a title and a menu of fifty widgets, which take longer than all the rest.
    """

    pointed = Signal(object)
    released = Signal()
    grid_x = True
    grid_y = True
    show_epochs = True

    def __init__(self, left: FigureAxis | None = None, kind: Scale = "number") -> None:
        # Nothing but the background is painted; whether the axes are laid out for the size in force.
        self.blank, self._laid_out = False, True
        super().__init__()
        self.view = StepView()
        self.left = left or FigureAxis("left", kind)
        self.bottom = FigureAxis("bottom", "count")
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
        """Draw what is in view of these series, in their order; return the finite levels of all.

        `omitted` tells whether there are values that the log scale cannot show.
        """
        low, high = self.view.viewRange()[0]
        drawn = [of for of in shown if of.drawn]
        self.curves += [Curve(self) for _ in range(len(drawn) - len(self.curves))]
        self.omitted, levels = False, [np.empty(0)]
        for curve, of in zip_longest(self.curves, drawn):
            if of is None:
                curve.clear()
                continue
            x = of.x
            window = series.visible(x, low, high)
            thinned = series.thin if of.mean else series.thin_peaks
            x, y = thinned(x[window], of.values[window], self.pixels // 2)
            curve.show_series(of, x, self.level(y))
            levels.append(curve.points()[1])
            self.omitted |= self.left.kind == "log" and bool(np.any(y <= 0))
        together = np.concatenate(levels)
        return together[np.isfinite(together)]

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
            self.view.free_y = False
            self.released.emit()

    def leaveEvent(self, event: Any) -> None:
        super().leaveEvent(event)
        self.pointed.emit(None)

    def resizeEvent(self, event: QResizeEvent | None) -> None:
        """Lay the axes out, of a blank plot when it is painted."""
        self._laid_out = not self.blank
        if self._laid_out:
            super().resizeEvent(event)

    def set_blank(self, blank: bool) -> None:
        """Paint nothing but the background, or everything."""
        self.blank = blank
        if not self._laid_out:
            self.resizeEvent(None)
        self.viewport().update()

    def paintEvent(self, event: QPaintEvent) -> None:
        if self.blank:
            painter = QPainter(self.viewport())
            painter.fillRect(event.rect(), theme.current().panel)
            painter.end()
            return
        began = perf_counter()
        super().paintEvent(event)
        self.paint_seconds += perf_counter() - began
