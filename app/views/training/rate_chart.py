"""The learning rate of every step, and where it was set by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from PySide6.QtGui import QColor

from app.views import theme
from app.views.training import figures, series
from app.views.training.charts import Chart
from app.views.training.curve import Curve
from app.views.training.readout import Row


class RateChart(Chart):
    """The rate of the optimizer's first group; its newest value stands in the heading."""

    def __init__(self) -> None:
        super().__init__("Learning rate", legend=False)
        self.plot.show_epochs = False
        self.plot.grid_x = False
        self._curve = Curve(self.plot, 0, 1.5)

    def redraw(self) -> None:
        x, rates = self.scale.of_steps(), self.history.steps["rate"]
        window = self._window(x)
        thin_x, thin_y = series.thin_peaks(x[window], rates[window], self.plot.pixels // 2)
        self._curve.set_points(thin_x, thin_y)
        finite = thin_y[np.isfinite(thin_y)]
        if finite.size and finite.max() > 0:
            self.plot.set_y_range(0.0, 1.12 * float(finite.max()))
        self._mark_epochs()

    def show_legend(self, index: int | None = None) -> None:
        rate = self._at(-1 if index is None else index)
        self.heading.set(value="" if rate is None else figures.figure(rate))

    def _at(self, index: int) -> float | None:
        rates = self.history.steps["rate"]
        return float(rates[index]) if -len(rates) <= index < len(rates) and np.isfinite(rates[index]) else None

    def rows(self, index: int) -> Sequence[Row]:
        rate = self._at(index)
        return [] if rate is None else [(theme.current().series[0], "learning rate", figures.figure(rate))]

    def dots(self, index: int) -> Sequence[tuple[float, QColor]]:
        rate = self._at(index)
        return () if rate is None else [(rate, theme.current().series[0])]
