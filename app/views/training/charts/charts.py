"""The curves of a run: loss, accuracy, learning rate, memory and throughput, each a card over one plot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace

from app.runs.record import TAGGED
from app.training.history import MAIN, History
from app.training.metrics import is_share, label_of
from app.util import formatting
from app.util.formatting import MEBIBYTE
from app.util.language import grouped
from app.views.shown_run import ComparedRun
from app.views.training.charts import metrics, series, ticks
from app.views.training.charts.axis import Scale
from app.views.training.charts.card import ChartCard, LegendEntry
from app.views.training.charts.plot import CutLine, StepPlot
from app.views.training.charts.readout import Row
from app.views.training.charts.series import (
    Floats,
    Mode,
    Series,
    Smoother,
    TimeScale,
)
from app.views.ui import theme

X_KINDS: dict[Mode, Scale] = {"step": "count", "epoch": "number", "time": "clock"}
# Of the run that is shown and of those beside it; the last ones are those that no chart uses otherwise.
RUN_COLORS = (0, 2, 4, 3, 5)
COLORS = 6  # of a theme
FURTHER = 2  # the first colour behind those of training and validation; there are four


class Chart(ChartCard):
    """A card with one plot over the steps of a run. A subclass says in `curves` what is shown; the page sets the x
    range and the cursor."""

    empty_range = (0.0, 1.0)  # of y, before the first value
    ceiling = np.inf  # of y

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
        self.shown: Sequence[Series] = ()
        self.runs: Sequence[ComparedRun] = ()  # all, where several are compared
        self.history = History()
        self.scale = TimeScale(self.history)
        self.run_name = ""
        self.body.addWidget(self.plot, 1)

    def set_history(self, history: History, mode: Mode) -> None:
        """Read another run, or the same one by another x axis."""
        if history is not self.history:
            self.plot.set_y_range(*self.empty_range)  # not that of the run before
        self.history = history
        self.scale = TimeScale(history, mode)
        self.plot.bottom.set_kind(X_KINDS[mode])

    def curves(self) -> Sequence[Series]:
        """Return what is shown of the history, the lowest curve first."""
        return ()

    def redraw(self) -> None:
        """Update the picture to the history, for the x range in view."""
        self.shown = self.curves()
        self.fit(self.plot.draw(self.shown))
        self._mark_epochs()

    def fit(self, levels: Floats) -> None:
        """Have the y axis reach around what is drawn."""
        if levels.size:
            self.plot.set_y_range(
                *self.limits(float(levels.min()), float(levels.max()))
            )

    def limits(self, low: float, high: float) -> tuple[float, float]:
        """Return the range of y for curves from `low` to `high`."""
        floor = 0.0 if low >= 0 and self.plot.left.kind != "log" else -np.inf
        return ticks.snapped(low, high, floor, self.ceiling)

    def entries(self, x: float | None = None) -> Sequence[LegendEntry]:
        """Return the legend at an x; None for the newest values."""
        return self._entries(x, ("everywhere",))

    def _entries(self, x: float | None, listed: tuple[str, ...]) -> list[LegendEntry]:
        return [
            LegendEntry(
                of.label,
                of.text(value),
                of.color,
                of.mark,
                of.short,
                min(2.3 * of.fill, 1.0) if of.mark == "square" else 1.0,
            )
            for of in self.shown
            if of.listed in listed and (value := of.value_at(x)) is not None
        ]

    def rows(self, x: float) -> Sequence[Row]:
        """Return the lines of the readout at an x."""
        return [
            (entry.color, entry.label, entry.value)
            for entry in self._entries(x, ("everywhere", "readout"))
        ]

    def restyle(self) -> None:
        """Take colours and fonts from the theme in force."""
        self.plot.restyle()

    def show_legend(self, x: float | None = None) -> None:
        self.legend.set_entries(self.entries(x))

    def show_cursor(self, x: float | None) -> None:
        """Put the cursor on the step at an x; None takes it away."""
        self.show_legend(x)
        if x is None:
            self.plot.clear_cursor()
            return
        pointed = [of for of in self.shown if of.pointed]
        values = np.array([of.value_at(x) for of in pointed], dtype=float)
        dots = [
            (level, theme.current().series[of.color])
            for of, level in zip(pointed, self.plot.level(values).tolist(), strict=True)
            if level == level
        ]
        self.plot.cursor_line.show_at(x, tuple(dots))

    def _mark_epochs(self) -> None:
        history, backdrop = self.history, self.plot.backdrop
        epochs = history.epochs
        backdrop.set_epochs(self.scale.x_of(epochs["step"], epochs["seconds"]).tolist())
        backdrop.set_marks(self.scale.x_of(history.rates_set["step"]).tolist())
        marks = np.array(sorted(history.marks), dtype=float)
        backdrop.set_flags(self.scale.x_of(marks).tolist())
        cuts = cut_lines(history, self.scale.mode)
        for run, color in zip(self.runs[1:], RUN_COLORS[1:], strict=False):
            cuts += cut_lines(run.history, self.scale.mode, f"{run.title}: ", color)
        backdrop.set_cuts(cuts)


def cut_lines(
    history: History, mode: Mode, prefix: str = "", color: int = -1
) -> list[CutLine]:
    """Return the lines where the net of a run was edited."""
    steps = np.array([cut.step for cut in history.cuts], dtype=float)
    return [
        CutLine(x, prefix + cut.description, color)
        for x, cut in zip(
            TimeScale(history, mode).x_of(steps).tolist(), history.cuts, strict=True
        )
    ]


class LossChart(Chart):
    """The loss of every step, faint, its moving average over it, and the validation loss of every epoch; of several
    outputs the moving average and validation of each, and of several runs those of each."""

    least_plot = 236  # px: the most important curve

    def __init__(self) -> None:
        super().__init__("Loss")
        self._smoothers: dict[tuple[int, str], Smoother] = {}
        self.smoothing = 0.9
        self._name = ""
        self.log = True
        self.plot.left.set_kind("log")

    @property
    def smoothed(self) -> Floats:
        """The moving average, one value a step."""
        return self._smooth(self.history, "loss", self.history.steps["loss"])

    def set_log(self, log: bool) -> None:
        self.log = log
        self.plot.left.set_kind("log" if log else "number")
        self.plot.view.free_y = False
        self.redraw()

    def set_smoothing(self, weight: float) -> None:
        """Set the weight of the past in the moving average, 0 to less than 1."""
        self.smoothing = weight
        self._smoothers.clear()
        self.redraw()

    def set_loss_name(self, name: str) -> None:
        """Set the name of the loss in torch."""
        self._name = name
        self._show_scale()

    def _smooth(self, history: History, name: str, raw: Floats) -> Floats:
        key = (id(history), name)
        smoother = self._smoothers.get(key)
        if smoother is None or len(smoother) > len(raw):
            smoother = self._smoothers[key] = Smoother(self.smoothing)
        smoother.extend(raw[len(smoother) :])
        return smoother.values

    def set_history(self, history: History, mode: Mode) -> None:
        if history is not self.history:
            self._smoothers.clear()
        super().set_history(history, mode)

    def redraw(self) -> None:
        super().redraw()
        self._show_scale()

    def curves(self) -> Sequence[Series]:
        own = self._of_runs() if self.runs else self._of_run()
        return [*own, *self._parts()]

    def _training(self, label: str, run: History, **look: Any) -> Series:
        """Return the moving average of the loss."""
        values = self._smooth(run, "loss", run.steps["loss"])
        return Series(
            label,
            TimeScale(run, self.scale.mode),
            run.steps["step"],
            values,
            run.steps["seconds"],
            mean=self.smoothing > 0,
            finite=False,
            **look,
        )

    def _validation(self, label: str, run: History, **look: Any) -> Series:
        scale, epochs = TimeScale(run, self.scale.mode), run.epochs
        columns = epochs["step"], epochs["val_loss"], epochs["seconds"]
        return Series(label, scale, *columns, dots=True, **look)

    def _of_run(self) -> list[Series]:
        smoothed = self._training(
            "training, smoothed",
            self.history,
            width=2.0,
            listed="readout" if self.smoothing else "",
            pointed=True,
        )
        raw = replace(
            smoothed,
            label="training",
            values=self.history.steps["loss"],
            width=1.0,
            opacity=0.38,
            antialiased=False,
            mean=False,
            drawn=self.smoothing > 0,
            listed="everywhere",
            pointed=False,
        )
        return [
            raw,
            smoothed,
            self._validation("validation", self.history, color=1, mark="dots"),
        ]

    def _of_runs(self) -> list[Series]:
        curves = []
        for run, color in zip(self.runs, RUN_COLORS, strict=False):
            own = run is self.runs[0]
            curves.append(
                self._training(
                    run.label,
                    run.history,
                    color=color,
                    short=run.title,
                    width=2.0 if own else 1.5,
                    pointed=own,
                )
            )
            curves.append(
                self._validation(
                    "", run.history, color=color, width=1.0, opacity=0.45, listed=""
                )
            )
        return curves

    def _parts(self) -> list[Series]:
        """Return the losses of several outputs: for each a smoothed curve, and a dashed one for validation."""
        history, scores, curves = self.history, self.history.scores, []
        steps = history.parts["step"]
        for number, name in enumerate(history.parts.names[1:]):
            label, color = name.removeprefix("loss_"), FURTHER + number % 4
            raw = history.parts[name]
            written = Series(
                label,
                self.scale,
                steps,
                raw,
                color=color,
                short=label,
                drawn=False,
                listed="" if self.runs else "everywhere",
                finite=False,
            )
            smoothed = self._smooth(history, name, raw)
            curves += [
                written,
                replace(written, values=smoothed, mean=True, drawn=True, listed=""),
            ]
            if name in history.metrics:
                curves.append(
                    Series(
                        label,
                        self.scale,
                        scores["step"],
                        scores[name],
                        scores["seconds"],
                        color,
                        dashed=True,
                        listed="",
                    )
                )
        return curves

    def _show_scale(self) -> None:
        scale = "log scale" if self.log else "linear"
        if self.plot.omitted:
            scale += ", non-positive values omitted"
        notes = [self.run_name.split(TAGGED)[0], self._name, scale]
        if self.runs:  # what the marks mean
            smoothed = f", smoothed {self.smoothing:g}" if self.smoothing else ""
            training = f"lines: training{smoothed}"
            notes = [training, "dots: validation", self._name, scale]
        self.heading.set(note=", ".join(filter(None, notes)))


class AccuracyChart(Chart):
    """The share of samples that were classified rightly, in percent, epoch by epoch, and other metrics, dashed; without
    an accuracy all are plotted unscaled."""

    empty_range = (0.0, 100.0)
    ceiling = 100.5

    def __init__(self) -> None:
        super().__init__("Accuracy", "%", plot=StepPlot(kind="percent"))
        self.plot.show_epochs = False

    def redraw(self) -> None:
        shares = has_accuracy(self.history)
        self.heading.set(
            "Accuracy" if shares else "Metrics",
            "%" if shares else "of validation samples",
        )
        self.plot.left.set_kind("percent" if shares else "number")
        self.ceiling = 100.5 if shares else np.inf
        super().redraw()

    def curves(self) -> Sequence[Series]:
        if self.runs:
            shown = [
                self._of_run(run, color)
                for run, color in zip(self.runs, RUN_COLORS, strict=False)
            ]
            return [*shown, *(replace(of, listed="") for of in self._scores())]
        names = ("training", "validation")
        columns = ("train_accuracy", "val_accuracy")
        shown = [
            self._accuracy(
                label, self.history, self.history.epochs[name], color=color, dots=True
            )
            for color, (label, name) in enumerate(zip(names, columns, strict=True))
        ]
        return [*shown, *self._scores()]

    def _accuracy(
        self, label: str, run: History, shares: Floats, **look: Any
    ) -> Series:
        scale = TimeScale(run, self.scale.mode)
        columns = run.epochs["step"], 100 * shares, run.epochs["seconds"]
        return Series(label, scale, *columns, text=_percent, mark="dots", **look)

    def _of_run(self, run: ComparedRun, color: int) -> Series:
        """Return the validation accuracy, or that of training if there is no validation."""
        epochs = run.history.epochs
        shares = epochs["val_accuracy"]
        if np.isnan(shares).all():
            shares = epochs["train_accuracy"]
        return self._accuracy(
            run.label,
            run.history,
            shares,
            short=run.title,
            color=color,
            dots=run is self.runs[0],
        )

    def _scores(self) -> list[Series]:
        """Return the metrics that are no losses; of an accuracy only those are drawn that are shares, too."""
        history, shares, curves = self.history, has_accuracy(self.history), []
        scores, drawn = history.scores, 0
        names = [name for name in history.metrics if not name.startswith("loss_")]
        for name in names:
            fits = not shares or is_share(name)
            # It has no unit; the errors beside it have that of the target.
            at_right = not shares and name == "r2" and len(names) > 1
            curves.append(
                Series(
                    label_of(name) + ", right axis" * at_right,
                    self.scale,
                    scores["step"],
                    (100 if shares and fits else 1) * scores[name],
                    scores["seconds"],
                    FURTHER + drawn % 4 if fits else -1,
                    _percent if shares and fits else formatting.figure,
                    label_of(name).removesuffix(" accuracy") + ", right" * at_right,
                    "dash",
                    dashed=True,
                    drawn=fits,
                    finite=False,
                    at_right=at_right,
                )
            )
            drawn += fits
        return curves


class RateChart(Chart):
    """A curve per parameter group; the newest value is in the heading, or in the legend if there are several."""

    def __init__(self) -> None:
        super().__init__("Learning rate", legend=False)
        self.plot.show_epochs = False
        self.plot.grid_x = False

    def curves(self) -> Sequence[Series]:
        history, groups = self.history, self.history.own_rates
        main = history.main_group
        rates = {
            main or (MAIN if groups else "learning rate"): (
                history.steps["step"],
                history.steps["rate"],
            )
        }
        for name in groups:
            if name != main:
                reading = metrics.group_rate(name, history)
                rates[name] = reading.steps, reading.values
        return [
            Series(
                name,
                self.scale,
                *reading,
                color=number % COLORS,
                short="main" if name == MAIN else name,
                pointed=True,
            )
            for number, (name, reading) in enumerate(rates.items())
        ]

    def limits(self, low: float, high: float) -> tuple[float, float]:
        return 0.0, 1.12 * high

    def show_legend(self, x: float | None = None) -> None:
        entries = self.entries(x)
        several = bool(self.history.own_rates)
        self.legend.setVisible(several)
        self.legend.set_entries(entries if several else ())
        self.heading.set(value=entries[0].value if entries and not several else "")

    def rows(self, x: float) -> Sequence[Row]:
        before = "learning rate, " if self.history.own_rates else ""
        return [
            (color, f"{before}{name}", value) for color, name, value in super().rows(x)
        ]


class MemoryChart(Chart):
    """On CUDA allocated, reserved and peak; on MPS allocated and reserved; elsewhere the process's resident memory."""

    def __init__(self) -> None:
        super().__init__("Memory", "MiB")
        self.plot.show_epochs = False
        self.plot.grid_x = False

    @property
    def of_device(self) -> bool:
        """Return whether the run reported device memory, not the process's."""
        memory = self.history.memory
        return bool(len(memory) and not np.isnan(memory["allocated"][-1]))

    def curves(self) -> Sequence[Series]:
        if not self.of_device:
            return [
                self._of("resident", fill=0.2, mark="square", width=1.0, pointed=True)
            ]
        square = {"mark": "square", "width": 1.0}
        return [
            self._of("allocated", short="alloc.", fill=0.45, pointed=True, **square),
            self._of("peak", color=-1, mark="dash", width=1.25, dashed=True),
            self._of("reserved", short="res.", fill=0.13, opacity=0.6, **square),
        ]

    def _of(self, name: str, **look: Any) -> Series:
        memory = self.history.memory
        unit = "" if self.of_device else " MiB"  # it is in the heading of the others
        return Series(
            name,
            self.scale,
            memory["step"],
            memory[name] / MEBIBYTE,
            memory["seconds"],
            text=lambda size: f"{formatting.mebibytes(size * MEBIBYTE)}{unit}",
            **look,
        )

    def limits(self, low: float, high: float) -> tuple[float, float]:
        return 0.0, ticks.snapped(0.0, high, 0.0)[1]

    def redraw(self) -> None:
        super().redraw()
        if not len(self.history.memory):
            self.heading.set("Memory", "MiB")
        elif self.of_device:
            device = self.history.started.device if self.history.started else ""
            self.heading.set("Device memory", f"MiB, {device}")
        else:
            self.heading.set("Resident memory", "MiB, of the process")

    def rows(self, x: float) -> Sequence[Row]:
        unit = " MiB" if self.of_device else ""  # the legend has it in its heading
        return [(color, name, value + unit) for color, name, value in super().rows(x)]


