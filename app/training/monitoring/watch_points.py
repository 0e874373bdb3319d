"""Watch points (breakpoints) of a run: the conditions that pause it, and their messages."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from msgspec import Struct, to_builtins

from app.util.formatting import significant


class WatchPoints(Struct, frozen=True):
    """Conditions to pause at: a loss that is nan or infinite, a layer's gradient norm above `gradient_norm`, a layer
    with a fraction of `dead` or more units that were 0 for a whole batch, more than `memory` bytes allocated on the
    device, or resident for the CPU. None: not watched.

    No step is taken on a batch whose loss is not finite; LBFGS, which has changed the weights by then, stops as usual.
    All but the loss are checked on measured steps only. Each location is reported once per run.
    """

    not_finite: bool = False
    gradient_norm: float | None = None
    dead: float | None = None
    memory: int | None = None

    def problem(self) -> str:
        """Validate the limits; return the error message, "" if valid."""
        if self.gradient_norm is not None and not (
            math.isfinite(self.gradient_norm) and self.gradient_norm > 0
        ):
            return f"The gradient norm limit is {self.gradient_norm:g}; it must be above 0."
        if self.dead is not None and not 0 < self.dead <= 1:
            return f"The fraction of dead units is {self.dead:g}; it must be above 0 and at most 1."
        if self.memory is not None and self.memory <= 0:
            return f"The memory limit is {self.memory:,} bytes; it must be above 0."
        return ""


def to_text(points: WatchPoints) -> str:
    """Serialize them to JSON for the settings."""
    return json.dumps(to_builtins(points))


def from_text(text: str) -> WatchPoints:
    """Parse the conditions; nothing is watched if the text is invalid."""
    try:
        raw = json.loads(text)
        points = WatchPoints(
            bool(raw["not_finite"]),
            *(
                None if raw[name] is None else kind(raw[name])
                for name, kind in _KINDS.items()
            ),
        )
    except (ValueError, TypeError, KeyError):
        return WatchPoints()
    return WatchPoints() if points.problem() else points


_KINDS: dict[str, Any] = {"gradient_norm": float, "dead": float, "memory": int}


class WatchHit(Struct, frozen=True):
    """A watch point that was hit. `layer` is "" where it is of no layer."""

    what: str  # "gradient", "dead" or "memory"
    layer: str
    value: float
    message: str


def gradients_above(points: WatchPoints, norms: Mapping[str, float]) -> list[WatchHit]:
    """Return the layers whose gradient norm exceeds the limit or is non-finite; NaN means no gradient."""
    bound = points.gradient_norm
    if bound is None:
        return []
    template = "the gradient norm of {} is {}, above {}"
    return [
        WatchHit(
            "gradient",
            layer,
            norm,
            template.format(layer, significant(norm, 3), significant(bound)),
        )
        for layer, norm in norms.items()
        if norm > bound
    ]


def dead_above(points: WatchPoints, dead: Mapping[str, float]) -> list[WatchHit]:
    """Return the layers whose fraction of dead units exceeds the limit."""
    share = points.dead
    if share is None:
        return []
    return [
        WatchHit(
            "dead",
            layer,
            value,
            f"{100 * value:.0f} % of the units of {layer} are dead: 0 for every sample of the batch",
        )
        for layer, value in dead.items()
        if value >= share
    ]


def memory_above(points: WatchPoints, used: int | None) -> list[WatchHit]:
    """Return whether memory exceeds the limit."""
    if points.memory is None or used is None or used <= points.memory:
        return []
    mebibytes = 1024 * 1024
    text = f"the memory is {used / mebibytes:,.0f} MiB, above {points.memory / mebibytes:,.0f} MiB"
    return [WatchHit("memory", "", float(used), text)]
