"""First layer whose gradient vanishes or explodes, as text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from app.training.columns import Array
from app.util.formatting import figure, significant
from app.util.language import tr

RECENT = 8  # measurements that are evaluated together
VANISHED = 1e-4  # of the largest norm of the later layers
EXPLODED = 1e3
LARGE_LOSS = 1e3  # at the first step, where a net's outputs lie around 0


class Verdict(Struct, frozen=True):
    """`kind` is "exploding", "vanishing" or "none" (no gradient); `layer` is the first one in the order of backward."""

    kind: str
    layer: str
    text: str


def verdict(
    layers: Sequence[str], norms: Array, first_loss: float = 0.0
) -> Verdict | None:
    """Diagnose the newest gradient norms, shape (layers, samples); None if they are healthy. A `first_loss` that is
    large, as of a target without scale, has large gradients without any exploding.

    Layers come in the order of the net. Backward runs through them from the last to the first, so the first layer that
    vanishes or explodes is the last of them that does.
    """
    if not norms.shape[1] or not len(layers):
        return None
    recent = norms[:, -RECENT:]
    measured = np.asarray(~np.isnan(recent).all(axis=1))
    middle = np.full(len(layers), np.nan)
    middle[measured] = _medians(recent[measured])
    for row in reversed(range(len(layers))):
        if middle[row] > EXPLODED and not LARGE_LOSS < first_loss < np.inf:
            infinite = np.isinf(middle[row])
            text = tr(
                "The gradient explodes: its norm is {norm} at {layer}, the first layer from the loss.",
                norm=tr("infinite") if infinite else significant(middle[row], 2),
                layer=_named(layers[row]),
            )
            return Verdict("exploding", layers[row], text)
    for row in reversed(range(len(layers))):
        behind = middle[row + 1 :][measured[row + 1 :]]
        if not measured[row]:
            continue
        if middle[row] == 0:
            return Verdict(
                "vanishing",
                layers[row],
                tr(
                    "No gradient reaches {layer}: its norm is 0.",
                    layer=_named(layers[row]),
                ),
            )
        if behind.size and middle[row] < VANISHED * behind.max():
            text = tr(
                "The gradient vanishes: {norm} at {layer}, {times} times less than in the layers after it.",
                norm=significant(middle[row], 2),
                layer=_named(layers[row]),
                times=figure(behind.max() / middle[row]),
            )
            return Verdict("vanishing", layers[row], text)
    return None


def _medians(rows: Array) -> Array:
    """The median of each row, nan left out. (`np.nanmedian` imports masked arrays for that, amid a run.)"""
    ordered, counts = np.sort(rows, axis=1), (~np.isnan(rows)).sum(axis=1)
    row = np.arange(len(rows))
    return 0.5 * (ordered[row, (counts - 1) // 2] + ordered[row, counts // 2])


def _named(layer: str) -> str:
    return layer or tr("the network itself")
