"""Walk the autograd graph below some tensors without recursion. torch is imported by the caller's tensors alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import torch
from torch.autograd.graph import get_gradient_edge

from app.autograd.tape import ACCUMULATE, TapeEdge

# AccumulateGrad nodes carry the largest sequence number there is, so that the engine runs them first.
LEAF_SEQUENCE = 2**64 - 1


# Names of nodes by class, cached: `node.name()` rebuilds the string on each call.
_names: dict[type, str] = {}


def short_name(node: Any) -> str:
    """torch's own name of the node, less the C++ namespace."""
    kind = type(node)
    name = _names.get(kind)
    if name is None:
        name = node.name().rpartition("::")[2]
        if (
            kind.__name__ == name and kind.__base__ is object
        ):  # not a custom Function, nor a shared class
            _names[kind] = name
    return name


def is_accumulate(node: Any) -> bool:
    return short_name(node) == ACCUMULATE


def edge_of(tensor: Any) -> tuple[Any, int]:
    """Return the node and output number that a tensor's gradient arrives at; for a leaf its AccumulateGrad."""
    if (
        tensor.grad_fn is None and tensor.layout is not torch.strided
    ):  # torch takes a view, which not all layouts have
        with torch.enable_grad():
            return tensor.clone().grad_fn.next_functions[0]
    edge = get_gradient_edge(tensor)
    return edge.node, edge.output_nr


def walk(
    tensors: Iterable[Any], shapes: bool = True
) -> tuple[list[Any], list[TapeEdge], tuple[int, ...]]:
    """Return every node reachable from `tensors`, the edges between them, and the roots' indices.

    Without `shapes` the shapes of gradients are left out, which halves the time. The list keeps the nodes alive while
    they are numbered, since Python reuses the ids of dead objects.
    """
    # grad_fn is read directly where there is one: a gradient edge costs as much as three nodes.
    ends = (t.grad_fn or edge_of(t)[0] for t in tensors if t.requires_grad)
    nodes: list[Any] = list(dict.fromkeys(ends))
    index: dict[Any, int] = {node: number for number, node in enumerate(nodes)}
    roots = tuple(range(len(nodes)))
    todo = list(roots)
    edges: list[TapeEdge] = []
    while todo:
        source = todo.pop()
        for slot, (child, output_nr) in enumerate(nodes[source].next_functions):
            if child is not None:
                target = index.get(child)
                if target is None:
                    target = index[child] = len(nodes)
                    nodes.append(child)
                    todo.append(target)
                shape = _gradient_shape(child, output_nr) if shapes else None
                edges.append(TapeEdge(source, slot, target, output_nr, shape))
    return nodes, edges, roots


def _gradient_shape(node: Any, output_nr: int) -> tuple[int, ...] | None:
    metadata = node._input_metadata
    if output_nr >= len(metadata):
        return None
    try:
        return tuple(map(int, metadata[output_nr].shape))
    except (RuntimeError, AttributeError):  # a nested tensor's sizes are no numbers
        return None


def execution_order(
    sequences: list[int], edges: Iterable[TapeEdge], roots: Iterable[int]
) -> tuple[int, ...]:
    """Return the order in which the engine runs nodes on one device: of those that are ready, the newest.

    `sequences` are the nodes' sequence numbers. Leaves share one number: `_ReadyQueue` reproduces how torch's queue
    breaks the ties.
    """
    waiting: Counter[int] = Counter()
    children: dict[int, list[int]] = {}
    for edge in edges:
        waiting[edge.target] += 1
        children.setdefault(edge.source, []).append(edge.target)
    ready = _ReadyQueue()
    for root in roots:
        if not waiting[root]:
            ready.push(sequences[root], root)
    order: list[int] = []
    while ready.items:
        node = ready.pop()
        order.append(node)
        for child in children.get(node, ()):
            waiting[child] -= 1
            if not waiting[child]:
                ready.push(sequences[child], child)
    return tuple(order)


class _ReadyQueue:
    """A binary heap, the largest number on top, that breaks ties as C++'s `std::priority_queue` does with GCC.

    `heapq` breaks them differently. A pop moves the hole at the top down to the end along the larger children, puts the
    last item there and lets it rise; of two equal children the right one is taken.
    """

    def __init__(self) -> None:
        self.items: list[tuple[int, int]] = []

    def push(self, number: int, node: int) -> None:
        self.items.append((number, node))
        self._rise(len(self.items) - 1, (number, node))

    def pop(self) -> int:
        items = self.items
        top, last = items[0], items.pop()
        count = len(items)
        if count:
            hole = child = 0
            while child < (count - 1) // 2:
                child = 2 * (child + 1)
                if items[child][0] < items[child - 1][0]:
                    child -= 1
                items[hole] = items[child]
                hole = child
            if count % 2 == 0 and child == (count - 2) // 2:
                items[hole] = items[2 * child + 1]
                hole = 2 * child + 1
            self._rise(hole, last)
        return top[1]

    def _rise(self, hole: int, item: tuple[int, int]) -> None:
        items = self.items
        while hole and items[(hole - 1) // 2][0] < item[0]:
            items[hole] = items[(hole - 1) // 2]
            hole = (hole - 1) // 2
        items[hole] = item
