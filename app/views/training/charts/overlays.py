"""Other runs overlaid in a chart: a curve each, in its own colour."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from msgspec import Struct, field

from app.runs.record import TAGGED
from app.training.history import History
from app.util import formatting
from app.views.training.charts import series
from app.views.training.charts.axes.timescale import Mode, TimeScale
from app.views.training.charts.card import LegendEntry
from app.views.training.charts.curve import Curve
from app.views.training.charts.plot import CurveDots, CutLine, StepPlot
from app.views.training.charts.series import Floats, Smoother

# The third run's colour, the fourth's, then those that the loss and accuracy charts do not use otherwise.
COLORS = (2, 4, 3, 5)

# Steps, seconds (None where they are those of the steps) and values of a history.
Values = Callable[[History, Smoother], tuple[Floats, Floats | None, Floats]]


class Other(Struct, frozen=True):
    """A run that is shown beside another; `label` is its name with its tags."""

    label: str
    history: History

    @property
    def title(self) -> str:
        """The name alone."""
        return name_in(self.label)


def name_in(label: str) -> str:
    """Return the name of a run without its tags."""
    return label.split(TAGGED)[0]


class _Line(Struct):
    other: Other
    curve: Curve
    color: int
    dots: CurveDots | None = None
    smoother: Smoother = field(default_factory=lambda: Smoother(0.9))


def _last_finite(values: Floats) -> float | None:
    """Return the last value that is a number; None if there is none."""
    if len(values) and np.isfinite(values[-1]):
        return float(values[-1])
    finite_indices = np.flatnonzero(np.isfinite(values))
    return float(values[finite_indices[-1]]) if len(finite_indices) else None


def smoothed_loss(
    history: History, smoother: Smoother
) -> tuple[Floats, Floats, Floats]:
    """Return steps, seconds and the moving average of the training loss."""
    steps = history.steps
    smoother.extend(steps["loss"][len(smoother) :])
    return steps["step"], steps["seconds"], smoother.values


def validation_losses(
    history: History, _smoother: Smoother
) -> tuple[Floats, Floats, Floats]:
    """Return the validation loss of each epoch."""
    epochs = history.epochs
    return epochs["step"], epochs["seconds"], epochs["val_loss"]


def accuracies(history: History, _smoother: Smoother) -> tuple[Floats, Floats, Floats]:
    """Return the validation accuracy in percent, or that of training if there is no validation."""
    epochs = history.epochs
    held_out = epochs["val_accuracy"]
    values = epochs["train_accuracy"] if np.isnan(held_out).all() else held_out
    return epochs["step"], epochs["seconds"], 100 * values


def cut_lines(
    history: History, mode: Mode, prefix: str = "", color: int = -1
) -> list[CutLine]:
    """Return the lines where the net of a run was edited."""
    positions = TimeScale(history, mode).x_of(
        np.array([cut.step for cut in history.cuts], dtype=float)
    )
    return [
        CutLine(x, prefix + cut.description, color)
        for x, cut in zip(positions.tolist(), history.cuts, strict=True)
    ]


class RunOverlays:
    """The curves of other runs in one plot; with `dots` faint ones through a dot for each value."""

    def __init__(self, plot: StepPlot, values: Values, dots: bool = False) -> None:
        self._plot, self._values, self._dots = plot, values, dots
        self._lines: list[_Line] = []

    def set_runs(self, others: Sequence[Other], colors: Sequence[int] = COLORS) -> None:
        """Show these runs, as many as there are colours."""
        for line in self._lines:
            self._plot.drop(line.curve)
            if line.dots is not None:
                self._plot.drop(line.dots)
        self._lines = []
        for other, color in zip(others, colors, strict=False):
            curve = Curve(
                self._plot, color, *((1.0, 0.45) if self._dots else (1.5, 1.0))
            )
            self._lines.append(
                _Line(
                    other,
                    curve,
                    color,
                    CurveDots(self._plot, color) if self._dots else None,
                )
            )

    def redraw(
        self, mode: Mode, weight: float, level: Callable[[Floats], Floats]
    ) -> list[Floats]:
        """Draw them by the x axis of the chart; the levels that are in view, for its y range."""
        low, high = self._plot.view.viewRange()[0]
        levels = []
        for line in self._lines:
            if line.smoother.weight != weight:
                line.smoother = Smoother(weight)
            steps, seconds, values = self._values(line.other.history, line.smoother)
            x = TimeScale(line.other.history, mode).x_of(steps, seconds)
            window = series.visible(x, low, high)
            thinned = series.thin if weight or self._dots else series.thin_peaks
            thin_x, thin_y = thinned(x[window], values[window], self._plot.pixels // 2)
            line.curve.set_points(thin_x, level(thin_y))
            if line.dots is not None:
                line.dots.set_points(thin_x, level(thin_y))
            levels.append(level(thin_y))
        return levels

    def prepare(self, index: int, weight: float) -> None:
        """Read and smooth the values of one run, which a later `redraw` then need not do."""
        for line in self._lines[index : index + 1]:
            if line.smoother.weight != weight:
                line.smoother = Smoother(weight)
            self._values(line.other.history, line.smoother)

    @property
    def compares(self) -> bool:
        """Return whether other runs are shown."""
        return bool(self._lines)

    def entries(self) -> list[LegendEntry]:
        """Return legend entries with the newest value of each."""
        entries = []
        for line in self._lines:
            values = self._values(line.other.history, line.smoother)[2]
            text = formatting.figure(float(values[-1])) if len(values) else "–"
            entries.append(
                LegendEntry(line.other.label, text, line.color, short=line.other.title)
            )
        return entries

    def read(
        self, x: float | None, mode: Mode
    ) -> list[tuple[Other, int, float | None]]:
        """Return each run with its colour and its value measured at an x or last before it; the newest for None.

        The value is None where the run has none, nan where the run has none there.
        """
        readings: list[tuple[Other, int, float | None]] = []
        for line in self._lines:
            steps, seconds, values = self._values(line.other.history, line.smoother)
            scale = TimeScale(line.other.history, mode)
            value = _last_finite(values)
            if value is not None and x is not None:
                end = (
                    int(np.searchsorted(scale.x_of(steps, seconds), x, "right"))
                    if x <= scale.end()
                    else 0
                )
                there = _last_finite(values[:end])
                value = float("nan") if there is None else there
            readings.append((line.other, line.color, value))
        return readings

    def cuts(self, mode: Mode) -> list[CutLine]:
        """Return the lines where the nets of these runs were edited."""
        return [
            cut
            for line in self._lines
            for cut in cut_lines(
                line.other.history, mode, f"{line.other.title}: ", line.color
            )
        ]

    def end(self, mode: Mode) -> float:
        """Return the end of the longest run on the x axis."""
        return max(
            (TimeScale(line.other.history, mode).end() for line in self._lines),
            default=0.0,
        )
