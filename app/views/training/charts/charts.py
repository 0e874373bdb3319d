"""The curves of a run: loss, accuracy and throughput, each a card that redraws itself from a history."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from PySide6.QtGui import QColor

from app.training.history import History
from app.util import formatting
from app.views.training.charts import series
from app.views.training.charts.axes.axis import Scale
from app.views.training.charts.axes.timescale import Mode, TimeScale
from app.views.training.charts.card import ChartCard, LegendEntry
from app.views.training.charts.curve import Curve
from app.views.training.charts.loss_parts import LossPartCurves
from app.views.training.charts.overlays import (
    COLORS,
    Other,
    RunOverlays,
    accuracies,
    cut_lines,
    name_in,
    smoothed_loss,
    validation_losses,
)
from app.views.training.charts.plot import CurveDots, StepPlot
from app.views.training.charts.readout import Row
from app.views.training.charts.series import Floats, Smoother
from app.views.training.evaluation.curves import ScoreCurves, has_accuracy
from app.views.ui import theme

X_KINDS: dict[Mode, Scale] = {"step": "count", "epoch": "number", "time": "clock"}


class Chart(ChartCard):
    """A card with one plot over the steps. A subclass reads the history; the page sets range and cursor."""

    others: RunOverlays | None = None  # other runs, where it shows them
    empty_range = (0.0, 1.0)  # of y, before the first value
    run_name = ""  # of the run that is shown

    def __init__(
        self,
        title: str,
        note: str = "",
        *,
        plot: StepPlot | None = None,
        legend: bool = True,
        short: str = "",
    ) -> None:
        super().__init__(title, note, legend=legend, short=short)
        self.plot = plot or StepPlot()
        self.plot.setAccessibleName(title)
        self.history = History()
        self.scale = TimeScale(self.history)
        self.body.addWidget(self.plot, 1)

    def set_history(self, history: History, mode: Mode) -> None:
        """Read another run, or the same one by another x axis."""
        if history is not self.history:
            self.plot.set_y_range(*self.empty_range)  # not that of the run before
        self.history = history
        self.scale = TimeScale(history, mode)
        self.plot.bottom.set_kind(X_KINDS[mode])

    def set_run_name(self, name: str) -> None:
        """Name the run that is shown, for legends of several."""
        self.run_name = name

    def set_others(self, history: History, others: Sequence[Other]) -> None:
        """Show other runs beside that of `history`, where the chart shows them."""
        if self.others is not None:
            self.others.set_runs(others)

    @property
    def _compares(self) -> bool:
        return self.others is not None and self.others.compares

    def redraw(self) -> None:
        """Update the picture to the history, for the x range in view."""
        self._mark_epochs()

    def entries(self, index: int | None) -> Sequence[LegendEntry]:
        """Return the legend at the step of an index; None for the newest."""
        return ()

    def rows(self, index: int) -> Sequence[Row]:
        """Return the lines of the readout at a step."""
        return [
            (entry.color, entry.label, entry.value) for entry in self.entries(index)
        ]

    def dots(self, index: int) -> Sequence[tuple[float, QColor]]:
        """Return the points of the curves at a step, in the view's y."""
        return ()

    def restyle(self) -> None:
        """Take colours and fonts from the theme in force."""
        self.plot.restyle()

    def show_legend(self, index: int | None = None) -> None:
        self.legend.set_entries(self.entries(index))

    def point_at(self, index: int | None) -> None:
        """Put the cursor on a step; None takes it away."""
        if index is None or index >= len(self.history.steps):
            self.plot.clear_cursor()
            self.show_legend()
            return
        self.plot.cursor_line.show_at(
            float(self.scale.of_steps()[index]), tuple(self.dots(index))
        )
        self.show_legend(index)

    def _window(self, x: Floats) -> slice:
        low, high = self.plot.view.viewRange()[0]
        return series.visible(x, low, high)

    def _mark_epochs(self) -> None:
        epochs = self.history.epochs
        self.plot.backdrop.set_epochs(
            self.scale.x_of(epochs["step"], epochs["seconds"]).tolist()
        )
        self.plot.backdrop.set_marks(
            self.scale.x_of(self.history.rates_set["step"]).tolist()
        )
        self.plot.backdrop.set_flags(
            self.scale.x_of(np.array(sorted(self.history.marks), dtype=float)).tolist()
        )
        beside = self.others.cuts(self.scale.mode) if self.others is not None else []
        self.plot.backdrop.set_cuts(
            [*cut_lines(self.history, self.scale.mode), *beside]
        )

    def _epoch_at(self, index: int | None) -> int | None:
        """Return the row of the last epoch that had ended by a step; None if there is none."""
        epochs = self.history.epochs
        if index is None:
            return len(epochs) - 1 if len(epochs) else None
        ended = int(
            np.searchsorted(epochs["step"], self.history.steps["step"][index], "right")
        )
        return ended - 1 if ended else None


