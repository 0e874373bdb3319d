"""Layout of chains, where each vertex links to the next one alone: nothing to sort, and no link bends around a box."""

from __future__ import annotations

from collections.abc import Sequence

from app.diagram.layout.model import Chain, Link, State


def is_chain(layer: Sequence[int], links: Sequence[Link]) -> bool:
    """Return whether each layer has one vertex and all links go to the next layer."""
    if len(layer) != max(layer) + 1:
        return False
    return all(layer[link.head] == layer[link.tail] + 1 for link in links)


def place_chain(state: State) -> None:
    """Assign rows, chains and y; all links are level but those to the next band."""
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
