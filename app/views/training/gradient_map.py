"""The gradient norm of every layer over the steps, as a map: a row a layer, log scale, bounds printed beside it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from PySide6.QtCore import QRectF, Qt, Signal
from PySide6.QtGui import QFontMetricsF, QImage, QPainter, QPen
from PySide6.QtWidgets import QHBoxLayout, QStyleOptionGraphicsItem, QVBoxLayout, QWidget

from app.training.history import History
from app.views import theme
from app.views.training import figures
from app.views.training.axis import FigureAxis
from app.views.training.charts import Chart
from app.views.training.gradients import Bounds, BoundsTracker
from app.views.training.plot import Layer, StepPlot
from app.views.training.readout import Row
from app.views.training.series import Floats
from app.views.training.timescale import Mode
from app.views.widgets.heatbar import HeatBar

LABEL_ROOM = 11.0  # pixels that a row's name needs
NO_GRADIENT = 255  # the last entry of the table: nothing is painted


class LayerAxis(FigureAxis):
    """The names of the layers, top row first; those that are selected stand on the accent."""

    def __init__(self) -> None:
        # Before the base class, whose constructor asks for ticks.
        self._names: Sequence[str] = ()
        self._selected: frozenset[int] = frozenset()
        super().__init__("left")

    def set_names(self, names: Sequence[str]) -> None:
        if tuple(names) != tuple(self._names):
            self._names = tuple(names)
            self.restyle()
            self.picture = None
            self.update()

    def select(self, rows: frozenset[int]) -> None:
        if rows != self._selected:
            self._selected = rows
            self.picture = None
            self.update()

    def restyle(self) -> None:
        super().restyle()
        metrics = QFontMetricsF(theme.font("axis"))
        widest = max((metrics.horizontalAdvance(self._name(row)) for row in range(len(self._names))), default=40.0)
        self.setWidth(min(widest, 120.0) + 14)

    def _name(self, row: int) -> str:
        # Parameters of the net itself, as `self.scale = nn.Parameter(...)`, belong to no module.
        return self._names[row] or "Net"

    def ticks(self, low: float, high: float, size: float) -> tuple[float, list[float]]:
        rows = len(self._names)
        if not rows:
            return 1.0, []
        every = max(1, int(np.ceil(LABEL_ROOM * rows / max(size, 1.0))))
        shown = [row for row in range(rows) if row % every == 0 or row in self._selected]
        return 1.0, [rows - row - 0.5 for row in shown]

    def text(self, value: float, spacing: float, largest: float) -> str:
        name = self._name(round(len(self._names) - value - 0.5))
        return QFontMetricsF(theme.font("axis")).elidedText(name, Qt.TextElideMode.ElideLeft, 120.0)

    def paint(self, p: QPainter, opt: QStyleOptionGraphicsItem, widget: QWidget) -> None:
        height = self.size().height() / max(len(self._names), 1)
        for row in self._selected:
            p.fillRect(QRectF(0, row * height, self.size().width() - 1, height), theme.current().accentBg)
        super().paint(p, opt, widget)


class HeatLayer(Layer):
    """The map itself: an image of as many columns as pixels, and an outline round the selected rows."""

    def __init__(self, plot: StepPlot) -> None:
        super().__init__(plot, 0)
        self._image = QImage()
        self._rows = 0
        self._selected: frozenset[int] = frozenset()

    def set_cells(self, cells: np.ndarray) -> None:
        """Show places in the ramp, 0 to 254, or `NO_GRADIENT`; shape (layers, pixels), uint8."""
        self._rows, width = cells.shape
        self._image = QImage(width, self._rows, QImage.Format.Format_Indexed8)
        self._image.setColorTable(_table())
        stride = self._image.bytesPerLine()
        target = np.frombuffer(self._image.bits(), dtype=np.uint8).reshape(self._rows, stride)
        target[:, :width] = cells
        self.update()

    def clear(self) -> None:
        self._image = QImage()
        self.update()

    def select(self, rows: frozenset[int]) -> None:
        self._selected = rows
        self.update()

    def paint(self, painter: QPainter, option: QStyleOptionGraphicsItem, widget: QWidget | None = None) -> None:
        if self._image.isNull():
            return
        rect = self.boundingRect()
        painter.setRenderHint(QPainter.RenderHint.SmoothPixmapTransform, False)
        painter.drawImage(rect, self._image)
        height = rect.height() / self._rows
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.setPen(QPen(theme.current().accent, 1.5))
        for row in self._selected:
            painter.drawRect(QRectF(rect.left(), rect.top() + row * height, rect.width(), height).adjusted(1, 0, -1, 0))


def _table() -> list[int]:
    heat = theme.heat_table()
    colors = [0xFF000000 | red << 16 | green << 8 | blue for red, green, blue in heat[:NO_GRADIENT]]
    return [*colors, 0]


def cells_at(norms: Floats, at: np.ndarray, bounds: Bounds) -> np.ndarray:
    """Places in the ramp of the samples `at` (−1: none); `norms` is (layers, samples), the answer (layers, len(at))."""
    chosen = norms[:, np.maximum(at, 0)]
    span = np.log10(bounds.high / bounds.low)
    with np.errstate(invalid="ignore", divide="ignore"):
        places = np.log10(chosen / bounds.low) / span
    nothing = np.isnan(chosen) | (at < 0)
    cells = np.clip(np.nan_to_num(places, nan=0.0, posinf=1.0, neginf=0.0), 0.0, 1.0) * (NO_GRADIENT - 1)
    return np.where(nothing, NO_GRADIENT, cells).astype(np.uint8)


def samples_at(x: Floats, low: float, high: float, pixels: int) -> np.ndarray:
    """For each pixel from `low` to `high` the index of the sample taken last, −1 before the first and after the run."""
    grid = low + (np.arange(pixels) + 0.5) * (high - low) / pixels
    at = np.searchsorted(x, grid, "right") - 1
    # The newest sample holds as long as samples lie apart.
    after = (x[-1] - x[0]) / (len(x) - 1) if len(x) > 1 else (high - low) / pixels
    at[grid > x[-1] + max(after, (high - low) / pixels)] = -1
    return at


class GradientMap(Chart):
    """The map, its ramp, and a click on a row that says which layer is meant."""

    layerClicked = Signal(str)  # the path of the module
    layerHovered = Signal(object)  # the path, or None

    def __init__(self) -> None:
        self._axis = LayerAxis()
        super().__init__("Gradient norm per layer", "log scale", plot=StepPlot(self._axis), legend=False)
        self.plot.grid_x = self.plot.grid_y = self.plot.show_epochs = False
        self.plot.view.setMouseEnabled(x=True, y=False)
        self.plot.view.clicked.connect(self._clicked)
        self.plot.pointed.connect(self._pointed)
        self._heat = HeatLayer(self.plot)
        self._ramp = HeatBar(("0", "1"), vertical=True)
        self._ramp.hide()
        self._bounds: Bounds | None = None
        self._tracker = BoundsTracker()
        self._selected: frozenset[str] = frozenset()
        self._hovered: int | None = None
        self._put_ramp_beside()

    def _put_ramp_beside(self) -> None:
        """The ramp as high as the rows are, whatever the axis takes."""
        self.body.removeWidget(self.plot)
        self._ramp_column = QVBoxLayout()
        self._ramp_column.addWidget(self._ramp)
        beside = QHBoxLayout()
        beside.setSpacing(0)
        beside.addWidget(self.plot, 1)
        beside.addLayout(self._ramp_column)
        self.body.addLayout(beside, 1)
        self.plot.view.sigResized.connect(self._level_ramp)

    def _level_ramp(self, _view: object) -> None:
        rect = self.plot.view.sceneBoundingRect()
        below = max(0, round(self.plot.height() - rect.bottom()))
        self._ramp_column.setContentsMargins(0, max(0, round(rect.top())), 8, below)

    @property
    def bounds(self) -> Bounds | None:
        """The ends of the ramp; None before there is a norm."""
        return self._bounds

    @property
    def layers(self) -> tuple[str, ...]:
        return self.history.layers

    @property
    def selected(self) -> frozenset[str]:
        """The paths of the modules whose rows are outlined."""
        return self._selected

    def set_selected(self, layers: Iterable[str]) -> None:
        """Outline the rows of these modules, by path."""
        self._selected = frozenset(layers)
        self._show_selected()

    def _show_selected(self) -> None:
        rows = frozenset(row for row, layer in enumerate(self.layers) if layer in self._selected)
        self._axis.select(rows)
        self._heat.select(rows)

    def set_history(self, history: History, mode: Mode) -> None:
        super().set_history(history, mode)
        self._axis.set_names(history.layers)
        self._show_selected()

    def redraw(self) -> None:
        history = self.history
        if tuple(self._axis._names) != history.layers:
            self._axis.set_names(history.layers)
            self._show_selected()
        bounds = self._tracker.update(history)
        if bounds is None:
            self._heat.clear()
            self._ramp.hide()
            return
        if bounds != self._bounds:
            self._bounds = bounds
            self._ramp.set(_ramp_texts(bounds))
        self._ramp.show()
        self.plot.set_y_range(0.0, float(len(history.layers)))
        low, high = self.plot.view.viewRange()[0]
        at = samples_at(self.scale.of(history.gradient_steps), low, high, self.plot.pixels)
        self._heat.set_cells(cells_at(history.gradients.matrix(), at, bounds))

    def row_at(self, y: float) -> int | None:
        """The row at a height of the view; None beside the rows."""
        row = int(np.floor(len(self.layers) - y))
        return row if 0 <= row < len(self.layers) else None

    def _clicked(self, _x: float, y: float) -> None:
        row = self.row_at(y)
        if row is not None:
            self.layerClicked.emit(self.layers[row])

    def _pointed(self, x: float | None) -> None:
        row = None if x is None else self.row_at(self.plot.pointer_y)
        if row != self._hovered:
            self._hovered = row
            self.layerHovered.emit(None if row is None else self.layers[row])

    def rows(self, index: int) -> Sequence[Row]:
        """The norms at the last sample up to a step: of the layer under the pointer, or of those selected."""
        steps = self.history.gradient_steps
        sample = int(np.searchsorted(steps, self.history.steps["step"][index], "right")) - 1
        if sample < 0:
            return []
        rows = [self._hovered] if self._hovered is not None else []
        rows += [r for r, layer in enumerate(self.layers) if layer in self._selected and r != self._hovered][:3]
        norms = self.history.gradients.matrix()[:, sample]
        return [self._row(row, float(norms[row])) for row in rows]

    def _row(self, row: int, norm: float) -> Row:
        name = self.layers[row] or "Net"
        if np.isnan(norm):
            return None, name, "no gradient"
        color = theme.heat(self._bounds.place(norm)) if self._bounds else None
        return color, name, figures.figure(norm)

    def note_at(self, index: int) -> str:
        """The step that the shown norms were measured at."""
        steps = self.history.gradient_steps
        sample = int(np.searchsorted(steps, self.history.steps["step"][index], "right")) - 1
        return f"measured at {figures.count(int(steps[sample]))}" if sample >= 0 else ""

    def leaveEvent(self, event: Any) -> None:
        super().leaveEvent(event)
        self._pointed(None)


def _ramp_texts(bounds: Bounds) -> Mapping[int, str] | list[str]:
    low, high = round(np.log10(bounds.low)), round(np.log10(bounds.high))
    texts = [figures.log_tick(float(exponent)) for exponent in range(low, high + 1)]
    if bounds.clipped:
        texts[0] = f"≤{texts[0]}"
    return texts
