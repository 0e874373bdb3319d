"""The learning rate of each parameter group over the steps, with marks where the user changed it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from PySide6.QtGui import QColor

from app.training.history import MAIN
from app.util import formatting
from app.views.training.charts import series
from app.views.training.charts.card import LegendEntry
from app.views.training.charts.charts import Chart
from app.views.training.charts.curve import Curve
from app.views.training.charts.readout import Row
from app.views.training.charts.series import Floats
from app.views.ui import theme

COLORS = 6  # of the series of a theme


class RateChart(Chart):
    """A curve per parameter group; the newest value is in the heading, or in the legend if there are several."""

    def __init__(self) -> None:
        super().__init__("Learning rate", legend=False)
        self.plot.show_epochs = False
        self.plot.grid_x = False
        self._curves = [Curve(self.plot, 0, 1.5)]

    def _rates(self, window: slice = slice(None)) -> dict[str, Floats]:
        """Return the rate of each group at each step of a window, the main one first."""
        history = self.history
        group_rates, main = history.own_rates, history.main_group
        others = {
            name: history.rates_of(name, window) for name in group_rates if name != main
        }
        return {
            main or (MAIN if group_rates else "learning rate"): history.steps["rate"][
                window
            ],
            **others,
        }

    def _rates_at(self, index: int) -> dict[str, float]:
        """Return the known rates at the step of an index."""
        count = len(self.history.steps)
        if not -count <= index < count:
            return {}
        here = slice(index % count, index % count + 1)
        return {name: float(rates[0]) for name, rates in self._rates(here).items()}

    def redraw(self) -> None:
        x, highest = self.scale.of_steps(), 0.0
        window = self._window(x)
        rates_by_group = self._rates(window)
        while len(self._curves) < len(rates_by_group):
            self._curves.append(Curve(self.plot, len(self._curves) % COLORS, 1.5))
        for curve in self._curves[len(rates_by_group) :]:
            curve.clear()
        for curve, rates in zip(self._curves, rates_by_group.values(), strict=False):
            thin_x, thin_y = series.thin_peaks(x[window], rates, self.plot.pixels // 2)
            curve.set_points(thin_x, thin_y)
            finite = thin_y[np.isfinite(thin_y)]
            highest = max(highest, float(finite.max())) if finite.size else highest
        if highest > 0:
            self.plot.set_y_range(0.0, 1.12 * highest)
        self._mark_epochs()

    def entries(self, index: int | None) -> Sequence[LegendEntry]:
        numbered_rates = enumerate(
            self._rates_at(-1 if index is None else index).items()
        )
        return [
            LegendEntry(
                name,
                formatting.figure(rate),
                number % COLORS,
                short="main" if name == MAIN else name,
            )
            for number, (name, rate) in numbered_rates
            if np.isfinite(rate)
        ]

    def show_legend(self, index: int | None = None) -> None:
        entries = self.entries(index)
        several = bool(self.history.own_rates)
        self.legend.setVisible(several)
        self.legend.set_entries(entries if several else ())
        self.heading.set(value=entries[0].value if entries and not several else "")

    def rows(self, index: int) -> Sequence[Row]:
        several = bool(self.history.own_rates)
        template = "learning rate, {}" if several else "{}"
        return [
            (entry.color, template.format(entry.label), entry.value)
            for entry in self.entries(index)
        ]

    def dots(self, index: int) -> Sequence[tuple[float, QColor]]:
        colors = theme.current().series
        numbered_rates = enumerate(self._rates_at(index).values())
        return [
            (rate, colors[number % COLORS])
            for number, rate in numbered_rates
            if np.isfinite(rate)
        ]
