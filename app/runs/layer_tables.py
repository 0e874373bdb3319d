"""Store layer statistics of a run: one table row per sample, one histogram table per kind."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace

from app.runs import tables
from app.telemetry.histogram import BINS, Histogram
from app.training.events import (
    Event,
    GainFigures,
    GroupRates,
    Histograms,
    LayerFigures,
    RateSet,
    StepHashes,
)
from app.training.monitoring.layer_history import merged

FIGURES, GAINS, RATES = "layers.bin", "gains.bin", "rates.bin"
GROUP_RATES = "group-rates.bin"
HASHES = "hashes.bin"  # what a step is verified by when it is recomputed
PLACES = (
    "step",
    "epoch",
    "batch",
    "generator",
)  # its columns before those of the layers
KINDS = ("weights", "gradients", "activations")
_PARTS = ("weight", "update", "dead")
_FIGURES = (
    "mean",
    "std",
    "zeros",
    "not_finite",
    "size",
)  # of a histogram, beside its counts


def files() -> tuple[str, ...]:
    """Return the file names of the tables; each has a column `step`."""
    return (
        FIGURES,
        GAINS,
        RATES,
        GROUP_RATES,
        HASHES,
        *(f"histograms-{kind}.bin" for kind in KINDS),
    )


def append(folder: Path, events: Iterable[Event]) -> None:
    """Append the layer statistics and rates of these events. Raises OSError and TableError."""
    figures = [event for event in events if isinstance(event, LayerFigures)]
    for names, group in groupby(figures, _columns):
        _append(
            folder / FIGURES,
            names,
            [(e.step, *e.weights, *e.ratios, *e.dead) for e in group],
        )
    for event in events:
        if isinstance(event, GainFigures):
            _append_gains(folder / GAINS, event)
    for kind in KINDS:
        histograms = [
            event
            for event in events
            if isinstance(event, Histograms) and event.kind == kind
        ]
        for names, of_a_kind in groupby(histograms, _bins):
            rows = [
                (e.step, *(v for histogram in e.layers for v in _values(histogram)))
                for e in of_a_kind
            ]
            _append(folder / f"histograms-{kind}.bin", names, rows)
    rates = [(event.step, event.rate) for event in events if isinstance(event, RateSet)]
    if rates:
        tables.append(folder / RATES, ("step", "rate"), rates)
    for layers, hashed in groupby(
        (e for e in events if isinstance(e, StepHashes)), lambda event: event.layers
    ):
        columns = (*PLACES, *(f"hash/{layer}" for layer in layers))
        hash_rows = np.frombuffer(
            b"".join(event.rows for event in hashed), tables.INTEGERS
        ).reshape(-1, len(columns))
        _append(folder / HASHES, columns, hash_rows, tables.INTEGERS)
    of_groups = [event for event in events if isinstance(event, GroupRates)]
    for names, group_rates in groupby(of_groups, lambda event: event.groups):
        columns = ("step", *(f"rate_{name}" for name in names))
        _append(
            folder / GROUP_RATES,
            columns,
            [(event.step, *event.rates) for event in group_rates],
        )


def _append(
    path: Path, names: tuple[str, ...], rows: Any, kind: str = tables.FLOATS
) -> None:
    """Append rows; a change of layers during a run restarts the table, which has fixed columns."""
    if path.exists() and tuple(tables.names_of(path)) != names:
        path.unlink()
    tables.append(path, names, rows, kind)


def _append_gains(path: Path, event: GainFigures) -> None:
    """Append gains; layers that were not called are nan; new layers require the table to be rewritten."""
    pairs = [*zip(event.layers, event.arriving, event.leaving, strict=True)]
    row = {"step": float(event.step), "reached": event.reached}
    row |= {f"arriving/{layer}": arriving for layer, arriving, _ in pairs}
    row |= {f"leaving/{layer}": leaving for layer, _, leaving in pairs}
    names = existing = tables.names_of(path) if path.exists() else list(row)
    if set(row) - set(existing):
        _, columns = tables.read(path)
        layers = merged(_gain_layers(existing), event.layers)
        names = [
            "step",
            "reached",
            *(
                f"{prefix}/{layer}"
                for prefix in ("arriving", "leaving")
                for layer in layers
            ),
        ]
        wider = np.full((len(names), columns.shape[1]), np.nan)
        wider[[names.index(name) for name in existing]] = columns
        path.unlink()
        tables.append(path, names, wider.T.tolist())
    tables.append(path, names, [[row.get(name) for name in names]])


def _gain_layers(names: list[str]) -> tuple[str, ...]:
    return tuple(
        name.partition("/")[2] for name in names if name.startswith("arriving/")
    )


def _columns(event: LayerFigures) -> tuple[str, ...]:
    lists = zip(_PARTS, (event.layers, event.layers, event.cutting), strict=True)
    return (
        "step",
        *(f"{prefix}/{layer}" for prefix, layers in lists for layer in layers),
    )


def _bins(event: Histograms) -> tuple[str, ...]:
    ends = ("low", "high", *map(str, range(BINS)), *_FIGURES)
    return (
        "step",
        *(f"{histogram.layer}/{end}" for histogram in event.layers for end in ends),
    )


def _values(histogram: Histogram) -> tuple[float, ...]:
    return (
        histogram.low,
        histogram.high,
        *histogram.counts,
        *(getattr(histogram, name) for name in _FIGURES),
    )


def _histogram(layer: str, row: list[float]) -> Histogram:
    """Return a histogram from its columns; those of earlier versions end with the counts."""
    low, high, *counts = row[: BINS + 2]
    histogram = Histogram(layer, low, high, tuple(map(int, counts)))
    if len(row) == BINS + 2:
        return histogram
    mean, std, *integers = row[BINS + 2 :]
    zeros, not_finite, size = map(int, integers)
    return replace(
        histogram, mean=mean, std=std, zeros=zeros, not_finite=not_finite, size=size
    )


def read_events(folder: Path) -> Iterator[Event]:
    """Yield the events that the tables were written from. Raises TableError."""
    names, columns = tables.read(folder / FIGURES)
    layers = {
        prefix: tuple(n.partition("/")[2] for n in names if n.startswith(f"{prefix}/"))
        for prefix in _PARTS
    }
    count = len(layers["weight"])
    for step, *values in columns.T.tolist():
        weights, ratios, dead = (
            values[:count],
            values[count : 2 * count],
            values[2 * count :],
        )
        figures = (
            layers["weight"],
            tuple(weights),
            tuple(ratios),
            layers["dead"],
            tuple(dead),
        )
        yield LayerFigures(int(step), *figures)
    names, columns = tables.read(folder / GAINS)
    gains = _gain_layers(names)
    for step, reached, *values in columns.T.tolist():
        yield GainFigures(
            int(step),
            reached,
            gains,
            tuple(values[: len(gains)]),
            tuple(values[len(gains) :]),
        )
    for kind in KINDS:
        names, columns = tables.read(folder / f"histograms-{kind}.bin")
        wide = (
            BINS
            + 2
            + (
                len(_FIGURES)
                if any(name.endswith(f"/{_FIGURES[0]}") for name in names)
                else 0
            )
        )
        titles = [name.rpartition("/")[0] for name in names[1::wide]]
        for step, *values in columns.T.tolist():
            rows = [values[at : at + wide] for at in range(0, len(values), wide)]
            layers_of = tuple(
                _histogram(layer, row) for layer, row in zip(titles, rows, strict=True)
            )
            yield Histograms(int(step), kind, layers_of)
    for step, rate in tables.read(folder / RATES)[1].T.tolist():
        yield RateSet(int(step), rate)
    names, columns = tables.read(folder / GROUP_RATES)
    for step, *values in columns.T.tolist():
        yield GroupRates(
            int(step),
            tuple(name.removeprefix("rate_") for name in names[1:]),
            tuple(values),
        )
