"""Curves of metrics beside the accuracy, dashed, in the same chart."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from app.training.history import History
from app.training.metrics import is_share, label_of
from app.util import formatting
from app.views.training.charts.axes.timescale import TimeScale
from app.views.training.charts.card import LegendEntry
from app.views.training.charts.curve import Curve
from app.views.training.charts.plot import StepPlot
from app.views.training.charts.series import Floats

FIRST = 2  # of the colours of series: training and validation have those before


class ScoreCurves:
    """A curve per metric. Shares are in percent beside an accuracy; without one all are plotted unscaled."""

    def __init__(self, plot: StepPlot) -> None:
        self._plot = plot
        self._curves: list[Curve] = []
        self._names: tuple[str, ...] = ()

    def drawn(self, history: History) -> tuple[str, ...]:
        """Return the metrics that have a curve."""
        shares = has_accuracy(history)
        return tuple(
            name for name in of_scores(history) if not shares or is_share(name)
        )

    def redraw(self, history: History, scale: TimeScale) -> list[Floats]:
        """Draw the curves; return x and the levels, curve by curve."""
        names = self.drawn(history)
        if names != self._names:
            self._names = names
            while len(self._curves) < len(names):
                number = FIRST + len(self._curves) % 4
                self._curves.append(Curve(self._plot, number, 1.5, dashed=True))
        x = scale.x_of(history.scores["step"], history.scores["seconds"])
        factor = 100 if has_accuracy(history) else 1
        levels = [factor * history.scores[name] for name in names]
        for number, curve in enumerate(self._curves):
            curve.set_points(
                *((x, levels[number]) if number < len(levels) else (x[:0], x[:0]))
            )
        return [x, *levels]

    def entries(self, history: History, epoch: int) -> Sequence[LegendEntry]:
        """Return the legend at an epoch, from 0."""
        if epoch >= len(history.scores):
            return ()
        drawn, entries = self.drawn(history), []
        for name in of_scores(history):
            value, share = (
                float(history.scores[name][epoch]),
                has_accuracy(history) and is_share(name),
            )
            color = FIRST + drawn.index(name) % 4 if name in drawn else -1
            text = formatting.percent(value) if share else formatting.figure(value)
            entries.append(
                LegendEntry(
                    label_of(name),
                    text,
                    color,
                    "dash",
                    label_of(name).removesuffix(" accuracy"),
                )
            )
        return entries


def of_scores(history: History) -> tuple[str, ...]:
    """Return the metrics that are not losses, which are shown in the loss chart."""
    return tuple(name for name in history.metrics if not name.startswith("loss_"))


def has_accuracy(history: History) -> bool:
    """Return whether the run has an accuracy; True before its first epoch."""
    return not len(history.epochs) or bool(
        np.isfinite(history.epochs["train_accuracy"][-1])
    )
