"""Layered (Sugiyama) layout of boxes in rows, left to right: the engine of all automatic layouts.

Layers by longest path; order within a layer by barycentres, if that reduces crossings; y by isotonic regression, the
least-squares solution that keeps the order without overlap. Long drawings are broken into bands, one below the other
like lines of text; links between bands run through the gutter between them. Nothing recurses, so chains may have any
length.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from app.diagram.layout.coordinates import assign_y
from app.diagram.layout.crossing_order import make_rows, order_rows
from app.diagram.layout.model import Chain, Link, Placed, Rows, Spacing, State, Vertex
from app.diagram.layout.ranks import acyclic, layers
from app.diagram.layout.routes import CROWDED, MOST_TRACKS, draw
from app.diagram.layout.rows import cut_into_bands


class Layered:
    """Boxes in layers, to be placed at several row widths.

    The order of `vertices` is the reading order; links against it are drawn backwards. With `routed` False the caller
    routes the links: they get no route, and none crosses a row between its ends. `tick` is called often while boxes are
    placed, and may raise to end that. Raises ValueError for a self-loop.
    """

    def __init__(
        self,
        vertices: Sequence[Vertex],
        links: Sequence[Link],
        spacing: Spacing | None = None,
        routed: bool = True,
        tick: Callable[[], object] = lambda: None,
    ) -> None:
        if any(link.tail == link.head for link in links):
            raise ValueError("a link leads from a vertex to itself")
        self._vertices, self._spacing, self._routed = (
            list(vertices),
            spacing or Spacing(),
            routed,
        )
        self._tick = tick
        self._turned, rank = acyclic(len(vertices), links)
        self._links = [
            Link(k.head, k.tail, k.head_dy, k.tail_dy, k.label_width, k.below)
            if turn
            else k
            for k, turn in zip(links, self._turned, strict=True)
        ]
        self._layer = layers(self._vertices, self._links, rank)
        self.is_chain = bool(vertices) and _is_chain(self._layer, self._links)
        self._cuts: dict[Rows, State] = {}
        self._known: dict[tuple[tuple[int, ...], ...], Placed] = {}
        self._rows: dict[Rows, int] = {}

    def arrange(self, rows: Rows) -> Placed:
        """Place the boxes in bands at a row limit; a box wider than the limit widens its band."""
        if not self._vertices:
            return Placed([], [], [], 0.0, 0.0)
        state = self._cuts.pop(rows, None) or self._cut(rows)
        self._rows[rows] = len(state.bands)
        key = (*state.bands, tuple(state.arms))
        if key not in self._known:
            if self.is_chain:
                _place_chain(state)
            else:
                make_rows(state)
                order_rows(state)
                assign_y(state)
            self._known[key] = draw(state, self._turned)
        return self._known[key]

    def is_one_row(self, rows: Rows) -> bool:
        """Return whether what was placed at these limits needed one row alone."""
        return self._rows.get(rows) == 1

    def by_scale_bound(
        self, tries: Sequence[Rows], page: tuple[float, float]
    ) -> list[tuple[float, Rows]]:
        """Return (upper bound of the scale at which all fits a page, rows) for each candidate, the best first.

        Computed from the columns alone, so that most candidates need not be placed.
        """
        bounds = []
        for rows in tries:
            width, height = self._least_size(rows)
            bounds.append(
                (min(page[0] / max(width, 1.0), page[1] / max(height, 1.0)), rows)
            )
        return sorted(bounds, key=lambda pair: -pair[0])

    def _least_size(self, rows: Rows) -> tuple[float, float]:
        """Return the width, and a lower bound of the height from stacked boxes and the gaps and tracks of bands."""
        if not self._vertices:
            return 0.0, 0.0
        state = self._cuts[rows] = self._cut(rows)
        spacing, stacks = self._spacing, [0.0] * len(state.band_of_layer)
        for vertex, layer in zip(self._vertices, state.layer, strict=True):
            stacks[layer] += vertex.height + spacing.box
        gap = min(spacing.band, spacing.frame, spacing.fold)
        gap -= spacing.grid  # by which lines may come nearer to one another
        height = sum(max(stacks[a:b]) - spacing.box + gap for a, b in state.bands) - gap
        if self._routed:
            bands = [state.band_of_layer[layer] for layer in state.layer]
            leaving = Counter(
                bands[link.tail]
                for link in self._links
                if bands[link.tail] != bands[link.head]
            )
            height += (
                sum(min(count, MOST_TRACKS) - 1 for count in leaving.values())
                * spacing.track
                * CROWDED
            )
        return max(state.right), height

    def _cut(self, rows: Rows) -> State:
        self._tick()
        state = State(
            self._vertices,
            self._links,
            self._spacing,
            self._layer,
            self._routed,
            self.is_chain,
            self._tick,
        )
        state.heights = [v.height for v in self._vertices]
        state.weights = [v.weight for v in self._vertices]
        cut_into_bands(state, rows)
        return state


def _is_chain(layer: Sequence[int], links: Sequence[Link]) -> bool:
    """Return whether each layer has one vertex and all links go to the next layer."""
    if len(layer) != max(layer) + 1:
        return False
    return all(layer[link.head] == layer[link.tail] + 1 for link in links)


def _place_chain(state: State) -> None:
    """Assign rows, chains and y; all links are level but those to the next band."""
    layer, links, band_of = state.layer, state.links, state.band_of_layer
    at_layer = [0] * len(layer)
    for vertex, layer_number in enumerate(layer):
        at_layer[layer_number] = vertex
    state.rows = [[vertex] for vertex in at_layer]
    rises: list[list[float]] = [[] for _ in layer]
    for number, link in enumerate(links):
        tail, head = layer[link.tail], layer[link.head]
        band = band_of[tail]
        if band == band_of[head]:
            state.chains.append(Chain(number, [link.tail, link.head], band))
            rises[head].append(link.tail_dy - link.head_dy)
            continue
        state.chains.append(Chain(number, [link.tail], band, leaves=True))
        state.chains.append(Chain(number, [link.head], band_of[head], enters=True))
    state.y = y = [0.0] * len(layer)
    for a, b in state.bands:
        here = least = 0.0
        for layer_number in range(a, b):
            if rise := rises[layer_number]:
                here += sum(rise) / len(rise)
            least = min(least, here)
            y[at_layer[layer_number]] = here
        for layer_number in range(a, b):
            y[at_layer[layer_number]] -= least
