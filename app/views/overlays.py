"""The overlay over the nodes of the canvas that the user chose: gradients of a run, or costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal

if TYPE_CHECKING:
    from PySide6.QtGui import QImage

    from app.builder.shapes.network_cost import NetworkCost


class Overlays(QObject):
    """`changed(name)` reports the chosen overlay, `offered(name, on)` whether one has something to draw; the other
    signals carry its data to the canvas.

    `gradients_drawn(norms by node, lowest, highest, step or None)`, `costs_drawn(share by node, words by node,
    caption)`, `pictures_drawn(QImages by node)`, and `cost_known(NetworkCost or None)` with the cost of the net or of
    the open block.
    """

    changed = Signal(str)
    offered = Signal(str, bool)
    gradients_drawn = Signal(object, float, float, object)
    costs_drawn = Signal(object, object, str)
    pictures_drawn = Signal(object)
    cost_known = Signal(object)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._chosen = ""

    @property
    def chosen(self) -> str:
        """The name of the overlay in view."""
        return self._chosen

    def choose(self, name: str) -> None:
        """Have another overlay drawn."""
        if name != self._chosen:
            self._chosen = name
            self.costs_drawn.emit({}, {}, "")
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
        """Draw the nodes' shares of a whole, with words, while this overlay is in view; none take them away."""
        if name == self._chosen:
            self.costs_drawn.emit(shares, texts, caption)

    def draw_pictures(self, pictures: Mapping[str, Sequence[QImage]]) -> None:
        """Draw small pictures in the nodes; none take them away."""
        self.pictures_drawn.emit(pictures)

    def know_cost(self, cost: NetworkCost | None) -> None:
        """Publish the cost of the graph in view, None if there is none for its nodes."""
        self.cost_known.emit(cost)
