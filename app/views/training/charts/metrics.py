"""What runs have stored over their steps, as metrics that a panel can show. Qt-free."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from msgspec import Struct

from app.telemetry.histogram import Histogram
from app.training.columns import Columns
from app.training.history import History
from app.training.metrics import is_share, label_of
from app.util.formatting import MEBIBYTE
from app.views.training.charts.series import Floats

NOTHING = np.empty(0)
KINDS = {"activations": "Activations", "gradients": "Gradients", "weights": "Weights"}
FIGURES = {
    "mean": "mean",
    "std": "std",
    "zeros": "fraction of zeros",
    "largest": "largest magnitude",
}
TABLES = {
    "update": "Update / weight",
    "weight": "Weight norm",
    "dead": "Fraction of dead units",
    "gain": "Gradient gain",
    "reach": "Gradient norm relative to the last layer",
}
_totals: WeakKeyDictionary[History, tuple[Columns, Floats]] = (
    WeakKeyDictionary()
)  # each sample is summed once
SCORE, PART, RATE = (
    "score:",
    "part:",
    "rate:",
)  # before the name of a metric, an output or a parameter group


class Choice(NamedTuple):
    """What a panel shows: the key of a metric, the layer that it is of, "" for one of the whole run; on which axis."""

    metric: str
    layer: str = ""
    log: bool | None = None  # None for the usual axis of the metric


class Reading(NamedTuple):
    """Values of a run and the steps that they were measured after; the seconds, where they are known."""

    steps: Floats = NOTHING
    seconds: Floats | None = None
    values: Floats = NOTHING

    @property
    def recorded(self) -> bool:
        """Return whether any value is a number."""
        return bool(np.isfinite(self.values).any())


class Metric(Struct, frozen=True):
    """`by_epoch`: one value an epoch, which is not smoothed. `layers` lists those of a run; None if it has none.
    `log`: the usual axis. `percent`: the values lie between 0 and 100. `histogram`: the kind whose newest histogram is
    shown in place of values over the steps."""

    key: str
    title: str
    read: Callable[[History, str], Reading]
    layers: Callable[[History], tuple[str, ...]] | None = None
    by_epoch: bool = False
    log: bool = False
    percent: bool = False
    histogram: str = ""

    @property
    def grows(self) -> bool:
        """Return whether values are only appended; histograms are thinned during a run."""
        return not self.key.startswith(tuple(f"{kind}." for kind in KINDS))


def _step_column(name: str, history: History, _layer: str) -> Reading:
    return Reading(history.steps["step"], history.steps["seconds"], history.steps[name])


def _epoch_column(name: str, factor: float, history: History, _layer: str) -> Reading:
    return Reading(
        history.epochs["step"], history.epochs["seconds"], factor * history.epochs[name]
    )


def _score(name: str, history: History, _layer: str) -> Reading:
    if name not in history.metrics:
        return Reading()
    return Reading(
        history.scores["step"], history.scores["seconds"], history.scores[name]
    )


def _part(name: str, history: History, _layer: str) -> Reading:
    return _of(history.parts, name)


def _of(columns: Columns, name: str) -> Reading:
    return (
        Reading(columns["step"], None, columns[name])
        if name in columns.names[1:]
        else Reading()
    )


def group_rate(group: str, history: History, _layer: str = "") -> Reading:
    if group not in history.own_rates:
        return Reading()
    changes, last = (
        history.group_rates,
        history.steps["step"][-1:],
    )  # one row per change of a rate
    steps = (
        np.repeat(np.append(changes["step"], last), 2)[1:-1] if len(last) else NOTHING
    )
    return Reading(steps, None, np.repeat(changes[f"rate_{group}"], 2)[: len(steps)])


def _memory(history: History, _layer: str) -> Reading:
    memory = history.memory
    on_device = bool(np.isfinite(memory["allocated"]).any())
    return Reading(
        memory["step"],
        memory["seconds"],
        memory["allocated" if on_device else "resident"] / MEBIBYTE,
    )


def _gradient_norm(history: History, _layer: str) -> Reading:
    """Return the norm of all gradients together; layers without a gradient count as 0."""
    columns, norms = _totals.get(history, (None, NOTHING))
    if columns is not history.gradients or len(norms) > len(history.gradients):
        norms = NOTHING
    new = history.gradients.matrix()[:, len(norms) :]
    if new.size:
        norms = np.concatenate([norms, np.sqrt(np.nansum(np.square(new), axis=0))])
        _totals[history] = (history.gradients, norms)
    return Reading(history.gradient_steps[: len(norms)], None, norms)


def _gradient_of_layer(history: History, layer: str) -> Reading:
    return (
        Reading(history.gradient_steps, None, history.gradients[layer])
        if layer in history.layers
        else Reading()
    )


def _table(name: str, history: History, layer: str) -> Reading:
    table = history.seen.tables[name]
    return (
        Reading(table.steps, None, table.columns[layer])
        if layer in table.layers
        else Reading()
    )


def _figure(kind: str, name: str, history: History, layer: str) -> Reading:
    series = history.seen.histograms.get(kind)
    samples = (
        [sample for sample in series.samples_of(layer) if sample[1].recorded]
        if series is not None
        else []
    )
    if name == "zeros":  # of the values that were looked at
        values = [
            histogram.zeros / max(sum(histogram.counts) + histogram.not_finite, 1)
            for _, histogram in samples
        ]
    else:
        values = [float(getattr(histogram, name)) for _, histogram in samples]
    return Reading(
        np.array([float(step) for step, _ in samples]), None, np.array(values)
    )


def newest_histogram(
    kind: str, history: History, layer: str
) -> tuple[int, Histogram] | None:
    """Return the newest histogram of a layer with its step; None if the run has none."""
    series = history.seen.histograms.get(kind)
    return (
        next(iter(series.samples_of(layer)[-1:]), None) if series is not None else None
    )


def _no_steps(_history: History, _layer: str) -> Reading:
    return Reading()


def _histogram_layers(kind: str, history: History) -> tuple[str, ...]:
    series = history.seen.histograms.get(kind)
    newest = series.samples[-1][1] if series is not None and series.samples else {}
    return tuple(newest)


def _table_layers(name: str, history: History) -> tuple[str, ...]:
    return history.seen.tables[name].layers


def _fixed() -> tuple[Metric, ...]:
    epochs = (
        ("val_loss", "Validation loss", 1.0),
        ("val_accuracy", "Validation accuracy", 100.0),
        ("train_loss", "Training loss by epoch", 1.0),
        ("train_accuracy", "Training accuracy", 100.0),
    )
    return (
        Metric("loss", "Training loss", partial(_step_column, "loss"), log=True),
        *(
            Metric(
                name,
                title,
                partial(_epoch_column, name, factor),
                by_epoch=True,
                log=factor == 1,
                percent=factor > 1,
            )
            for name, title, factor in epochs
        ),
        Metric("rate", "Learning rate", partial(_step_column, "rate")),
        Metric("gradient_norm", "Gradient norm", _gradient_norm, log=True),
        Metric("memory", "Memory, MiB", _memory),
    )


def _by_layer() -> tuple[Metric, ...]:
    return (
        Metric(
            "gradient",
            "Layer: gradient norm",
            _gradient_of_layer,
            lambda history: history.layers,
            log=True,
        ),
        *(
            Metric(
                name,
                f"Layer: {title[:1].lower()}{title[1:]}",
                partial(_table, name),
                partial(_table_layers, name),
                log=name != "dead",
            )
            for name, title in TABLES.items()
        ),
        *(
            Metric(
                f"{kind}.{name}",
                f"Layer: {title.lower()}, {figure_title}",
                partial(_figure, kind, name),
                partial(_histogram_layers, kind),
                log=name == "std",
            )
            for kind, title in KINDS.items()
            for name, figure_title in FIGURES.items()
        ),
        *(
            Metric(
                f"{kind}.histogram",
                f"{title}, histogram",
                _no_steps,
                partial(_histogram_layers, kind),
                histogram=kind,
            )
            for kind, title in KINDS.items()
        ),
    )


FIXED, BY_LAYER = _fixed(), _by_layer()
_KNOWN = {metric.key: metric for metric in (*FIXED, *BY_LAYER)}
DEFAULT = (
    Choice("loss"),
    Choice("val_loss"),
    Choice("val_accuracy"),
    Choice("gradient_norm"),
)


def metric_of(key: str) -> Metric | None:
    """Return the metric of a key; None for one of another version.

    >>> metric_of("score:f1").title, metric_of("other") is None
    ('Validation F1', True)
    """
    if key.startswith(SCORE):
        name = key.removeprefix(SCORE)
        word = label_of(name)
        return Metric(
            key,
            f"Validation {word}",
            partial(_score, name),
            by_epoch=True,
            log=not is_share(name),
        )
    if key.startswith(PART):
        name = key.removeprefix(PART)
        return Metric(key, f"Training {label_of(name)}", partial(_part, name), log=True)
    if key.startswith(RATE):
        group = key.removeprefix(RATE)
        return Metric(key, f"Learning rate of {group}", partial(group_rate, group))
    return _KNOWN.get(key)


def offered(histories: Iterable[History]) -> list[Metric]:
    """Return the metrics that any of these runs has stored: first those of whole runs, then those of layers."""
    histories = tuple(histories)
    metric_keys = [
        *(f"{SCORE}{name}" for history in histories for name in history.metrics),
        *(f"{PART}{name}" for history in histories for name in history.parts.names[1:]),
        *(f"{RATE}{name}" for history in histories for name in history.own_rates),
    ]
    metrics = [metric_of(key) for key in dict.fromkeys(metric_keys)]
    run_metrics = [
        *FIXED[:5],
        *(metric for metric in metrics if metric is not None),
        *FIXED[5:],
    ]
    return [
        *(
            metric
            for metric in run_metrics
            if any(metric.read(history, "").recorded for history in histories)
        ),
        *(metric for metric in BY_LAYER if layers_of(metric, histories)),
    ]


def known_parts(histories: Iterable[History]) -> tuple[object, ...]:
    """Return what decides which metrics are offered: it changes when a run has measured something new."""
    return tuple(
        (
            bool(len(history.steps)),
            bool(len(history.epochs)),
            history.metrics,
            history.parts.names,
            history.group_rates.names,
            bool(len(history.gradients)),
            history.layers,
            bool(len(history.memory)),
            tuple(history.seen.histograms),
            tuple(table.layers for table in history.seen.tables.values()),
        )
        for history in histories
    )


def layers_of(metric: Metric, histories: Iterable[History]) -> tuple[str, ...]:
    """Return the layers that a metric was measured of in any of these runs; none for one of whole runs."""
    if metric.layers is None:
        return ()
    return tuple(
        dict.fromkeys(
            layer for history in histories for layer in metric.layers(history)
        )
    )
