"""Pieces one behind the other, as most groups and long chains are: nothing to sort, and no link goes round a box."""

from __future__ import annotations

from collections.abc import Sequence

from app.diagram.layout.model import Chain, Link, State


def is_string(layer: Sequence[int], links: Sequence[Link]) -> bool:
    """One vertex in each layer, and links to the next one alone."""
    if len(layer) != max(layer) + 1:
        return False
    return all(layer[link.head] == layer[link.tail] + 1 for link in links)


def string(state: State) -> None:
    """Rows, chains and heights: every link is level, but for those that lead to the next band."""
    layer, links, band_of = state.layer, state.links, state.band_of_layer
    at_layer = [0] * len(layer)
    for vertex, place in enumerate(layer):
        at_layer[place] = vertex
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
        for place in range(a, b):
            if rise := rises[place]:
                here += sum(rise) / len(rise)
            least = min(least, here)
            y[at_layer[place]] = here
        for place in range(a, b):
            y[at_layer[place]] -= least
