"""One layer over the steps: how its values are spread, and how far each step moves its weights."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QFontMetricsF, QPainter, QPen

from app.features.layer.cards import FiguresRow
from app.training.monitoring.layer_history import spread
from app.training.monitoring.looks import StepLayer
from app.util.formatting import counted, figure, grouped_digits
from app.util.language import tr
from app.views.training.charts.charts import Chart
from app.views.training.charts.gradient_map import NO_GRADIENT, HeatLayer, samples_at
from app.views.training.charts.histograms import RunHistogram, RunHistograms
from app.views.training.charts.plot import PlotLayer, StepPlot
from app.views.training.charts.series import Floats, Series
from app.views.ui import theme
from app.views.ui.widgets.segmented import Segmented

PARTS = 64
USUAL = 1e-3
KINDS = {"weights": "Weights", "gradients": "Gradients", "activations": "Activations"}


class HistogramChart(Chart):
    """A heat map of histograms: the brighter, the more of the layer's values are in that bin at that step."""

    def __init__(self) -> None:
        super().__init__("Values", plot=StepPlot(), legend=False)
        self.plot.grid_x = self.plot.grid_y = self.plot.show_epochs = False
        self._heat = HeatLayer(self.plot)
        self.layer = ""
        self.kind = Segmented(list(KINDS.items()), "Values to show")
        self.kind.changed.connect(lambda _kind: self.redraw())
        self.tools.addWidget(self.kind)
        self.at_step = RunHistograms("No finite value at this step")
        self.at_step.hide()
        self.body.addWidget(self.at_step, 1)
        self.figures = FiguresRow()
        self.body.addWidget(self.figures)
        self._past: StepLayer | None = None
        self._step: int | None = None

    def show_layer(self, layer: str) -> None:
        self.layer = layer
        self.redraw()

    def show_past(self, past: StepLayer | None) -> None:
        """Show the layer's values at a step that was recomputed in place of those over the run; None for these
        again."""
        self._past = past
        self.plot.setVisible(past is None)
        self.at_step.setVisible(past is not None)
        self.redraw()

    def redraw(self) -> None:
        if self._past is not None:
            kind, step = self.kind.value(), self._past.step
            histogram = self._past.histograms.get(kind)
            shown = [] if histogram is None else [histogram]
            self.at_step.show_histograms(
                [RunHistogram(KINDS[kind], 0, step, of) for of in shown]
            )
            self.figures.show_histogram(histogram)
            texts = [
                f"{figure(of.low)} to {figure(of.high)}, "
                f"{counted(sum(of.counts), 'finite value')}"
                for of in shown
            ]
            note = "".join(texts) or "none"
            self.heading.set(note=f"{note} at {grouped_digits(step)}, recomputed")
            return
        series_of = self.history.seen.histograms.get(self.kind.value())
        samples = series_of.samples_of(self.layer) if series_of is not None else []
        if not samples:
            self._heat.clear()
            self.figures.show_histogram(None)
            self.heading.set(note="none yet" if self.layer else "")
            return
        parts, low, high = spread(samples, PARTS)
        self.plot.set_y_range(low, high)
        left, right = self.plot.view.viewRange()[0]
        steps = np.array([float(step) for step, _ in samples])
        at = samples_at(self.scale.x_of(steps), left, right, self.plot.pixels)
        # The square root makes the sparse tails visible.
        share = np.sqrt(parts / np.maximum(parts.max(axis=0, keepdims=True), 1e-12))
        cells = (share[::-1] * (NO_GRADIENT - 1))[:, np.maximum(at, 0)]
        empty = (share[::-1] == 0)[:, np.maximum(at, 0)] | (at < 0)
        self._heat.set_cells(np.where(empty, NO_GRADIENT, cells).astype(np.uint8))
        self._tell()

    def set_step(self, step: int | None) -> None:
        """Tell the values measured at a step or last before it; None for the newest."""
        self._step = step
        if self._past is None:
            self._tell()

    def _tell(self) -> None:
        series_of = self.history.seen.histograms.get(self.kind.value())
        samples = series_of.samples_of(self.layer) if series_of is not None else []
        until = [
            sample
            for sample in samples
            if self._step is None or sample[0] <= self._step
        ]
        self.figures.show_histogram(until[-1][1] if until else None)
        if until:
            at, shown = until[-1]
            self.heading.set(
                note=f"{figure(shown.low)} to {figure(shown.high)} at {grouped_digits(at)}"
            )
        elif samples:
            self.heading.set(note=f"first measured at {grouped_digits(samples[0][0])}")


