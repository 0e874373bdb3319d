"""Vanishing and exploding gradients: the first such layer, over a run."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from app.telemetry.gradient_gains import EXPLODED, VANISHED
from app.training.columns import Array
from app.training.monitoring.layer_history import LayerTable
from app.util.formatting import significant
from app.util.language import tr


class LostGradient(Struct, frozen=True):
    """`kind` is "vanishes", "explodes" or "non_finite", `layer` the first that does at the newest step `last` at which
    one did, seen from where the gradient comes. It was so at `times` of the steps that were measured, from `first` on.
    """

    kind: str
    layer: str
    first: int
    last: int
    times: int
    text: str


def lost_over(reach: LayerTable) -> tuple[LostGradient, ...]:
    """Return at most one finding of each kind. `reach` is the table of that name of a `LayerHistory`."""
    values = reach.columns.matrix()
    with np.errstate(invalid="ignore"):
        masks = {
            "non_finite": np.isinf(values),
            "vanishes": values < VANISHED,
            "explodes": (values > EXPLODED) & ~np.isinf(values),
        }
    return tuple(
        finding
        for kind, cells in masks.items()
        for finding in _of_kind(kind, cells, values, reach)
    )


def _of_kind(
    kind: str, cells: np.ndarray, values: Array, reach: LayerTable
) -> Iterator[LostGradient]:
    samples = np.flatnonzero(cells.any(axis=0))
    if not samples.size:
        return
    newest, count = samples[-1], len(reach)
    row = int(np.flatnonzero(cells[:, newest])[-1])  # layers are in forward order
    first, last = int(reach.steps[samples[0]]), int(reach.steps[newest])
    value, layer = values[row, newest], reach.layers[row]
    size = significant(value, 2)
    if kind == "vanishes":
        text = tr(
            "Vanishes first at {layer}: at step {step:,} its gradient norm is {size} of that at the last layer, less "
            "than {bound:g}",
            layer=layer,
            step=last,
            size=size,
            bound=VANISHED,
        )
    elif kind == "explodes":
        text = tr(
            "Explodes first at {layer}: at step {step:,} its gradient norm is {size} times that at the last layer, "
            "more than {bound:g}",
            layer=layer,
            step=last,
            size=size,
            bound=EXPLODED,
        )
    else:
        text = tr(
            "Not finite first at {layer}: at step {step:,} its gradient is NaN or infinite",
            layer=layer,
            step=last,
        )
    when = tr("found at every measured step")
    if samples.size < count:
        when = tr(
            "found at {number:,} of {total:,} measured steps",
            number=samples.size,
            total=count,
        )
    if samples.size > 1:
        when += tr(", from step {first:,} to {last:,}", first=first, last=last)
    now = "" if newest == count - 1 else tr("; not at the newest")
    text = f"{text}; {when}{now}."
    yield LostGradient(kind, layer, first, last, int(samples.size), text)
