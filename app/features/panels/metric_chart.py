"""A panel: one metric of several runs, a line each, on the axes that all panels share."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PySide6.QtCore import QRectF, QSize, Qt, Signal
from PySide6.QtGui import QKeyEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import QMenu, QSizePolicy

from app.telemetry.histogram import Histogram
from app.training.history import History
from app.util import atomic, formatting
from app.views.shown_run import ComparedRun
from app.views.training.charts import export
from app.views.training.charts.card import LegendEntry
from app.views.training.charts.charts import RUN_COLORS, X_KINDS, Chart, cut_lines
from app.views.training.charts.controls import export_as, export_menu
from app.views.training.charts.histograms import RunHistogram, RunHistograms
from app.views.training.charts.metrics import (
    FIXED,
    Choice,
    Metric,
    Reading,
    layers_of,
    metric_of,
    newest_histogram,
    offered,
)
from app.views.training.charts.readout import Row
from app.views.training.charts.series import (
    Floats,
    Mode,
    Series,
    Smoother,
    TimeScale,
)
from app.views.ui import theme
from app.views.ui.present import present
from app.views.ui.widgets.button import icon_button
from app.views.ui.widgets.fields import ChoiceField
from app.views.ui.widgets.painting import KeyboardFocus, announce

LOWEST = 168  # px of a panel, at the designed text size
FIELD = 84  # px of the fields that choose metric and layer, at least
ABSENT = "not recorded"
USUAL_TEXT = "mean 0.0000 ± 0.0000, 00,000 values"  # of a histogram


class MetricChart(KeyboardFocus, Chart):
    """`edited` is emitted when the user chose another metric, layer or axis, `removed` to take the panel away, and
    `moved(places)` to exchange it with its neighbour. With the focus on the panel, arrows move the cursor from value to
    value: `pointed(x)`, None for none."""

    edited = Signal()
    removed = Signal()
    moved = Signal(int)
    pointed = Signal(object)
    released = Signal()
    least_plot = 200

    def __init__(self, choice: Choice) -> None:
        super().__init__("")
        self.choice = choice
        self._metric = metric_of(choice.metric) or FIXED[0]
        self._mode: Mode = "step"
        self._weight = 0.0
        self._cursor: float | None = None
        self._smoothers: dict[int, Smoother] = {}
        self._offered: list[tuple[str, str]] = []
        self._layers: tuple[str, ...] = ()
        self.legend.most_lines = len(RUN_COLORS)
        self.plot.show_epochs = False
        self.bars = RunHistograms()
        self.body.addWidget(self.bars, 1)
        self._make_tools()
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        self.plot.pointed.connect(self.pointed)
        self.plot.double_clicked.connect(self.released)
        self._take()

    def _make_tools(self) -> None:
        self.heading.hide()
        self.metric_field, self.layer_field = (
            ChoiceField((), pairs=True),
            ChoiceField((), pairs=True),
        )
        self.metric_field.setAccessibleName("Metric of the panel")
        self.layer_field.setAccessibleName("Layer of the panel")
        for field in (self.metric_field, self.layer_field):
            field.setMinimumWidth(FIELD)  # longer names are cut with an ellipsis
        self.metric_field.edited.connect(self._choose_metric)
        self.layer_field.edited.connect(
            lambda layer: self._choose(self.choice._replace(layer=layer))
        )
        self.more = icon_button("more", "Options of the panel")
        self.menu = QMenu(self.more)
        self.more.clicked.connect(self._show_menu)
        self.close_button = icon_button("close", "Remove the panel")
        self.close_button.clicked.connect(self.removed)
        self.tools.addWidget(self.metric_field, 3)
        self.tools.addWidget(self.layer_field, 2)
        self.tools.addWidget(self.more)
        self.tools.addWidget(self.close_button)

    def _show_menu(self) -> None:
        self.fill_menu()
        self.menu.popup(self.more.mapToGlobal(self.more.rect().bottomLeft()))

    def fill_menu(self) -> None:
        """List what can be done with the panel."""
        self.menu.clear()
        if not self._metric.histogram:
            log = self.menu.addAction("Log axis")
            log.setCheckable(True)
            log.setChecked(self.log)
            log.triggered.connect(lambda on: self._choose(self.choice._replace(log=on)))
            self.menu.addSeparator()
        self.menu.addMenu(export_menu(self.menu, self._export))
        self.menu.addSeparator()
        for text, offset in (("Move forward", -1), ("Move back", 1)):
            self.menu.addAction(text).triggered.connect(
                lambda _on=False, shift=offset: self.moved.emit(shift)
            )
        self.menu.addAction("Remove").triggered.connect(self.removed)

    def _export(self, kind: str) -> None:
        name = self.title.replace(":", "").replace("/", "per")
        export_as(
            self, "Export the panel", name, kind, lambda path: self.write(path, kind)
        )

    def write(self, path: Path, kind: str) -> None:
        """Write the panel as "png" or "svg", or its numbers as "csv". Raises OSError."""
        csv = kind == "csv"
        atomic.write_bytes(
            path,
            to_csv(self._metric, self.choice, self.runs).encode()
            if csv
            else self._picture(kind),
        )

    def _picture(self, kind: str) -> bytes:
        """Return the panel with its title in place of its fields."""
        focused = self.focusWidget()
        tools = (self.metric_field, self.layer_field, self.more, self.close_button)
        shown = [widget for widget in tools if widget.isVisibleTo(self)]
        self.heading.set(self.title)
        self.heading.show()
        for tool in shown:
            tool.hide()
        present(self.layout()).activate()
        try:
            return export.picture(self, kind, self.title)
        finally:
            self.heading.hide()
            for tool in shown:
                tool.show()
            present(self.layout()).activate()
            if focused in shown:
                focused.setFocus()

    # -- what it shows ------------------------------------------------------------------------------------------------

    @property
    def log(self) -> bool:
        """Return whether the vertical axis is logarithmic."""
        return self._metric.log if self.choice.log is None else self.choice.log

    @property
    def title(self) -> str:
        return self._metric.title + (
            f", {self.choice.layer}" if self.choice.layer else ""
        )

    def _choose_metric(self, key: str) -> None:
        metric = metric_of(key) or FIXED[0]
        layers = layers_of(metric, self._histories)
        keeps_layer = self.choice.layer in layers
        self._choose(
            Choice(key, self.choice.layer if keeps_layer else next(iter(layers), ""))
        )

    def _choose(self, choice: Choice) -> None:
        self.choice = choice
        self._take()
        self.redraw()
        self.edited.emit()

    def _take(self) -> None:
        """Have the plot, the fields and the names follow the choice."""
        self._metric = metric_of(self.choice.metric) or FIXED[0]
        self.plot.left.set_kind(
            "log" if self.log else "percent" if self._metric.percent else "number"
        )
        self.plot.view.free_y = False
        self.plot.setVisible(not self._metric.histogram)
        self.bars.setVisible(bool(self._metric.histogram))
        self.legend.set_usual(USUAL_TEXT if self._metric.histogram else "")
        self.setAccessibleName(f"Panel: {self.title}")
        for picture in (self.plot, self.bars):
            picture.setAccessibleName(self.title)
        self.ceiling = 100.5 if self._metric.percent and not self.log else np.inf
        self._smoothers.clear()
        self.offer()

    def set_runs(self, runs: Sequence[ComparedRun]) -> None:
        """Show these runs, in their colours."""
        self.runs = runs
        self._cursor = None
        self._smoothers.clear()
        self.offer()

    @property
    def _histories(self) -> list[History]:
        return [run.history for run in self.runs]

    def offer(self) -> None:
        """Fill the fields with metrics of the runs and layers of the chosen one; the current choice stays listed."""
        choices = [(metric.key, metric.title) for metric in offered(self._histories)]
        current = (self._metric.key, self._metric.title)
        choices = choices if current in choices else [current, *choices]
        if choices != self._offered:
            self._offered = choices
            _fill(self.metric_field, choices)
        self.metric_field.set_value(current[0])
        layers = layers_of(self._metric, self._histories)
        if self.choice.layer and self.choice.layer not in layers:
            layers = (self.choice.layer, *layers)
        if layers != self._layers:
            self._layers = layers
            _fill(self.layer_field, [(layer, layer) for layer in layers])
        if self.choice.layer:
            self.layer_field.set_value(self.choice.layer)
        self.layer_field.setVisible(bool(layers))

    def _reading(self, history: History) -> Reading:
        return self._metric.read(history, self.choice.layer)

    def set_axes(self, mode: Mode, weight: float) -> None:
        """Set the horizontal axis and the smoothing."""
        if weight != self._weight:
            self._smoothers.clear()
        self._mode, self._weight = mode, weight
        self.plot.bottom.set_kind(X_KINDS[mode])

    def end(self, mode: Mode) -> float:
        """Return the end of the longest run on a horizontal axis."""
        ends = (TimeScale(history, mode).end() for history in self._histories)
        return max(ends, default=0.0)

    def prepare(self, index: int) -> Reading:
        """Read and smooth the values of one run; a `redraw` has only what is new then to smooth."""
        reading = self._reading(self._histories[index])
        if not self._weight or self._metric.by_epoch:
            return reading
        smoother = self._smoothers.get(index)
        done = len(smoother) if smoother is not None else 0
        if smoother is None or not self._metric.grows or done > len(reading.values):
            smoother, done = Smoother(self._weight), 0
            self._smoothers[index] = smoother
        smoother.extend(reading.values[done:])
        return reading._replace(values=smoother.values)

    def curves(self) -> Sequence[Series]:
        by_epoch, smoothed = self._metric.by_epoch, bool(self._weight)
        curves = []
        for index, (run, color) in enumerate(zip(self.runs, RUN_COLORS, strict=False)):
            reading = self.prepare(index)
            curves.append(
                Series(
                    run.label,
                    TimeScale(run.history, self._mode),
                    reading.steps,
                    reading.values,
                    reading.seconds,
                    color,
                    self._figure,
                    run.title,
                    "dots" if by_epoch else "line",
                    width=1.0 if by_epoch else 1.5,
                    opacity=0.45 if by_epoch else 1.0,
                    dots=by_epoch,
                    mean=smoothed or by_epoch,
                    pointed=True,
                )
            )
        return curves

    def redraw(self) -> None:
        """Update the picture to the runs, for the x range in view."""
        if self._metric.histogram:
            self._draw_histograms()
            return
        self.shown = self.curves()
        self.fit(self.plot.draw(self.shown))
        cuts = [
            cut
            for run, color in zip(self.runs, RUN_COLORS, strict=False)
            for cut in cut_lines(run.history, self._mode, f"{run.title}: ", color)
        ]
        self.plot.backdrop.set_cuts(cuts)
        self.show_cursor(self._cursor)

    def _draw_histograms(self) -> None:
        kind, layer = self._metric.histogram, self.choice.layer
        entries, shown = [], []
        for color, run in zip(RUN_COLORS, self.runs, strict=False):
            title = run.title
            newest = newest_histogram(kind, run.history, layer)
            if newest is None:
                entries.append(_absent(run.label, run.title, color))
                continue
            shown.append(RunHistogram(title, color, *newest))
            entries.append(
                LegendEntry(run.label, histogram_text(newest[1]), color, "line", title)
            )
        self.bars.show_histograms(shown)
        self._tell(entries)

    def _tell(self, entries: Sequence[LegendEntry]) -> None:
        self.legend.set_entries(entries)
        self.setAccessibleDescription("; ".join(self.legend.texts))

    # -- the cursor ---------------------------------------------------------------------------------------------------

    def show_cursor(self, x: float | None) -> None:
        """Put the cursor at an x of the axis; None takes it away."""
        self._cursor = x
        if not self._metric.histogram:
            super().show_cursor(x)

    def show_legend(self, x: float | None = None) -> None:
        self._tell(self.entries(x))

    def entries(self, x: float | None = None) -> Sequence[LegendEntry]:
        entries = []
        for of in self.shown:
            if of.value_at(None) is None:
                entries.append(_absent(of.label, of.short, of.color))
                continue
            value = self._text_at(of, x)
            entries.append(LegendEntry(of.label, value, of.color, of.mark, of.short))
        if self.plot.omitted:
            text = "values of 0 and less omitted"
            entries.append(LegendEntry(text, "", -1, "dash", "≤ 0 omitted"))
        return entries

    def _text_at(self, of: Series, x: float | None) -> str:
        value = of.value_at(x)
        return "–" if value is None else of.text(value)

    def _figure(self, value: float) -> str:
        if self._metric.percent:
            return formatting.percent_sign(value / 100)
        return formatting.figure(value)

    def rows(self, x: float) -> list[Row]:
        """Return the lines of the readout at an x: each run with its value."""
        colors = theme.current().series
        return [
            (
                colors[of.color],
                of.short,
                ABSENT if of.value_at(None) is None else self._text_at(of, x),
            )
            for of in self.shown
        ]

    def show_readout(self, x: float) -> None:
        """Show the values at an x in a box beside it."""
        heading = {
            "step": f"step {round(x):,}",
            "epoch": f"epoch {x:.2f}",
            "time": f"{x:.1f} s",
        }[self._mode]
        self.plot.show_readout(x, heading, "", self.rows(x))

    def keyPressEvent(self, event: QKeyEvent) -> None:
        keys = {Qt.Key.Key_Left: -1, Qt.Key.Key_Right: 1}
        if event.key() in keys and self.hasFocus():
            self._step_cursor(keys[Qt.Key(event.key())])
        elif event.key() == Qt.Key.Key_Delete and self.hasFocus():
            self.removed.emit()
        elif event.key() == Qt.Key.Key_Escape and self._cursor is not None:
            self.pointed.emit(None)
        else:
            super().keyPressEvent(event)

    def _step_cursor(self, direction: int) -> None:
        """Move the cursor to the next value, of any run, in view."""
        low, high = self.plot.view.viewRange()[0]
        places_of: list[Floats] = [np.empty(0)]
        for history in self._histories:
            read = self._reading(history)
            x = TimeScale(history, self._mode).x_of(read.steps, read.seconds)
            shown = x[(x >= low) & (x <= high)]
            places_of.append(shown[:: max(1, len(shown) // self.plot.pixels)])
        positions = np.unique(np.concatenate(places_of))
        if not len(positions):
            return
        at = len(positions)
        if self._cursor is not None:
            at = int(
                np.searchsorted(
                    positions, self._cursor, "left" if direction < 0 else "right"
                )
            )
        at = at - 1 if direction < 0 or self._cursor is None else at
        self.pointed.emit(float(positions[min(max(at, 0), len(positions) - 1)]))
        announce(self, "; ".join(self.legend.texts))

    # -- looks --------------------------------------------------------------------------------------------------------

    def minimumSizeHint(self) -> QSize:
        least = super().minimumSizeHint()
        return QSize(
            least.width(), max(least.height(), round(LOWEST * theme.manager().scale))
        )

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        self.paint_ring(painter, QRectF(self.rect()).adjusted(2, 2, -2, -2), 4)
        painter.end()


def histogram_text(values: Histogram) -> str:
    """Return mean, deviation and count of a histogram as text.

    >>> histogram_text(Histogram("fc", -1.0, 1.0, (3, 5), 0.25, 0.5, size=10, not_finite=2))
    'mean 0.250 ± 0.500, 2 not finite, 10 values'
    """
    count = values.size or sum(values.counts) + values.not_finite
    parts = (
        [f"mean {formatting.figure(values.mean)} ± {formatting.figure(values.std)}"]
        if values.recorded
        else []
    )
    if values.not_finite:
        parts.append(f"{formatting.grouped_digits(values.not_finite)} not finite")
    return ", ".join([*parts, f"{formatting.grouped_digits(count)} values"])


def _absent(label: str, title: str, color: int) -> LegendEntry:
    return LegendEntry(f"{label}: {ABSENT}", "", color, short=f"{title}: {ABSENT}")


def _fill(field: ChoiceField, choices: Sequence[tuple[str, str]]) -> None:
    field.clear_choices()
    for value, text in choices:
        field.add_choice(value, text)


def to_csv(metric: Metric, choice: Choice, runs: Sequence[ComparedRun]) -> str:
    """Return what a panel shows as CSV, in full precision: a row per stored value of a run, or bin of a histogram."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    named = ("run", "layer", "step")
    writer.writerow(
        (*named, "low", "high", "count") if metric.histogram else (*named, metric.title)
    )
    rows = _bins if metric.histogram else _values
    for run in runs:
        writer.writerows(
            (run.label, choice.layer, *row) for row in rows(metric, choice, run)
        )
    return out.getvalue()


def _values(
    metric: Metric, choice: Choice, run: ComparedRun
) -> Iterator[tuple[Any, ...]]:
    reading = metric.read(run.history, choice.layer)
    for step, value in zip(
        reading.steps.tolist(), reading.values.tolist(), strict=True
    ):
        yield int(step), "" if value != value else repr(value)


def _bins(
    metric: Metric, choice: Choice, run: ComparedRun
) -> Iterator[tuple[Any, ...]]:
    newest = newest_histogram(metric.histogram, run.history, choice.layer)
    if newest is None:
        return
    step, values = newest
    wide = (values.high - values.low) / len(values.counts)
    for at, count in enumerate(values.counts):
        yield (
            step,
            repr(values.low + at * wide),
            repr(values.low + (at + 1) * wide),
            count,
        )
