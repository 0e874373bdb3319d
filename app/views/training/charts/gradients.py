"""The gradient matrix of a run prepared for painting: bounds of the heat ramp, rows by node. Qt-free."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np
from msgspec import Struct

from app.source.generated import Path, Source
from app.training.columns import Columns
from app.training.history import History

DECADES = 6  # of a ramp at most; smaller values get the lowest colour
NEWEST = 32


class Bounds(Struct, frozen=True):
    """The ends of the heat ramp; `clipped`: smaller norms than `low` were measured. `log` is its scale."""

    low: float
    high: float
    clipped: bool = False
    log: bool = True

    def position(self, norm: float) -> float:
        """Return the position of a norm on the ramp, 0 to 1; nan for none."""
        if not self.log:
            return min(max((norm - self.low) / (self.high - self.low), 0.0), 1.0)
        if not norm > 0:
            return 0.0 if norm == 0 else math.nan
        return min(
            max(math.log10(norm / self.low) / math.log10(self.high / self.low), 0.0),
            1.0,
        )


class BoundsTracker:
    """Bounds in whole decades over all norms of a run, updated incrementally."""

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._matrix: object = None
        self._seen = 0
        self._least, self._most = math.inf, 0.0

    def update(self, history: History) -> Bounds | None:
        """Return the current bounds of the gradient norms; None until one is above zero."""
        return self.bounds_of(history.gradients)

    def bounds_of(self, columns: Columns) -> Bounds | None:
        """Return the bounds of a per-layer quantity."""
        if columns is not self._matrix:
            self._clear()
            self._matrix = columns
        new = columns.matrix()[:, self._seen :]
        self._seen = len(columns)
        usable = new[np.isfinite(new) & (new > 0)]
        if usable.size:
            self._least, self._most = (
                min(self._least, float(usable.min())),
                max(self._most, float(usable.max())),
            )
        if not self._most:
            return None
        high = math.ceil(math.log10(self._most) - 1e-9)
        low = math.floor(math.log10(self._least) + 1e-9)
        shown = min(max(low, high - DECADES), high - 1)
        return Bounds(10.0**shown, 10.0**high, low < shown)


def nodes_by_layer(source: Source, layers: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Map each layer to the nodes that own its module; several if weights are shared."""
    owners: dict[str, tuple[str, ...]] = {}
    beside = ((node, path) for node, paths in source.further.items() for path in paths)
    for node, path in (*source.modules.items(), *beside):
        owners[path] = (*owners.get(path, ()), node)
    nodes: dict[str, tuple[str, ...]] = {}
    for layer in layers:
        path = layer
        while path and path not in owners:
            path = path.rpartition(".")[0]
        nodes[layer] = owners.get(path, ())
    return nodes


class Overlay(Struct, frozen=True):
    """Values of the canvas overlay: up to `NEWEST` norms per node, oldest first, and the limits of the ramp."""

    norms: Mapping[str, tuple[float, ...]] = {}
    low: float = 0.001
    high: float = 10.0


class GradientOverlay:
    """Reads the newest norms of a run for the nodes of the source that it trains.

    The norm of a block is that of all gradients in it. `within` is the source of the visible sheet, if that is not the
    network.
    """

    def __init__(self, source: Source, history: History) -> None:
        self._source, self._history = source, history
        self._bounds = BoundsTracker()

    def read(
        self, newest: int = NEWEST, within: Path = (), until: int | None = None
    ) -> Overlay | None:
        """Return the overlay of a graph, as it was `until` a step; None before the first measurement. The cost is
        constant.
        """
        bounds = self._bounds.update(self._history)
        if bounds is None:
            return None
        rows = self._history.gradients.matrix()
        if until is not None:
            rows = rows[
                :, : int(np.searchsorted(self._history.gradient_steps, until, "right"))
            ]
        rows = rows[:, -newest:]
        source = self._source.within(within) if within else self._source
        of_node: dict[str, list[int]] = {}
        for number, nodes in enumerate(
            nodes_by_layer(source, self._history.layers).values()
        ):
            for node in nodes:
                of_node.setdefault(node, []).append(number)
        norms = {
            node: tuple(_together(rows[numbers])) for node, numbers in of_node.items()
        }
        return Overlay(norms, bounds.low, bounds.high)


def _together(rows: np.ndarray) -> list[float]:
    """Return the joint gradient norm of several layers at each step."""
    return (
        rows[0] if len(rows) == 1 else np.sqrt(np.square(rows).sum(axis=0))
    ).tolist()