class LossChart(Chart):
    """The loss of every step, faint, its moving average over it, and the validation loss of every epoch."""

    least_plot = 236  # px: the most important curve

    def __init__(self) -> None:
        super().__init__("Loss")
        self._raw = Curve(self.plot, 0, 1.0, 0.38, smooth=False)
        self._smooth = Curve(self.plot, 0, 2.0)
        self._validation = Curve(self.plot, 1, 1.5)
        self._dots = CurveDots(self.plot, 1)
        self.others: RunOverlays = RunOverlays(self.plot, smoothed_loss)
        self._validations = RunOverlays(
            self.plot, validation_losses, dots=True
        )  # of all runs, where several are shown
        self.parts = LossPartCurves(self.plot)
        self._smoother = Smoother(0.9)
        self._name = ""
        self._log = True
        self._left_out = False
        self.plot.left.set_kind("log")

    @property
    def log(self) -> bool:
        return self._log

    @property
    def smoothing(self) -> float:
        return self._smoother.weight

    @property
    def smoothed(self) -> Floats:
        """The moving average, one value a step."""
        return self._smoother.values

    def set_log(self, log: bool) -> None:
        self._log = log
        self.plot.left.set_kind("log" if log else "number")
        self.plot.view.free_y = False
        self.redraw()

    def set_smoothing(self, weight: float) -> None:
        """Set the weight of the past in the moving average, 0 to less than 1."""
        self._smoother = Smoother(weight)
        self.redraw()

    def set_loss_name(self, name: str) -> None:
        """Set the name of the loss in torch."""
        self._name = name
        self._show_scale()

    def set_others(self, history: History, others: Sequence[Other]) -> None:
        super().set_others(history, others)
        shown = [Other(self.run_name, history), *others] if others else []
        self._validations.set_runs(shown, (0, *COLORS))

    def set_history(self, history: History, mode: Mode) -> None:
        if history is not self.history:
            self._smoother = Smoother(self._smoother.weight)
        super().set_history(history, mode)

    def redraw(self) -> None:
        raw, x = self.history.steps["loss"], self.scale.of_steps()
        self._smoother.extend(raw[len(self._smoother) :])
        window, pixels = self._window(x), self.plot.pixels
        thin_x, thin_y = series.thin_peaks(x[window], raw[window], pixels // 2)
        smooth_x, smooth_y = series.thin(
            x[window], self._smoother.values[window], pixels // 2
        )
        epochs = self.history.epochs
        epoch_x = self.scale.x_of(epochs["step"], epochs["seconds"])
        near = self._window(epoch_x)
        epoch_x, epoch_y = series.thin_peaks(
            epoch_x[near], epochs["val_loss"][near], pixels // 2
        )
        self._left_out = self._log and bool(np.any(thin_y <= 0))
        shown = [self._level(values) for values in (thin_y, smooth_y, epoch_y)]
        raw_visible = self._smoother.weight > 0 and not self._compares
        self._raw.set_points(thin_x, shown[0]) if raw_visible else self._raw.clear()
        self._smooth.set_points(
            *((smooth_x, shown[1]) if self._smoother.weight > 0 else (thin_x, shown[0]))
        )
        validation = (
            (epoch_x[:0], epoch_x[:0]) if self._compares else (epoch_x, shown[2])
        )
        self._validation.set_points(*validation)
        self._dots.set_points(*validation)
        others = self.others.redraw(self.scale.mode, self._smoother.weight, self._level)
        others += self._validations.redraw(self.scale.mode, 0.0, self._level)
        parts = self.parts.redraw(
            self.history, self.scale, self._smoother.weight, self._level
        )
        self._fit(
            np.concatenate(
                [*(shown[1:2] if self._compares else shown[::2]), *others, *parts]
            )
        )
        self._mark_epochs()
        self._show_scale()

    def _level(self, values: Floats) -> Floats:
        """Return the values on the y axis; nan for values that a log scale cannot show."""
        if not self._log:
            return values
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.log10(np.where(values > 0, values, np.nan))

    def _fit(self, levels: Floats) -> None:
        finite = levels[np.isfinite(levels)]
        if finite.size:
            low, high = float(finite.min()), float(finite.max())
            self.plot.set_y_range(
                *series.snapped(
                    low, high, floor=0.0 if not self._log and low >= 0 else -np.inf
                )
            )

    def _show_scale(self) -> None:
        scale = "log scale" if self._log else "linear"
        if self._left_out:
            scale += ", non-positive values omitted"
        notes = [name_in(self.run_name), self._name, scale]
        if self._compares:  # what the marks mean
            notes = [
                "lines: training"
                + f", smoothed {self.smoothing:g}" * bool(self.smoothing),
                "dots: validation",
                self._name,
                scale,
            ]
        self.heading.set(note=", ".join(filter(None, notes)))

    def entries(self, index: int | None) -> Sequence[LegendEntry]:
        steps, row = self.history.steps, self._epoch_at(index)
        if not len(steps):
            return ()
        if self._compares:
            return self._run_entries(index)
        entries = [
            LegendEntry(
                "training",
                formatting.figure(float(steps["loss"][-1 if index is None else index])),
            )
        ]
        if row is not None and not np.isnan(self.history.epochs["val_loss"][row]):
            value = formatting.figure(float(self.history.epochs["val_loss"][row]))
            entries.append(LegendEntry("validation", value, 1, "dots"))
        return [*entries, *self.parts.entries(self.history, index)]

    def _run_entries(self, index: int | None) -> list[LegendEntry]:
        """Return an entry per run with its name: all training losses under one smoothing."""
        values, name = self._smoother.values, self.run_name or "this run"
        at = len(values) - 1 if index is None else index
        if not 0 <= at < len(values):
            return []
        this_run = LegendEntry(
            name, formatting.figure(float(values[at])), short=name_in(name)
        )
        return [this_run, *self.others.entries()] if index is None else [this_run]

    def rows(self, index: int) -> Sequence[Row]:
        rows = list(super().rows(index))
        if self.smoothing and not self._compares and index < len(self._smoother):
            average = formatting.figure(float(self._smoother.values[index]))
            rows.insert(1, (theme.current().series[0], "training, smoothed", average))
        return rows

    def dots(self, index: int) -> Sequence[tuple[float, QColor]]:
        if index >= len(self._smoother):
            return ()
        return [
            (
                float(self._level(self._smoother.values[index : index + 1])[0]),
                theme.current().series[0],
            )
        ]


class AccuracyChart(Chart):
    """The share of samples that were classified rightly, in percent, epoch by epoch."""

    empty_range = (0.0, 100.0)

    def __init__(self) -> None:
        super().__init__("Accuracy", "%", plot=StepPlot(kind="percent"))
        self.plot.show_epochs = False
        self._curves = [
            (Curve(self.plot, number, 1.5), CurveDots(self.plot, number))
            for number in (0, 1)
        ]
        self.others: RunOverlays = RunOverlays(self.plot, accuracies)
        self._scores = ScoreCurves(self.plot)
        self._smoother = Smoother(0.0)

    def redraw(self) -> None:
        shares = has_accuracy(self.history)
        self.heading.set(
            "Accuracy" if shares else "Metrics",
            "%" if shares else "of validation samples",
        )
        self.plot.left.set_kind("percent" if shares else "number")
        epochs = self.history.epochs
        x = self.scale.x_of(epochs["step"], epochs["seconds"])
        window = self._window(x)
        levels = [
            100 * epochs[name][window] for name in ("train_accuracy", "val_accuracy")
        ]
        if self._compares:  # what the other runs show: the validation accuracy, or that of training without any
            levels = [
                accuracies(self.history, self._smoother)[2][window],
                np.full(len(levels[0]), np.nan),
            ]
        for (curve, dots), y in zip(self._curves, levels, strict=True):
            thin_x, thin_y = series.thin_peaks(x[window], y, self.plot.pixels // 2)
            curve.set_points(thin_x, thin_y)
            dots.set_points(thin_x, thin_y)
        scores_x, *scores = self._scores.redraw(self.history, self.scale)
        scored = [y[self._window(scores_x)] for y in scores]
        others = self.others.redraw(self.scale.mode, 0.0, lambda y: y)
        visible_levels = np.concatenate([*levels, *scored, *others])
        visible_levels = visible_levels[np.isfinite(visible_levels)]
        if visible_levels.size:
            limits = (0.0, 100.5) if shares else ()
            self.plot.set_y_range(
                *series.snapped(
                    float(visible_levels.min()), float(visible_levels.max()), *limits
                )
            )
        self._mark_epochs()

    def entries(self, index: int | None) -> Sequence[LegendEntry]:
        row = self._epoch_at(index)
        if row is None:
            return ()
        epochs = self.history.epochs
        entries = []
        if self._compares:
            name = self.run_name or "this run"
            shared = formatting.figure(
                float(accuracies(self.history, self._smoother)[2][row])
            )
            this_run = LegendEntry(name, shared, 0, "dots", name_in(name))
            return [this_run, *self.others.entries()] if index is None else [this_run]
        if not np.isnan(epochs["train_accuracy"][row]):
            entries.append(
                LegendEntry(
                    "training",
                    formatting.percent(float(epochs["train_accuracy"][row])),
                    0,
                    "dots",
                )
            )
        if not np.isnan(epochs["val_accuracy"][row]):
            value = formatting.percent(float(epochs["val_accuracy"][row]))
            entries.append(LegendEntry("validation", value, 1, "dots"))
        return [*entries, *self._scores.entries(self.history, row)]


class ThroughputChart(Chart):
    """Training samples a second, steps of a script, over stretches of at least a tenth of a second."""

    STRETCH = 0.1

    def __init__(self) -> None:
        super().__init__("Throughput", "samples/s", legend=False)
        self.plot.grid_x = False
        self.plot.show_epochs = False
        self._curve = Curve(self.plot, 0, 1.0)
        self._x: Floats = np.empty(0)
        self._rates: Floats = np.empty(0)

    @property
    def _unit(self) -> str:
        started = self.history.started
        return (
            "steps/s"
            if started is not None and not started.steps_per_epoch
            else "samples/s"
        )

    def redraw(self) -> None:
        steps = self.history.steps
        x = self.scale.of_steps()
        window = self._window(x)
        seconds, samples = steps["seconds"][window], steps["samples"][window]
        ends = stretches(
            seconds if self._timed else seconds[:0], self.plot.pixels // 2, self.STRETCH
        )
        if len(ends) < 2:
            self._x = self._rates = np.empty(0)
        else:
            counts = np.add.reduceat(samples, ends[:-1] + 1)
            counts[-1] = samples[ends[-2] + 1 : ends[-1] + 1].sum()
            self._rates = counts / np.maximum(np.diff(seconds[ends]), 1e-9)
            self._x = x[window][ends[1:]]
        self._curve.set_points(self._x, self._rates)
        if self._rates.size:
            top = series.snapped(0.0, float(self._rates.max()), 0.0)[1]
            self.plot.set_y_range(0.0, top)
            self._curve.fill_to(0.0, 0.13)

    @property
    def _timed(self) -> bool:
        started = self.history.started
        return started is None or started.timed

    def show_legend(self, index: int | None = None) -> None:
        if not self._timed:
            self.heading.set(value="", note="unknown: this run recorded no times")
            return
        rate = (
            self.history.samples_per_second() if index is None else self._rate_at(index)
        )
        self.heading.set(value="" if rate is None else f"{rate:,.0f}", note=self._unit)

    def _rate_at(self, index: int) -> float | None:
        if not len(self._x):
            return None
        row = min(
            int(np.searchsorted(self._x, self.scale.of_steps()[index])),
            len(self._x) - 1,
        )
        return float(self._rates[row])

    def rows(self, index: int) -> Sequence[Row]:
        rate = self._rate_at(index)
        return (
            []
            if rate is None
            else [(theme.current().series[0], self._unit, f"{rate:,.0f}")]
        )


def stretches(seconds: Floats, most: int, shortest: float) -> np.ndarray:
    """Return indices that split ascending `seconds` into at most about `most` intervals of equal step counts.

    No interval is much shorter than `shortest`. The counts are powers of two, so that a growing run keeps its old
    splits.
    """
    count = len(seconds)
    if count < 2:
        return np.empty(0, dtype=np.intp)
    mean = max(float(seconds[-1] - seconds[0]) / (count - 1), 1e-9)
    stride = 1
    while count > 2 * max(most, 1) * stride or stride * mean < shortest:
        stride *= 2
    return np.arange(0, count, stride)
