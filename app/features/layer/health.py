"""The health of a layer at a measured step: dead units, gradients that are not finite, zero or lost, updates."""

from __future__ import annotations

import math

import numpy as np
from msgspec import Struct

from app.telemetry.gradient_gains import EXPLODED, VANISHED, path_of
from app.telemetry.histogram import Histogram
from app.training.monitoring.layer_history import LayerHistory, LayerTable
from app.util.formatting import figure, grouped_digits, share

USUAL_UPDATES = 1e-4, 3e-2  # the norm of an update over that of the weights


class HealthCheck(Struct, frozen=True):
    """One check: `ok` is None where it was not measured; `detail` has the measured value and its bound."""

    name: str
    value: str
    ok: bool | None
    detail: str


def health_checks(
    history: LayerHistory, layer: str, step: int | None = None
) -> tuple[HealthCheck, ...]:
    """Return the checks of a layer that apply to it, at a step or measured last before it; None for the newest."""
    gradient = histogram_at(history, "gradients", layer, step)
    checks = [*_dead(history.tables["dead"], layer, step)]
    if gradient is not None and gradient.recorded:
        checks += _of_gradient(gradient)
    checks += _reached(history.tables["reach"], layer, step)
    update = _at(history.tables["update"], layer, step)
    if not math.isnan(update):
        low, high = USUAL_UPDATES
        detail = f"Norm of the update over the norm of the weights; {figure(low)} to {figure(high)} is usual"
        checks.append(
            HealthCheck(
                "Update / weight", figure(update), low <= update <= high, detail
            )
        )
    return tuple(checks)


def histogram_at(
    history: LayerHistory, kind: str, layer: str, step: int | None = None
) -> Histogram | None:
    """Return the histogram of a layer that was measured at a step or last before it; None for the newest."""
    series = history.histograms.get(kind)
    samples = series.samples_of(layer) if series is not None else []
    until = [histogram for at, histogram in samples if step is None or at <= step]
    return until[-1] if until else None


def _dead(table: LayerTable, layer: str, step: int | None) -> list[HealthCheck]:
    """Return a check for each activation of the layer, or in it, that returns 0 for negative values."""
    checks = []
    for name in table.layers:
        if (name.rstrip("′") + ".").startswith(f"{layer}."):
            dead = _at(table, name, step)
            if not math.isnan(dead):
                title = "Dead units" + (f", {name}" if name != layer else "")
                detail = "Units, or channels, that are 0 for every sample of the batch; half of them is a lot"
                checks.append(HealthCheck(title, share(dead, 1.0), dead < 0.5, detail))
    return checks


def _of_gradient(gradient: Histogram) -> list[HealthCheck]:
    counted = sum(gradient.counts)
    value_count = counted + gradient.not_finite
    odd = gradient.not_finite
    of = f"of {grouped_digits(value_count)} values" + (
        f", every n-th of {gradient.size:,}" if gradient.sampled else ""
    )
    zeros = gradient.zeros / value_count
    return [
        HealthCheck(
            "NaN or Inf",
            grouped_digits(odd) if odd else "none",
            not odd,
            f"Of the gradient: {grouped_digits(odd)} {of}",
        ),
        HealthCheck(
            "Zero gradients",
            share(zeros, 1.0),
            zeros < 0.5,
            f"Exactly 0: {grouped_digits(gradient.zeros)} {of}; half of them is a lot",
        ),
    ]


def _reached(table: LayerTable, layer: str, step: int | None) -> list[HealthCheck]:
    """Return whether the gradient reaches the layer's input; of several calls that of the last one measured."""
    rows = [_at(table, name, step) for name in table.layers if path_of(name) == layer]
    measured = [value for value in rows if not math.isnan(value)]
    if not measured:
        return []
    worst = min(measured, key=lambda value: -math.inf if math.isinf(value) else value)
    ok = not math.isinf(worst) and VANISHED <= worst <= EXPLODED
    word = (
        "arrives"
        if ok
        else "not finite"
        if math.isinf(worst)
        else "vanishes"
        if worst < VANISHED
        else "explodes"
    )
    detail = (
        f"Norm of the gradient at its input: {figure(worst)} times that at the last layer; "
        f"{figure(VANISHED)} to {figure(EXPLODED)} is healthy"
    )
    return [HealthCheck("Gradient at input", word, ok, detail)]


def _at(table: LayerTable, layer: str, step: int | None) -> float:
    """Return the value at a step or measured last before it, NaN without one."""
    if layer not in table.layers or not len(table):
        return math.nan
    count = (
        len(table) if step is None else int(np.searchsorted(table.steps, step, "right"))
    )
    return float(table.columns[layer][count - 1]) if count else math.nan