class ThroughputChart(Chart):
    """Training samples a second, steps of a script, over stretches of at least a tenth of a second."""

    STRETCH = 0.1

    def __init__(self) -> None:
        super().__init__("Throughput", "samples/s", legend=False)
        self.plot.grid_x = False
        self.plot.show_epochs = False

    @property
    def _unit(self) -> str:
        started = self.history.started
        script = started is not None and not started.steps_per_epoch
        return "steps/s" if script else "samples/s"

    def curves(self) -> Sequence[Series]:
        steps = self.history.steps
        window = series.visible(self.scale.of_steps(), *self.plot.view.viewRange()[0])
        seconds, samples = steps["seconds"][window], steps["samples"][window]
        known = seconds if self._timed else seconds[:0]
        ends = stretches(known, self.plot.pixels // 2, self.STRETCH)
        if len(ends) < 2:
            return ()
        counts = np.add.reduceat(samples, ends[:-1] + 1)
        counts[-1] = samples[ends[-2] + 1 : ends[-1] + 1].sum()
        rates = counts / np.maximum(np.diff(seconds[ends]), 1e-9)
        after = steps["step"][window][ends[1:]]
        return [
            Series(
                self._unit, self.scale, after, rates, text=_whole, width=1.0, fill=0.13
            )
        ]

    def limits(self, low: float, high: float) -> tuple[float, float]:
        return 0.0, ticks.snapped(0.0, high, 0.0)[1]

    @property
    def _timed(self) -> bool:
        started = self.history.started
        return started is None or started.timed

    def show_legend(self, x: float | None = None) -> None:
        if not self._timed:
            note = "unknown: this run recorded no times"
            self.heading.set(value="", note=note)
            return
        rate = self.history.samples_per_second() if x is None else self._rate_at(x)
        text = "" if rate is None else _whole(rate)
        self.heading.set(value=text, note=self._unit)

    def _rate_at(self, x: float) -> float | None:
        """Return the rate of the stretch that an x is in."""
        for of in self.shown:
            at = int(np.searchsorted(of.x, x))
            return float(of.values[min(at, len(of.values) - 1)])
        return None

    def rows(self, x: float) -> Sequence[Row]:
        rate = self._rate_at(x)
        if rate is None:
            return []
        return [(theme.current().series[0], self._unit, _whole(rate))]


# The columns of the page beside the loss and the gradient map, each from the top: a chart is shown by being here.
MIDDLE: tuple[Callable[[], Chart], ...] = (AccuracyChart, RateChart)
SIDE: tuple[Callable[[], Chart], ...] = (MemoryChart, ThroughputChart)


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


def has_accuracy(history: History) -> bool:
    """Return whether the run has an accuracy; True before its first epoch."""
    epochs = history.epochs
    return not len(epochs) or bool(np.isfinite(epochs["train_accuracy"][-1]))


def _whole(rate: float) -> str:
    return grouped(f"{rate:,.0f}")


def _percent(value: float) -> str:
    return formatting.percent(value / 100)
