"""The autograd graph below some tensors, walked without recursion. torch is imported by the caller's tensors alone."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable
from typing import Any

from app.autograd.tape import ACCUMULATE, TapeEdge

# AccumulateGrad nodes carry the largest sequence number there is, so that the engine runs them first.
LEAF_SEQUENCE = 2**64 - 1


def short_name(node: Any) -> str:
    """torch's own name of the node, less the C++ namespace."""
    return node.name().rpartition("::")[2]


def is_accumulate(node: Any) -> bool:
    return node.name().endswith(ACCUMULATE)


def walk(tensors: Iterable[Any]) -> tuple[list[Any], list[TapeEdge], tuple[int, ...]]:
    """Every node reachable from `tensors`, the edges between them, and the roots' indices.

    The list keeps the nodes alive while numbers are handed out: Python ids of dead nodes are used again.
    """
    from torch.autograd.graph import get_gradient_edge

    index: dict[Any, int] = {}
    nodes: list[Any] = []
    todo: list[Any] = []

    def number(node: Any) -> int:
        known = index.get(node)
        if known is None:
            known = index[node] = len(nodes)
            nodes.append(node)
            todo.append(node)
        return known

    roots = tuple(dict.fromkeys(number(get_gradient_edge(t).node) for t in tensors if t.requires_grad))
    edges: list[TapeEdge] = []
    while todo:
        node = todo.pop()
        source = index[node]
        for slot, (child, output_nr) in enumerate(node.next_functions):
            if child is not None:
                edges.append(TapeEdge(source, slot, number(child), output_nr, _gradient_shape(child, output_nr)))
    return nodes, edges, roots


def _gradient_shape(node: Any, output_nr: int) -> tuple[int, ...] | None:
    metadata = node._input_metadata
    if output_nr >= len(metadata):
        return None
    return tuple(map(int, metadata[output_nr].shape))


def execution_order(sequences: list[int], edges: Iterable[TapeEdge], roots: Iterable[int]) -> tuple[int, ...]:
    """The order in which the engine runs nodes on one device: of those that are ready, the one made last.

    `sequences` are the nodes' sequence numbers. Nodes of equal number (leaves) keep the order in which they got ready.
    """
    waiting: Counter[int] = Counter()
    children: dict[int, list[int]] = {}
    for edge in edges:
        waiting[edge.target] += 1
        children.setdefault(edge.source, []).append(edge.target)
    ready = [(-sequences[root], place, root) for place, root in enumerate(roots) if not waiting[root]]
    heapq.heapify(ready)
    order: list[int] = []
    arrival = len(ready)
    while ready:
        _, _, node = heapq.heappop(ready)
        order.append(node)
        for child in children.get(node, ()):
            waiting[child] -= 1
            if not waiting[child]:
                heapq.heappush(ready, (-sequences[child], arrival, child))
                arrival += 1
    return tuple(order)
