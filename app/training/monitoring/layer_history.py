"""Layer statistics of a run: tables of norms, and histograms thinned to a fixed number."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from app.telemetry.histogram import Histogram
from app.training.columns import Array, Columns
from app.training.events import GainFigures, Histograms, LayerFigures

MOST = 128  # histograms stored per kind


class LayerTable:
    """One row per layer and one column per sample, with the step of each sample."""

    def __init__(self, *layers: str) -> None:
        self.columns = Columns(*layers)
        self._steps = Columns("step")

    def __len__(self) -> int:
        return len(self._steps)

    @property
    def layers(self) -> tuple[str, ...]:
        return self.columns.names

    @property
    def steps(self) -> Array:
        return self._steps["step"]

    def add(self, step: int, layers: tuple[str, ...], values: Iterable[float]) -> None:
        """Append a sample; new layers are NaN before it, missing ones NaN in it."""
        if layers == self.layers:
            self.columns.append(*values)
        else:
            layer_values = dict(zip(layers, values, strict=True))
            self._widen(merged(self.layers, layers))
            self.columns.append(*(layer_values.get(layer) for layer in self.layers))
        self._steps.append(step)

    def _widen(self, layers: tuple[str, ...]) -> None:
        if layers == self.layers:
            return
        old, self.columns = self.columns, Columns(*layers)
        rows = np.full((len(layers), len(old)), np.nan)
        rows[[layers.index(name) for name in old.names]] = old.matrix()
        self.columns.extend(rows)

    def cut(self, step: int) -> None:
        """Drop everything after a step."""
        count = int(np.searchsorted(self.steps, step, "right"))
        self.columns.cut(count)
        self._steps.cut(count)


def merged(existing: tuple[str, ...], layers: tuple[str, ...]) -> tuple[str, ...]:
    """Merge new layers into the known ones, each before its successor.

    >>> merged(("cell", "head"), ("cell", "cell#2", "head", "last"))
    ('cell', 'cell#2', 'head', 'last')
    """
    merged_layers, index = list(existing), len(existing)
    for layer in reversed(layers):
        if layer in merged_layers:
            index = merged_layers.index(layer)
        else:
            merged_layers.insert(index, layer)
    return tuple(merged_layers)


class HistogramSeries:
    """Histograms of one kind over a run, thinned: at `most` of them, every other one is dropped and the sampling rate
    halves.
    """

    def __init__(self, most: int = MOST) -> None:
        self.samples: list[tuple[int, dict[str, Histogram]]] = []
        self._most, self._stride, self._offered = most, 1, 0

    def add(self, event: Histograms) -> None:
        if self._offered % self._stride == 0:
            self.samples.append(
                (event.step, {histogram.layer: histogram for histogram in event.layers})
            )
            if len(self.samples) > self._most:
                self.samples = self.samples[::2]
                self._stride *= 2
        self._offered += 1

    def cut(self, step: int) -> None:
        self.samples = [sample for sample in self.samples if sample[0] <= step]

    def samples_of(self, layer: str) -> list[tuple[int, Histogram]]:
        """Return the histograms of a layer with their steps."""
        return [
            (step, layers[layer]) for step, layers in self.samples if layer in layers
        ]


class LayerHistory:
    """`tables` by "weight", "update", "dead", "gain" (|grad in| / |grad out|) and "reach" (|grad in| over that of
    the last layer), `histograms` by "weights", "gradients" and "activations"."""

    def __init__(self) -> None:
        self.tables = {
            name: LayerTable() for name in ("weight", "update", "dead", "gain", "reach")
        }
        self.histograms: dict[str, HistogramSeries] = {}
        self.version = 0  # grows with every event

    def add(self, event: LayerFigures | GainFigures | Histograms) -> None:
        self.version += 1
        if isinstance(event, Histograms):
            self.histograms.setdefault(event.kind, HistogramSeries()).add(event)
            return
        if isinstance(event, GainFigures):
            self._add_gains(event)
            return
        self.tables["weight"].add(event.step, event.layers, event.weights)
        self.tables["update"].add(event.step, event.layers, event.ratios)
        self.tables["dead"].add(event.step, event.cutting, event.dead)

    def _add_gains(self, event: GainFigures) -> None:
        leaving, arriving = np.array(event.leaving), np.array(event.arriving)
        for name, by in (("gain", arriving), ("reach", event.reached)):
            with np.errstate(divide="ignore", invalid="ignore"):
                ratios = np.where(
                    np.isinf(leaving), np.inf, np.where(by > 0, leaving / by, np.nan)
                )
            self.tables[name].add(event.step, event.layers, ratios.tolist())

    def cut(self, step: int) -> None:
        """Drop everything after a step."""
        for table in self.tables.values():
            table.cut(step)
        for series in self.histograms.values():
            series.cut(step)
        self.version += 1


def spread(
    samples: list[tuple[int, Histogram]], bins: int
) -> tuple[NDArray[np.float64], float, float]:
    """Resample histograms over time to one scale: the fraction of values in each of `bins` bins, shape (bins, samples),
    lowest first, and the ends of the scale. Counts are spread evenly over their own bin."""
    if not samples:
        return np.empty((bins, 0)), 0.0, 0.0
    low, high = min(h.low for _, h in samples), max(h.high for _, h in samples)
    if not high > low:
        room = 0.1 * abs(low) or 0.5
        low, high = low - room, high + room
    edges = np.linspace(low, high, bins + 1)
    parts = np.empty((bins, len(samples)))
    for index, (_, h) in enumerate(samples):
        total = max(sum(h.counts), 1)
        below = np.concatenate([[0.0], np.cumsum(h.counts) / total])
        # One value alone has no width: it is shown in the part where it lies.
        ends = (
            (h.low, h.high) if h.high > h.low else (h.low, h.low + (high - low) / bins)
        )
        parts[:, index] = np.diff(
            np.interp(edges, np.linspace(*ends, len(h.counts) + 1), below)
        )
    return parts, low, high
