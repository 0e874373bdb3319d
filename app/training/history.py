"""What a run told, as growing columns for curves, maps and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from app.training.events import EpochDone, Event, GradientNorms, MemorySample, Started, StepDone

Array = NDArray[np.float64]


class Columns:
    """Rows of float64 numbers of one width; appending is amortised, reading a column copies nothing."""

    def __init__(self, *names: str) -> None:
        self.names = names
        self._data: Array = np.empty((len(names), 256))
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, name: str) -> Array:
        """The column as a read-only view, shape (rows,)."""
        return self.matrix()[self.names.index(name)]

    def append(self, *row: float | None) -> None:
        """Add a row; None becomes nan."""
        if self._count == self._data.shape[1]:
            grown = np.empty((len(self.names), 2 * self._count))
            grown[:, : self._count] = self._data
            self._data = grown
        self._data[:, self._count] = [np.nan if value is None else value for value in row]
        self._count += 1

    def extend(self, rows: Array) -> None:
        """Add many rows at once, shape (columns, rows)."""
        kept = self._data[:, : self._count]
        self._data = np.concatenate([kept, rows, np.empty((len(self.names), 256))], axis=1)
        self._count += rows.shape[1]

    def cut(self, count: int) -> None:
        """Keep the first `count` rows."""
        # In an array of its own: what is appended next must not show in views that were handed out.
        self._data = np.concatenate([self._data[:, :count], np.empty((len(self.names), 256))], axis=1)
        self._count = count

    def matrix(self) -> Array:
        """All columns as a read-only view, shape (columns, rows)."""
        view = self._data[:, : self._count]
        view.flags.writeable = False
        return view


class History:
    """The columns of one run. `add` takes the events as they come; views read what they draw.

    `gradients` holds one column a layer (a matrix of layers by samples), `gradient_steps` the step of each sample.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Begin anew."""
        self.started: Started | None = None
        self.steps = Columns("step", "epoch", "loss", "samples", "seconds")
        self.epochs = Columns("epoch", "step", "train_loss", "train_accuracy", "val_loss", "val_accuracy", "seconds")
        self.memory = Columns("step", "seconds", "allocated", "reserved", "peak", "resident")
        self.gradients = Columns()
        self._gradient_steps = Columns("step")

    @property
    def layers(self) -> tuple[str, ...]:
        """The layers of the gradient matrix, top row first."""
        return self.gradients.names

    @property
    def gradient_steps(self) -> Array:
        return self._gradient_steps["step"]

    def extend(self, events: Iterable[Event]) -> None:
        for event in events:
            self.add(event)

    def add(self, event: Event) -> None:
        match event:
            case StepDone():
                self.steps.append(event.step, event.epoch, event.loss, event.samples, event.seconds)
            case GradientNorms():
                self.gradients.append(*event.norms)
                self._gradient_steps.append(event.step)
            case EpochDone():
                if len(self.epochs) and self.epochs["epoch"][-1] >= event.epoch:
                    self.epochs.cut(int(np.searchsorted(self.epochs["epoch"], event.epoch)))
                self.epochs.append(*(getattr(event, name) for name in self.epochs.names))
            case MemorySample():
                self.memory.append(*(getattr(event, name) for name in self.memory.names))
            case Started() if event.resumed_at and event.layers == self.layers:
                self.started = event
                self._go_on_after(event.resumed_at)
            case Started():
                self.clear()
                self.started = event
                self.gradients = Columns(*event.layers)

    def add_gradients(self, layers: tuple[str, ...], steps: Array, norms: Array) -> None:
        """Take in the norms of a run that was kept: `norms` of shape (layers, samples)."""
        self.gradients, self._gradient_steps = Columns(*layers), Columns("step")
        self.gradients.extend(norms)
        self._gradient_steps.extend(steps[None])

    def _go_on_after(self, step: int) -> None:
        """Let go of what a run told after the checkpoint that it goes on from."""
        self.gradients.cut(int(np.searchsorted(self.gradient_steps, step, "right")))
        for columns in (self.steps, self.epochs, self.memory, self._gradient_steps):
            columns.cut(int(np.searchsorted(columns["step"], step, "right")))

    def samples_per_second(self, window: float = 2.0) -> float | None:
        """The speed over the last `window` seconds of the run; None before there are two steps in them."""
        seconds = self.steps["seconds"]
        if len(seconds) < 2:
            return None
        first = int(np.searchsorted(seconds, seconds[-1] - window))
        span = seconds[-1] - seconds[first]
        return float(self.steps["samples"][first + 1 :].sum() / span) if span > 0 else None

    def to_csv(self) -> str:
        """One row a step and one an epoch, in the order in which they happened; numbers in full precision."""
        out = io.StringIO()
        figures = ("loss", "train_loss", "train_accuracy", "val_loss", "val_accuracy")
        header = ("event", "epoch", "step", *figures, "seconds")
        writer = csv.DictWriter(out, header, lineterminator="\n")
        writer.writeheader()
        rows = [*_rows(self.steps, "step"), *_rows(self.epochs, "epoch")]
        for row in sorted(rows, key=lambda row: (row["step"], row["event"] == "epoch")):
            writer.writerow({name: value for name, value in row.items() if name in header})
        return out.getvalue()


def _rows(columns: Columns, event: str) -> list[dict[str, str | int | float]]:
    whole = {"step", "epoch", "samples"}
    rows: list[dict[str, str | int | float]] = []
    for values in columns.matrix().T.tolist():
        row: dict[str, str | int | float] = {"event": event}
        for name, value in zip(columns.names, values, strict=True):
            row[name] = "" if np.isnan(value) else int(value) if name in whole else value
        rows.append(row)
    return rows
