"""A heat map of a per-layer quantity over the steps: a row per layer, with the bounds beside it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from PySide6.QtCore import QRectF, Qt, Signal
from PySide6.QtGui import QFontMetricsF, QImage, QPainter, QPen
from PySide6.QtWidgets import QSizePolicy, QStyleOptionGraphicsItem, QWidget

from app.telemetry.gradient_gains import path_of
from app.training.columns import Columns
from app.training.history import History
from app.training.monitoring.gradient_health import LostGradient, lost_over
from app.training.monitoring.gradient_verdict import Verdict, verdict
from app.training.monitoring.layer_history import LayerTable
from app.util import formatting
from app.views.training.charts import ticks
from app.views.training.charts.axis import FigureAxis
from app.views.training.charts.charts import Chart
from app.views.training.charts.gradients import Bounds, BoundsTracker
from app.views.training.charts.plot import PlotLayer, StepPlot
from app.views.training.charts.readout import Row
from app.views.training.charts.series import Floats, Mode
from app.views.ui import theme
from app.views.ui.layouts import hbox, vbox
from app.views.ui.widgets.fields import ChoiceField
from app.views.ui.widgets.heatbar import HeatBar
from app.views.ui.widgets.painting import label

LABEL_ROOM = 11.0  # pixels that a row's name needs
LEAST_MAP = 70  # pixels of the map beside the names
NO_GRADIENT = 255  # the last entry of the table: nothing is painted


class Quantity(Struct, frozen=True):
    """Name in the list, title, unit note, and the text for a layer without values."""

    name: str
    title: str
    note: str
    absent: str


QUANTITIES = {
    "gradient": Quantity(
        "Gradient", "Gradient norm per layer", "log scale", "no gradient"
    ),
    "weight": Quantity("Weight", "Weight norm per layer", "log scale", "no weights"),
    "update": Quantity(
        "Update",
        "Update / weight per layer",
        "log scale; about 1e\u22123 is usual",
        "no update",
    ),
    "dead": Quantity(
        "Dead",
        "Dead units per layer",
        "fraction of units that were 0 for a whole batch",
        "not measured",
    ),
    "reach": Quantity(
        "Left", "Relative gradient norm", "|grad in| / |grad| at the last layer", "none"
    ),
    "gain": Quantity(
        "Gain", "Gain per layer", "|grad in| / |grad out|, log scale", "none"
    ),
}


class LayerAxis(FigureAxis):
    """The names of the layers, top row first; selected ones are highlighted."""

    def __init__(self) -> None:
        # Set before super().__init__, which computes ticks.
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
        widest = max(
            (
                metrics.horizontalAdvance(self._name(row))
                for row in range(len(self._names))
            ),
            default=40.0,
        )
        self.setWidth(min(widest, 120.0) + 14)

    def _name(self, row: int) -> str:
        # Parameters of the net itself, as `self.scale = nn.Parameter(...)`, belong to no module.
        return self._names[row] or "Net"

    def ticks(self, low: float, high: float, size: float) -> tuple[float, list[float]]:
        rows = len(self._names)
        if not rows:
            return 1.0, []
        every = max(1, int(np.ceil(LABEL_ROOM * rows / max(size, 1.0))))
        shown: list[int] = []
        for row in sorted(
            range(rows), key=lambda row: (row not in self._selected, row % every, row)
        ):  # selected ones first
            if all(abs(row - other) >= every for other in shown):
                shown.append(row)
        return 1.0, [rows - row - 0.5 for row in sorted(shown)]

    def text(self, value: float, spacing: float, largest: float) -> str:
        name = self._name(round(len(self._names) - value - 0.5))
        return QFontMetricsF(theme.font("axis")).elidedText(
            name, Qt.TextElideMode.ElideLeft, 120.0
        )

    def paint(
        self, p: QPainter, opt: QStyleOptionGraphicsItem, widget: QWidget
    ) -> None:
        height = self.size().height() / max(len(self._names), 1)
        for row in self._selected:
            p.fillRect(
                QRectF(0, row * height, self.size().width() - 1, height),
                theme.current().accentBg,
            )
        super().paint(p, opt, widget)


class HeatLayer(PlotLayer):
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
        target = np.frombuffer(self._image.bits(), dtype=np.uint8).reshape(
            self._rows, stride
        )
        target[:, :width] = cells
        self.update()

    def clear(self) -> None:
        self._image = QImage()
        self.update()

    def select(self, rows: frozenset[int]) -> None:
        self._selected = rows
        self.update()

    def draw(self, painter: QPainter) -> None:
        if self._image.isNull():
            return
        rect = self.boundingRect()
        painter.setRenderHint(QPainter.RenderHint.SmoothPixmapTransform, False)
        painter.drawImage(rect, self._image)
        height = rect.height() / self._rows
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.setPen(QPen(theme.current().accent, 1.5))
        for row in self._selected:
            painter.drawRect(
                QRectF(
                    rect.left(), rect.top() + row * height, rect.width(), height
                ).adjusted(1, 0, -1, 0)
            )


def _table() -> list[int]:
    heat = theme.heat_table()
    colors = [
        0xFF000000 | red << 16 | green << 8 | blue
        for red, green, blue in heat[:NO_GRADIENT]
    ]
    return [*colors, 0]


def cells_at(norms: Floats, at: np.ndarray, bounds: Bounds) -> np.ndarray:
    """Return ramp positions of the samples `at` (−1: none); `norms` is (layers, samples), the result (layers, at)."""
    chosen = norms[:, np.maximum(at, 0)]
    if bounds.log:
        span = np.log10(bounds.high / bounds.low)
        with np.errstate(invalid="ignore", divide="ignore"):
            ramp_positions = np.log10(chosen / bounds.low) / span
    else:
        ramp_positions = (chosen - bounds.low) / (bounds.high - bounds.low)
    nothing = np.isnan(chosen) | (at < 0)
    cells = np.clip(
        np.nan_to_num(ramp_positions, nan=0.0, posinf=1.0, neginf=0.0), 0.0, 1.0
    ) * (NO_GRADIENT - 1)
    return np.where(nothing, NO_GRADIENT, cells).astype(np.uint8)


def samples_at(x: Floats, low: float, high: float, pixels: int) -> np.ndarray:
    """Return for each pixel from `low` to `high` the latest sample's index, −1 before the first and after the end."""
    grid = low + (np.arange(pixels) + 0.5) * (high - low) / pixels
    at = np.searchsorted(x, grid, "right") - 1
    # The newest sample extends by the mean distance of samples.
    after = (x[-1] - x[0]) / (len(x) - 1) if len(x) > 1 else (high - low) / pixels
    at[grid > x[-1] + max(after, (high - low) / pixels)] = -1
    return at