class UsualLevel(PlotLayer):
    """A dashed line at the usual ratio, with its name over it."""

    words = "about 0.001 is usual"
    shorter = "usual"

    def __init__(self, plot: StepPlot) -> None:
        super().__init__(plot, 1)

    def area(self) -> tuple[QRectF, str]:
        """Return where the name is, at the left above the line, and as much of it as there is room for."""
        rect, metrics = self.boundingRect(), QFontMetricsF(theme.font("axis"))
        low, high = self._plot.view.viewRange()[1]
        level = (
            rect.bottom()
            - (np.log10(USUAL) - low) / ((high - low) or 1) * rect.height()
        )
        label = (
            self.words
            if metrics.horizontalAdvance(self.words) + 8 <= rect.width()
            else self.shorter
        )
        height = metrics.height()
        return QRectF(
            rect.left() + 4,
            level - height - 1,
            metrics.horizontalAdvance(label),
            height,
        ), label

    def draw(self, painter: QPainter) -> None:
        now, rect = theme.current(), self.boundingRect()
        area, label = self.area()
        pen = QPen(now.text2, 1)
        pen.setDashPattern([5, 3])
        painter.setPen(pen)
        painter.drawLine(
            QPointF(rect.left(), area.bottom() + 1),
            QPointF(rect.right(), area.bottom() + 1),
        )
        painter.setFont(theme.font("axis"))
        painter.drawText(area, Qt.AlignmentFlag.AlignVCenter, label)


class RatioChart(Chart):
    """The norm of each update over the norm of the weights, with a line at the usual ratio."""

    def __init__(self) -> None:
        super().__init__("Update / weight", "log scale", legend=False, short="Update")
        self.heading.explain(
            tr(
                "By how much a step changes the weights: the norm of the change over the norm of the weights"
            )
        )
        self.plot.show_epochs = False
        self.plot.left.set_kind("log")
        self._usual = UsualLevel(self.plot)
        self.layer = ""
        self._step: int | None = None

    def show_layer(self, layer: str) -> None:
        self.layer = layer
        self.redraw()

    @property
    def ratios(self) -> tuple[Floats, Floats]:
        """Steps and ratios of the layer."""
        table = self.history.seen.tables["update"]
        if self.layer not in table.layers:
            return np.empty(0), np.empty(0)
        return table.steps, table.columns[self.layer]

    def curves(self) -> Sequence[Series]:
        return [Series("update / weight", self.scale, *self.ratios)]

    def fit(self, levels: Floats) -> None:
        shown = np.append(levels, np.log10(USUAL))
        low, high = np.floor(shown.min() - 0.2), np.ceil(shown.max() + 0.2)
        self.plot.set_y_range(float(low), float(high))

    def redraw(self) -> None:
        super().redraw()
        self._usual.update()
        self.set_step(self._step)

    def set_step(self, step: int | None) -> None:
        """Tell the ratio measured at a step or last before it; None for the newest."""
        self._step = step
        steps, ratios = self.ratios
        at = len(ratios) if step is None else int(np.searchsorted(steps, step, "right"))
        shown = ratios[at - 1] if at else np.nan
        self.heading.set(value="" if np.isnan(shown) else figure(shown))
