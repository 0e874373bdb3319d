"""Which layer a vertex stands in, and which layers share a band."""

from __future__ import annotations

import heapq

from app.diagram.layout.model import Link, State, Vertex


def acyclic(count: int, links: list[Link]) -> tuple[list[bool], list[int]]:
    """Which links to turn so that no circle is left, and the vertices' ranks: first come, first placed."""
    waiting = [0] * count
    after: list[list[int]] = [[] for _ in range(count)]
    for link in links:
        waiting[link.head] += 1
        after[link.tail].append(link.head)
    ready = [v for v in range(count) if not waiting[v]]
    rank = [-1] * count
    placed, next_blocked = 0, 0
    while placed < count:
        if ready:
            vertex = heapq.heappop(ready)
        else:  # only circles are left: break one at its first vertex
            while rank[next_blocked] >= 0:
                next_blocked += 1
            vertex = next_blocked
        if rank[vertex] >= 0:
            continue
        rank[vertex] = placed
        placed += 1
        for head in after[vertex]:
            waiting[head] -= 1
            if not waiting[head] and rank[head] < 0:
                heapq.heappush(ready, head)
    return [rank[link.tail] > rank[link.head] for link in links], rank


def layers(vertices: list[Vertex], links: list[Link], rank: list[int]) -> list[int]:
    """Longest path from the left, then everything that has more links on its right moves as far right as it can."""
    order = sorted(range(len(vertices)), key=rank.__getitem__)
    after: list[list[int]] = [[] for _ in vertices]
    before = [0] * len(vertices)
    for link in links:
        after[link.tail].append(link.head)
        before[link.head] += 1
    layer = [0] * len(vertices)
    for vertex in order:
        least = layer[vertex] + 1
        for head in after[vertex]:
            if layer[head] < least:
                layer[head] = least
    for vertex in reversed(order):
        if after[vertex] and len(after[vertex]) >= before[vertex]:
            layer[vertex] = max(layer[vertex], min(layer[head] for head in after[vertex]) - 1)
    free = [layer[v] for v, vertex in enumerate(vertices) if not vertex.pin] or [0]
    ends = {"first": min(free) - 1, "last": max(free) + 1}
    layer = [ends.get(vertex.pin, layer[v]) for v, vertex in enumerate(vertices)]
    used = {old: new for new, old in enumerate(sorted(set(layer)))}
    return [used[old] for old in layer]


def cut_into_bands(state: State, limit: float) -> None:
    """Columns, the gaps between them, and cuts: late enough to fill the row, where few links cross."""
    count = max(state.layer) + 1
    widths, edge_only = [0.0] * count, [True] * count
    for vertex, layer in zip(state.vertices, state.layer, strict=True):
        widths[layer] = max(widths[layer], vertex.width)
        edge_only[layer] = edge_only[layer] and bool(vertex.pin)
    gaps = [0.0 if edge_only[n] or n + 1 == count or edge_only[n + 1] else state.spacing.column for n in range(count)]
    crossing = [0] * (count + 1)
    for link in state.links:
        tail, head = state.layer[link.tail], state.layer[link.head]
        crossing[tail] += 1
        crossing[head] -= 1
        if link.label_width and gaps[tail] and head == tail + 1:
            gaps[tail] = max(gaps[tail], link.label_width + state.spacing.label_margin)
    for n in range(1, count):
        crossing[n] += crossing[n - 1]
    start = 0
    while start < count:
        end = _band_end(start, widths, gaps, crossing, limit)
        state.bands.append((start, end))
        state.band_of_layer += [len(state.bands) - 1] * (end - start)
        start = end
    _columns(state, widths, gaps)


def _band_end(start: int, widths: list[float], gaps: list[float], crossing: list[int], limit: float) -> int:
    """The layer behind the last of the band that begins at `start`."""
    reach, x, ends = len(widths), 0.0, []
    for n in range(start, len(widths)):
        x += widths[n]
        if x > limit and n > start:
            reach = n
            break
        ends.append(x)
        x += gaps[n]
    if reach == len(widths):
        return reach
    late = [n for n in range(start + 1, reach + 1) if ends[n - 1 - start] >= 0.55 * limit] or [reach]
    return min(late, key=lambda n: (crossing[n - 1], -n))


def _columns(state: State, widths: list[float], gaps: list[float]) -> None:
    """x of the columns; rows that are nearly full are spread to the full width, like lines of text."""
    totals = [sum(widths[a:b]) + sum(gaps[a : b - 1]) for a, b in state.bands]
    full = max(totals)
    state.left, state.right = [0.0] * len(widths), [0.0] * len(widths)
    for number, (a, b) in enumerate(state.bands):
        inner = sum(1 for n in range(a, b - 1) if gaps[n])
        spare = (full - totals[number]) / inner if inner and number < len(state.bands) - 1 else 0.0
        x = 0.0
        for n in range(a, b):
            state.left[n], state.right[n] = x, x + widths[n]
            x += widths[n] + (gaps[n] + min(spare, 90.0) if gaps[n] else 0.0)