class GradientMap(Chart):
    """The heat map, its legend, and selection of a layer by click. `quantity` selects one of `quantities`, initially
    the first."""

    layerClicked = Signal(str)  # the path of the module
    layerHovered = Signal(object)  # the path, or None

    def __init__(self, quantities: Sequence[str] = tuple(QUANTITIES)) -> None:
        self._axis = LayerAxis()
        self._quantity = quantities[0]
        first = QUANTITIES[self._quantity]
        super().__init__(
            first.title,
            first.note,
            plot=StepPlot(self._axis),
            legend=False,
            short="Per layer",
        )
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
        self._cause: str | None = None
        names = [(key, QUANTITIES[key].name) for key in quantities]
        self.choice = ChoiceField(names, self._quantity, pairs=True)
        self.choice.setAccessibleName("Quantity in the map")
        self.choice.setSizePolicy(QSizePolicy.Policy.Maximum, QSizePolicy.Policy.Fixed)
        self.choice.setToolTip("Quantity shown for each layer")
        self.choice.edited.connect(self.set_quantity)
        self.tools.addWidget(self.choice)
        self.words = label("", "caption", "warn")
        self.words.setMinimumWidth(1)
        self.words.hide()
        self.body.insertWidget(0, self.words)
        self._put_ramp_beside()

    def _put_ramp_beside(self) -> None:
        """Make the colour ramp as high as the rows."""
        self.body.removeWidget(self.plot)
        self._ramp_column = vbox(self._ramp)
        beside = hbox((self.plot, 1), self._ramp_column, spacing=0)
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

    def set_quantity(self, key: str) -> None:
        """Show another figure of the layers."""
        shown = QUANTITIES[key]
        self._quantity, self._bounds, self._hovered = key, None, None
        self._tracker = BoundsTracker()
        self.choice.set_value(key)
        self.heading.set(shown.title, shown.note)
        self.plot.setAccessibleName(shown.title)
        self.redraw()

    @property
    def layers(self) -> tuple[str, ...]:
        return self._columns.names

    @property
    def _columns(self) -> Columns:
        return (
            self.history.gradients
            if self._quantity == "gradient"
            else self._table.columns
        )

    @property
    def _table(self) -> LayerTable:
        return self.history.seen.tables[self._quantity]

    @property
    def steps(self) -> np.ndarray:
        """The steps that were measured."""
        return (
            self.history.gradient_steps
            if self._quantity == "gradient"
            else self._table.steps
        )

    @property
    def selected(self) -> frozenset[str]:
        """Return the paths of the modules whose rows are outlined."""
        return self._selected

    def set_selected(self, layers: Iterable[str]) -> None:
        """Outline the rows of these modules, by path."""
        self._selected = frozenset(layers)
        self._show_selected()

    @property
    def _selected_rows(self) -> frozenset[int]:
        return frozenset(
            row
            for row, layer in enumerate(self.layers)
            if path_of(layer) in self._selected
        )

    def _show_selected(self) -> None:
        rows = self._selected_rows
        self._axis.select(rows)
        self._heat.select(rows)

    def _name_rows(self) -> None:
        """Show the names of the layers, beside a map that can be read."""
        self._axis.set_names(self.layers)
        self.plot.setMinimumWidth(round(self._axis.maximumWidth()) + LEAST_MAP)

    def set_history(self, history: History, mode: Mode) -> None:
        super().set_history(history, mode)
        self._name_rows()
        self._show_selected()

    def redraw(self) -> None:
        if tuple(self._axis._names) != self.layers:
            self._name_rows()
            self._show_selected()
        self._judge()
        bounds = self._bounds_now()
        if bounds is None:
            self._heat.clear()
            self._ramp.hide()
            return
        if bounds != self._bounds:
            self._bounds = bounds
            self._ramp.set(_ramp_texts(bounds))
        self._ramp.show()
        self.plot.set_y_range(0.0, float(len(self.layers)))
        low, high = self.plot.view.viewRange()[0]
        at = samples_at(self.scale.x_of(self.steps), low, high, self.plot.pixels)
        self._heat.set_cells(cells_at(self._columns.matrix(), at, bounds))

    def _bounds_now(self) -> Bounds | None:
        if self._quantity == "dead":
            return (
                Bounds(0.0, 1.0, log=False)
                if len(self._columns) and self.layers
                else None
            )
        return self._tracker.bounds_of(self._columns)

    def set_cause(self, cause: str | None) -> None:
        """Say of a layer that loses its gradient why it does, as is known from elsewhere; nothing for "", where
        something else is said of the run. None for what the gradients alone tell."""
        if cause != self._cause:
            self._cause = cause
            self._judge()

    def _judge(self) -> None:
        """Name the first layer whose gradient vanishes or explodes, if gradients are shown."""
        problems: Sequence[Verdict | LostGradient] = ()
        if self._quantity == "gradient":
            losses = self.history.steps["loss"]
            problem = verdict(
                self.layers,
                self._columns.matrix(),
                float(losses[0]) if len(losses) else 0.0,
            )
            problems = [problem] if problem is not None else []
        elif self._quantity in ("reach", "gain"):
            problems = lost_over(self.history.seen.tables["reach"])
        text = " ".join(problem.text for problem in problems)
        if self._cause is not None and problems:
            layer = path_of(problems[0].layer) or "Net"
            text = f"{layer}: {self._cause}" if self._cause else ""
        if text != self.words.toolTip():
            self.words.setToolTip(text)
            self.words.setVisible(bool(text))
        if text:
            room = max(self.words.width(), self.width() - 24)
            metrics = self.words.fontMetrics()
            self.words.setText(
                metrics.elidedText(text, Qt.TextElideMode.ElideRight, room)
            )

    def row_at(self, y: float) -> int | None:
        """Return the row at a y of the view; None outside the rows."""
        row = int(np.floor(len(self.layers) - y))
        return row if 0 <= row < len(self.layers) else None

    def _clicked(self, _x: float, y: float) -> None:
        row = self.row_at(y)
        if row is not None:
            self.layerClicked.emit(path_of(self.layers[row]))

    def _pointed(self, x: float | None) -> None:
        row = None if x is None else self.row_at(self.plot.pointer_y)
        if row != self._hovered:
            self._hovered = row
            self.layerHovered.emit(None if row is None else path_of(self.layers[row]))

    def _sample(self, x: float) -> int:
        """Return the index of the last measurement up to an x, −1 if there is none."""
        step = self.scale.step_at(x)
        return int(np.searchsorted(self.steps, step, "right")) - 1

    def rows(self, x: float) -> Sequence[Row]:
        """Return the values at the last sample up to an x: of the hovered layer and of the selected ones."""
        sample = self._sample(x)
        if sample < 0:
            return []
        rows = [self._hovered] if self._hovered is not None else []
        rows += [row for row in sorted(self._selected_rows) if row != self._hovered][:3]
        figures_now = self._columns.matrix()[:, sample]
        return [self._row(row, float(figures_now[row])) for row in rows]

    def _row(self, row: int, value: float) -> Row:
        name = self.layers[row] or "Net"
        if np.isnan(value):
            return None, name, QUANTITIES[self._quantity].absent
        color = theme.heat(self._bounds.position(value)) if self._bounds else None
        return (
            color,
            name,
            formatting.share(value, 1)
            if self._quantity == "dead"
            else formatting.figure(value),
        )

    def note_at(self, x: float) -> str:
        """Return the step at which the shown values were measured."""
        sample = self._sample(x)
        if sample < 0:
            return ""
        return f"measured at {formatting.grouped_digits(int(self.steps[sample]))}"

    def leaveEvent(self, event: Any) -> None:
        super().leaveEvent(event)
        self._pointed(None)


def _ramp_texts(bounds: Bounds) -> list[str]:
    if not bounds.log:
        return ["0 %", "50 %", "100 %"]
    low, high = round(np.log10(bounds.low)), round(np.log10(bounds.high))
    texts = [ticks.log_tick(float(exponent)) for exponent in range(low, high + 1)]
    if bounds.clipped:
        texts[0] = f"≤{texts[0]}"
    return texts
