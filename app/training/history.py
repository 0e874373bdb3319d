"""The history of a run: growing columns for curves, maps and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from itertools import groupby
from operator import attrgetter

import numpy as np

from app.training.columns import Array, Columns
from app.training.events import (
    Caught,
    Cut,
    EpochDone,
    Event,
    Failed,
    GainFigures,
    GradientNorms,
    GroupRates,
    Histograms,
    LayerFigures,
    Looking,
    LossParts,
    MemorySample,
    RateSet,
    Skipped,
    Started,
    StepDone,
)
from app.training.monitoring.layer_history import LayerHistory

__all__ = ["Array", "Columns", "History"]

_STEPS = ("step", "epoch", "loss", "samples", "seconds", "rate")
_STEP = attrgetter(*_STEPS)
MAIN = "the main group"  # of parameters: those that lie in no group of the project


class History:
    """The columns of one run. `add` consumes its events; views read the columns that they draw.

    `gradients` has one column per layer (a matrix of layers by samples), `gradient_steps` the step of each sample;
    `seen` has further measurements of layers, `looking` the cost of telemetry so far, `cuts` the surgeries. `marks` say
    what happened at some steps: a watch point held, or the loss was not finite.
    """

    # `scores` has the metrics of the validation samples besides accuracy, a row per epoch, a column each.

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Remove everything."""
        self.started: Started | None = None
        self.steps = Columns(*_STEPS)
        self.rates_set = Columns("step", "rate")  # by hand
        self.group_rates = Columns(
            "step"
        )  # of several parameter groups, a row where one changed, the main one first
        self.parts = Columns(
            "step"
        )  # the losses of several outputs, a column `loss_<output>` each
        self.epochs = Columns(
            "epoch",
            "step",
            "train_loss",
            "train_accuracy",
            "val_loss",
            "val_accuracy",
            "seconds",
        )
        self.scores = Columns("epoch", "step", "seconds")
        self.memory = Columns(
            "step", "seconds", "allocated", "reserved", "peak", "resident"
        )
        self.gradients = Columns()
        self._gradient_steps = Columns("step")
        self.seen = LayerHistory()
        self.looking: Looking | None = None
        self.marks: dict[int, str] = {}
        self.cuts: tuple[Cut, ...] = ()

    @property
    def layers(self) -> tuple[str, ...]:
        """Return the layers of the gradient matrix, top row first."""
        return self.gradients.names

    @property
    def gradient_steps(self) -> Array:
        return self._gradient_steps["step"]

    def extend(self, events: Iterable[Event]) -> None:
        for steps, together in groupby(events, lambda event: type(event) is StepDone):
            if steps:
                self.steps.extend(np.array([*map(_STEP, together)], dtype=np.float64).T)
            else:
                for event in together:
                    self.add(event)

    def mark(self, step: int, message: str) -> None:
        """Mark a step at which something happened; the first of several texts is kept."""
        self.marks.setdefault(step, message)

    def add(self, event: Event) -> None:
        match event:
            case Caught() | Skipped():
                self.mark(event.step, event.message)
            case Failed(kind="not finite"):
                self.mark(event.step + 1, event.message)
            case StepDone():
                self.steps.append(*_STEP(event))
            case LossParts():
                names = tuple(f"loss_{name}" for name in event.outputs)
                if self.parts.names[1:] != names:
                    self.parts = Columns("step", *names)
                self.parts.append(event.step, *event.losses)
            case GroupRates():
                names = tuple(f"rate_{group}" for group in event.groups)
                if self.group_rates.names[1:] != names:
                    self.group_rates = Columns("step", *names)
                self.group_rates.append(event.step, *event.rates)
            case RateSet():
                self.rates_set.append(event.step, event.rate)
            case GradientNorms():
                if event.layers != self.layers:
                    self._rename_layers(event.layers)
                self.gradients.append(*event.norms)
                self._gradient_steps.append(event.step)
            case LayerFigures() | GainFigures() | Histograms():
                self.seen.add(event)
            case Looking():
                self.looking = event
            case Cut():
                self.cuts = (
                    *(cut for cut in self.cuts if cut.stage < event.stage),
                    event,
                )
                if event.layers != self.layers:
                    self._rename_layers(event.layers)
            case EpochDone():
                if len(self.epochs) and self.epochs["epoch"][-1] >= event.epoch:
                    self.epochs.cut(
                        int(np.searchsorted(self.epochs["epoch"], event.epoch))
                    )
                self.epochs.append(
                    *(getattr(event, name) for name in self.epochs.names)
                )
                self._add_scores(event)
            case MemorySample():
                self.memory.append(
                    *(getattr(event, name) for name in self.memory.names)
                )
            case Started() if event.resumed_at and event.layers in (
                self.layers,
                (),
            ):  # a script knows of no layers
                self.started = event
                self._go_on_after(event.resumed_at)
            case Started():
                self.clear()
                self.started = event
                self.gradients = Columns(*event.layers)

    def rates_of(self, group: str, window: slice = slice(None)) -> Array:
        """Return the learning rate of a parameter group at each step of a window, shape (steps,); NaN before it was
        known.
        """
        group_rates, steps = self.group_rates, self.steps["step"][window]
        if not len(group_rates):
            return np.full(len(steps), np.nan)
        rows = np.searchsorted(group_rates["step"], steps, "right") - 1
        return np.where(
            rows < 0, np.nan, group_rates[f"rate_{group}"][np.maximum(rows, 0)]
        )

    @property
    def main_group(self) -> str:
        """The path of the parameter group whose rate `steps` has; "" for parameters outside the project's groups."""
        names = self.group_rates.names[1:]
        return names[0].removeprefix("rate_") if names else ""

    def newest_rates(self) -> dict[str, float]:
        """Return each parameter group's rate at the newest step, the main one first; empty before the first step."""
        if not len(self.steps):
            return {}
        main, last = self.main_group, slice(-1, None)
        others = {
            name: float(self.rates_of(name, last)[0])
            for name in self.own_rates
            if name != main
        }
        return {main: float(self.steps["rate"][-1]), **others}

    @property
    def own_rates(self) -> tuple[str, ...]:
        """Return the parameter groups of the project with a known learning rate."""
        return tuple(
            name.removeprefix("rate_")
            for name in self.group_rates.names[1:]
            if name != "rate_"
        )

    @property
    def metrics(self) -> tuple[str, ...]:
        """Return the metrics that `scores` has a column for."""
        return self.scores.names[3:]

    def _add_scores(self, event: EpochDone) -> None:
        names = tuple(name for name, _ in event.metrics)
        if not names:
            return
        if names != self.metrics:
            self.scores = Columns("epoch", "step", "seconds", *names)
        self.scores.cut(int(np.searchsorted(self.scores["epoch"], event.epoch)))
        self.scores.append(
            event.epoch,
            event.step,
            event.seconds,
            *(value for _, value in event.metrics),
        )

    def add_gradients(
        self, layers: tuple[str, ...], steps: Array, norms: Array
    ) -> None:
        """Append the norms of a stage of a stored run: `norms` of shape (layers, samples)."""
        if layers != self.layers:
            self._rename_layers(layers)
        self.gradients.extend(norms)
        self._gradient_steps.extend(steps[None])

    def _rename_layers(self, layers: tuple[str, ...]) -> None:
        """Replace the layers for later rows, as for a script that creates another optimizer; earlier rows get NaN."""
        before, self.gradients = self.gradients, Columns(*layers)
        old = before.matrix()
        rows = np.full((len(layers), len(before)), np.nan)
        for index, name in enumerate(layers):
            if name in before.names:
                rows[index] = old[before.names.index(name)]
        self.gradients.extend(rows)

    def _go_on_after(self, step: int) -> None:
        """Drop everything after the checkpoint that the run resumes from."""
        self.seen.cut(step)
        self.marks = {at: message for at, message in self.marks.items() if at <= step}
        self.cuts = tuple(cut for cut in self.cuts if cut.step <= step)
        self.gradients.cut(int(np.searchsorted(self.gradient_steps, step, "right")))
        step_columns = (
            self.steps,
            self.epochs,
            self.scores,
            self.memory,
            self.rates_set,
            self.group_rates,
            self.parts,
        )
        for columns in (*step_columns, self._gradient_steps):
            columns.cut(int(np.searchsorted(columns["step"], step, "right")))

    def samples_per_second(self, window: float = 2.0) -> float | None:
        """Return the throughput over the last `window` seconds; None with fewer than two steps in them, or where the
        times of the steps are not known.
        """
        seconds = self.steps["seconds"]
        if len(seconds) < 2 or (self.started is not None and not self.started.timed):
            return None
        # Steps that were read in one batch, as from the file of a watched run, imply no speed.
        together = int(np.searchsorted(seconds, seconds[0], "right")) - 1
        first = max(int(np.searchsorted(seconds, seconds[-1] - window)), together)
        span = seconds[-1] - seconds[first]
        return (
            float(self.steps["samples"][first + 1 :].sum() / span) if span > 0 else None
        )

    def to_csv(self) -> str:
        """Return one row per step and per epoch, in chronological order, at full precision.

        `rate` is the learning rate of the main parameter group at the step, `rate_<path>` that of each other group;
        `loss_<output>` are the losses of several outputs before their weights.
        """
        out = io.StringIO()
        parts = self.parts.names[1:]
        rates = {
            f"rate_{name}": self.rates_of(name).tolist() for name in self.own_rates
        }
        figures = (
            "loss",
            *parts,
            "rate",
            *rates,
            "train_loss",
            "train_accuracy",
            "val_loss",
            "val_accuracy",
        )
        scores = tuple(f"val_{name}" for name in self.metrics)
        header = ("event", "epoch", "step", *figures, *scores, "seconds")
        writer = csv.DictWriter(
            out, header, lineterminator="\r\n"
        )  # quotes fields only where needed
        writer.writeheader()
        epochs = _rows(self.epochs, "epoch")
        score_rows = {row["epoch"]: row for row in _rows(self.scores, "epoch")}
        for row in epochs:
            row |= {
                f"val_{name}": score_rows.get(row["epoch"], {}).get(name, "")
                for name in self.metrics
            }
        steps = _rows(self.steps, "step")
        if parts:
            losses = {row["step"]: row for row in _rows(self.parts, "")}
            for row in steps:
                row |= {
                    name: losses.get(row["step"], {}).get(name, "") for name in parts
                }
        for name, values in rates.items():
            for row, value in zip(steps, values, strict=True):
                row[name] = "" if np.isnan(value) else value
        rows = [*steps, *epochs]
        for row in sorted(rows, key=lambda row: (row["step"], row["event"] == "epoch")):
            writer.writerow(
                {name: value for name, value in row.items() if name in header}
            )
        return out.getvalue().replace("\r\n", "\n")


def _rows(columns: Columns, event: str) -> list[dict[str, str | int | float]]:
    integer_columns = {"step", "epoch", "samples"}
    rows: list[dict[str, str | int | float]] = []
    for values in columns.matrix().T.tolist():
        row: dict[str, str | int | float] = {"event": event}
        for name, value in zip(columns.names, values, strict=True):
            row[name] = (
                ""
                if np.isnan(value)
                else int(value)
                if name in integer_columns
                else value
            )
        rows.append(row)
    return rows
