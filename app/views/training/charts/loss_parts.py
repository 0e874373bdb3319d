"""The losses of several outputs: for each a smoothed curve, and a dashed one for validation."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from app.training.history import History
from app.util import formatting
from app.views.training.charts import series
from app.views.training.charts.axes.timescale import TimeScale
from app.views.training.charts.card import LegendEntry
from app.views.training.charts.curve import Curve
from app.views.training.charts.plot import StepPlot
from app.views.training.charts.series import Floats, Smoother

FIRST = 2  # of the colours of series: the sum and its validation have those before


class LossPartCurves:
    """Two curves per output, in one colour."""

    def __init__(self, plot: StepPlot) -> None:
        self._plot = plot
        self._curves: list[tuple[Curve, Curve]] = []
        self._smoothers: list[Smoother] = []
        self._history: History | None = None

    def redraw(
        self,
        history: History,
        scale: TimeScale,
        weight: float,
        level: Callable[[Floats], Floats],
    ) -> list[Floats]:
        """Draw the curves and return the levels in view, for the y range."""
        names = history.parts.names[1:]
        while len(self._curves) < len(names):
            color = FIRST + len(self._curves) % 4
            self._curves.append(
                (
                    Curve(self._plot, color, 1.5),
                    Curve(self._plot, color, 1.5, dashed=True),
                )
            )
        up_to_date = [
            smoother.weight == weight and len(smoother) <= len(history.parts)
            for smoother in self._smoothers
        ]
        if (
            history is not self._history
            or len(self._smoothers) != len(names)
            or not all(up_to_date)
        ):
            self._history, self._smoothers = history, [Smoother(weight) for _ in names]
        levels = []
        steps = history.parts["step"]
        x = scale.x_of(steps, self._seconds(history, steps))
        low, high = self._plot.view.viewRange()[0]
        window = series.visible(x, low, high)
        validated = scale.x_of(history.scores["step"], history.scores["seconds"])
        for number, (train, validation) in enumerate(self._curves):
            if number >= len(names):
                train.clear()
                validation.clear()
                continue
            smoother = self._smoothers[number]
            smoother.extend(history.parts[names[number]][len(smoother) :])
            thin_x, thin_y = series.thin(
                x[window], smoother.values[window], self._plot.pixels // 2
            )
            train.set_points(thin_x, level(thin_y))
            held_out = (
                history.scores[names[number]]
                if names[number] in history.metrics
                else validated[:0]
            )
            validation.set_points(validated[: len(held_out)], level(held_out))
            levels += [level(thin_y), level(held_out)]
        return levels

    def _seconds(self, history: History, steps: Floats) -> Floats:
        """Return the time of each step; `steps` are those of the run, or the first of them."""
        indices = np.searchsorted(history.steps["step"], steps)
        return history.steps["seconds"][
            np.minimum(indices, max(len(history.steps) - 1, 0))
        ]

    def entries(self, history: History, index: int | None) -> Sequence[LegendEntry]:
        """Return the legend at the step of an index; None for the newest."""
        parts = history.parts
        if not len(parts):
            return ()
        row = len(parts) - 1
        if index is not None:
            step = history.steps["step"][index]
            row = min(int(np.searchsorted(parts["step"], step)), row)
        entries = []
        for number, name in enumerate(parts.names[1:]):
            label = name.removeprefix("loss_")
            value = formatting.figure(float(parts[name][row]))
            entries.append(LegendEntry(label, value, FIRST + number % 4, short=label))
        return entries
