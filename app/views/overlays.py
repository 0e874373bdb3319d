"""The overlay over the nodes of the canvas that the user chose: gradients of a run, costs, or numbers of a file."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal

from app.util.formatting import significant

if TYPE_CHECKING:
    from PySide6.QtGui import QImage

    from app.builder.shapes.network_cost import NetworkCost
    from app.diagram.numbers import Numbers

LEAST_SHARE = 0.001  # smaller shares of the network have the lowest colour


class Overlays(QObject):
    """`changed(name)` reports the chosen overlay, `offered(name, on)` whether one has something to draw; the other
    signals carry its data to the canvas.

    `gradients_drawn(norms by node, lowest, highest, step or None)`, `heat_drawn(place on the ramp by node, texts by
    node, bounds, caption)`, `pictures_drawn(QImages by node)`, `numbers_drawn(Numbers or None)` for the picture of an
    opened model, and `cost_known(NetworkCost or None)` with the cost of the net or of the open block.
    """

    changed = Signal(str)
    offered = Signal(str, bool)
    gradients_drawn = Signal(object, float, float, object)
    heat_drawn = Signal(object, object, object, str)
    pictures_drawn = Signal(object)
    numbers_drawn = Signal(object)
    cost_known = Signal(object)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._chosen = ""
        self._model_paths: Callable[[], frozenset[str]] = frozenset

    @property
    def chosen(self) -> str:
        """The name of the overlay in view."""
        return self._chosen

    @property
    def model_paths(self) -> frozenset[str]:
        """The paths of the layers of the opened model."""
        return self._model_paths()

    def take_model_paths(self, paths: Callable[[], frozenset[str]]) -> None:
        """Let the page of opened models say which layers its model has."""
        self._model_paths = paths

    def choose(self, name: str) -> None:
        """Have another overlay drawn."""
        if name != self._chosen:
            self._chosen = name
            self.heat_drawn.emit({}, {}, ("", ""), "")
            self.changed.emit(name)

    def offer(self, name: str, on: bool) -> None:
        """Say whether an overlay has something to draw in this project; one that has not is taken away."""
        self.offered.emit(name, on)

    def draw_gradients(
        self,
        norms: Mapping[str, Sequence[float]],
        low: float = 1e-3,
        high: float = 10.0,
        step: int | None = None,
    ) -> None:
        """Draw gradient norms on the nodes, oldest first, on a log scale from `low` to `high`; none take them away.
        The last one is that of `step`, else the newest.
        """
        self.gradients_drawn.emit(norms, low, high, step)

    def draw_costs(
        self,
        name: str,
        shares: Mapping[str, float],
        texts: Mapping[str, str],
        caption: str = "",
    ) -> None:
        """Draw the nodes' shares of a whole, with texts, while this overlay is in view; none take them away."""
        span = -math.log(LEAST_SHARE)
        heat = {
            node: 1 + math.log(max(share, LEAST_SHARE)) / span
            for node, share in shares.items()
        }
        bounds = (f"{significant(100 * LEAST_SHARE)} %", "100 %")
        self.draw_heat(name, heat, texts, bounds, caption)

    def draw_heat(
        self,
        name: str,
        heat: Mapping[str, float],
        texts: Mapping[str, str],
        bounds: tuple[str, str],
        caption: str,
    ) -> None:
        """Draw a strip on each node at its place on the ramp, from 0 to 1, with a text, while this overlay is in view;
        none take them away.

        `bounds` are the texts at the ends of the ramp in the legend, `caption` says what it measures.
        """
        if name == self._chosen:
            self.heat_drawn.emit(heat, texts, bounds, caption)

    def draw_numbers(self, numbers: Numbers | None) -> None:
        """Draw the numbers of a file on the picture of the opened model; None takes them away."""
        self.numbers_drawn.emit(numbers)

    def draw_pictures(self, pictures: Mapping[str, Sequence[QImage]]) -> None:
        """Draw small pictures in the nodes; none take them away."""
        self.pictures_drawn.emit(pictures)

    def know_cost(self, cost: NetworkCost | None) -> None:
        """Publish the cost of the graph in view, None if there is none for its nodes."""
        self.cost_known.emit(cost)
