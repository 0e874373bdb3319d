"""Layer assignment."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from app.diagram.layout.model import Link, Vertex


def acyclic(count: int, links: Sequence[Link]) -> tuple[list[bool], list[int]]:
    """Return which links to reverse so that no cycle is left, and the rank of each vertex in the given order."""
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
    """Assign layers by longest path; then move sources, and nodes that depend on sources alone, next to their
    consumers."""
    order = sorted(range(len(vertices)), key=rank.__getitem__)
    after: list[list[int]] = [[] for _ in vertices]
    fed = [False] * len(vertices)  # by a vertex with a fixed layer
    for link in links:
        after[link.tail].append(link.head)
    layer = [0] * len(vertices)
    for vertex in order:
        least = layer[vertex] + 1
        for head in after[vertex]:
            if layer[head] < least:
                layer[head] = least
        heads = after[vertex]
        if (
            fed[vertex]
            or vertices[vertex].pin
            or (len(heads) > 1 and len(set(heads)) > 1)
        ):
            for head in heads:
                fed[head] = True
    for vertex in reversed(order):
        if after[vertex] and not fed[vertex]:
            layer[vertex] = max(
                layer[vertex], min(layer[head] for head in after[vertex]) - 1
            )
    free = [layer[v] for v, vertex in enumerate(vertices) if not vertex.pin] or [0]
    ends = {"first": min(free) - 1, "last": max(free) + 1}
    layer = [
        ends[vertex.pin] if vertex.pin else layer[v]
        for v, vertex in enumerate(vertices)
    ]
    used = {old: new for new, old in enumerate(sorted(set(layer)))}
    return [used[old] for old in layer]
