"""Accumulate incoming gradients before each node while a backward pass is played."""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy
from typing import TYPE_CHECKING

import torch
from msgspec import Struct

from app.autograd.gradient_norms import measure, products
from app.autograd.playback.node_call import added
from app.autograd.playback.steps import FanIn, Share
from app.autograd.sparse import parts_of
from app.autograd.tape import Tape

if TYPE_CHECKING:
    from torch import Tensor

# The edge that a gradient came by, as (source, slot); NO_EDGE for the seed and edited gradients.
Edge = tuple[int, int]
Slot = tuple[int, int]  # (node, output number)
NO_EDGE: Edge = (-1, -1)

# Above this fan-in (a weight that is used at every step of a sequence) only the sum is stored.
MOST_PARTS = 8


class AccumulatedGradient(Struct):
    """The gradients that have arrived at one output of a node, in order of arrival.

    `parts` are stored separately unless `summed`, when only the `total` is. Sums follow the engine's order, so that
    they are bitwise equal to the engine's.
    """

    summed: bool = False
    parts: list[tuple[Edge, Tensor]] = []
    total: Tensor | None = None
    count: int = 0

    def add(self, edge: Edge, gradient: Tensor) -> None:
        self.count += 1
        if self.summed:
            self.total = gradient if self.total is None else added(self.total, gradient)
        else:
            self.parts.append((edge, gradient))
            self.total = None

    def take_back(self, edge: Edge) -> None:
        """Undo the last `add`, if it was of this edge."""
        if self.parts and self.parts[-1][0] == edge:
            self.parts.pop()
            self.count -= 1
            self.total = None

    def sum(self) -> Tensor | None:
        """Return the accumulated gradient; None if nothing has arrived."""
        if self.total is None:
            for _, gradient in self.parts:
                self.total = (
                    gradient if self.total is None else added(self.total, gradient)
                )
        return self.total

    def part(self, edge: Edge) -> Tensor | None:
        """Return the gradient of one edge, if it is stored."""
        return next(
            (gradient for arrival_edge, gradient in self.parts if arrival_edge == edge),
            None,
        )

    def only(self, gradient: Tensor | None) -> Edge:
        """Return the edge that alone provided this tensor; `NO_EDGE` if there is none."""
        return (
            self.parts[0][0]
            if len(self.parts) == 1 and self.parts[0][1] is gradient
            else NO_EDGE
        )

    @property
    def bytes(self) -> int:
        """Approximate size of the stored gradients; shared memory counts for each."""
        gradients = [gradient for _, gradient in self.parts] or (
            [self.total] if self.total is not None else []
        )
        return sum(tensor_bytes(gradient) for gradient in gradients)

    def copied(self) -> AccumulatedGradient:
        """Copy, so that what arrives later does not change it."""
        duplicate = copy(self)
        duplicate.parts = list(self.parts)
        return duplicate


class GradientFlow:
    """Incoming gradients of all nodes, pending and used; used ones allow inspection and stepping back.

    `floor` is the earliest position that can be restored: earlier gradients were summed or released.
    """

    def __init__(self, tape: Tape, keep: int) -> None:
        self.tape, self.keep = tape, keep
        self._meet: dict[Slot, int] = {}
        self._outputs: dict[int, set[int]] = {}
        for edge in tape.edges:
            slot = edge.target, edge.output_nr
            self._meet[slot] = self._meet.get(slot, 0) + 1
        self.clear()

    def clear(self) -> None:
        self.slots: dict[Slot, AccumulatedGradient] = {}
        self.floor = self._kept = self._trimmed = 0

    def seed(self, slot: Slot, gradient: Tensor) -> None:
        self._add(slot, NO_EDGE, gradient)

    @property
    def stored_bytes(self) -> int:
        """Approximate bytes of all stored gradients."""
        return self._kept

    def arrive(self, slot: Slot, edge: Edge, gradient: Tensor, position: int) -> None:
        """Add a gradient sent by the node that runs at `position`."""
        if self._add(slot, edge, gradient).summed:
            self.floor = position + 1

    def _add(self, slot: Slot, edge: Edge, gradient: Tensor) -> AccumulatedGradient:
        arrived = self.slots.get(slot)
        if arrived is None:
            self._outputs.setdefault(slot[0], set()).add(slot[1])
            arrived = self.slots[slot] = AccumulatedGradient(
                summed=self._meet.get(slot, 0) > MOST_PARTS
            )
        before = arrived.bytes
        arrived.add(edge, gradient)
        self._kept += arrived.bytes - before
        return arrived

    def take_back(self, number: int) -> None:
        """Undo what node `number`, the last that ran, sent on."""
        for edge in reversed(self.tape.outgoing.get(number, ())):
            arrived = self.slots.get((edge.target, edge.output_nr))
            if arrived is not None:
                before = arrived.bytes
                arrived.take_back((number, edge.slot))
                self._kept += arrived.bytes - before

    def replace(self, slot: Slot, gradient: Tensor) -> AccumulatedGradient | None:
        """Replace the accumulated gradient; return the previous one."""
        before = self.slots.get(slot)
        after = AccumulatedGradient(summed=before.summed if before else False)
        after.add(NO_EDGE, gradient)
        self.put(slot, after)
        return before.copied() if before else None

    def put(self, slot: Slot, arrived: AccumulatedGradient | None) -> None:
        before = self.slots.pop(slot, None)
        self._kept += (arrived.bytes if arrived else 0) - (
            before.bytes if before else 0
        )
        if arrived is not None:
            self.slots[slot] = arrived

    def trim(self, position: int) -> None:
        """Release the oldest used gradients while too many bytes are stored."""
        while self._kept > self.keep and self._trimmed < position:
            number = self.tape.order[self._trimmed]
            for output_nr in self._outputs.get(number, ()):
                self.put((number, output_nr), None)
            self._trimmed += 1
            self.floor = max(self.floor, self._trimmed)


def tensor_bytes(tensor: Tensor) -> int:
    """Return the memory behind a tensor: that of an expanded one is small."""
    if tensor.layout is torch.strided:
        return tensor.untyped_storage().nbytes()
    return sum(component.nbytes for component in parts_of(tensor))


def fan_in(node: int, output_nr: int, arrived: AccumulatedGradient) -> FanIn:
    """Measure how much each edge contributes to a sum, and whether the contributions agree."""
    gradients = [gradient for _, gradient in arrived.parts]
    total, *stats = measure([arrived.sum(), *gradients])
    norm = total.norm if total is not None else 0.0
    measured_stats = [grad_stats for grad_stats in stats if grad_stats is not None]
    absmax = max((grad_stats.absmax for grad_stats in measured_stats), default=0.0)
    finite = all(math.isfinite(grad_stats.absmax) for grad_stats in measured_stats)
    inner = products(gradients, absmax) if gradients and finite else None
    square = sum(map(sum, inner)) if inner else 0.0
    shares = tuple(
        Share(
            edge[0],
            edge[1],
            grad_stats.norm,
            sum(inner[index]) / square if inner and square > 0 else None,
        )
        for index, ((edge, _), grad_stats) in enumerate(
            zip(arrived.parts, measured_stats, strict=True)
        )
    )
    return FanIn(
        node, output_nr, norm, shares, _cosines(inner, len(shares)), arrived.count
    )


def _cosines(
    inner: Sequence[Sequence[float]] | None, count: int
) -> tuple[tuple[float | None, ...], ...]:
    if inner is None:
        return ((None,) * count,) * count
    lengths = [math.sqrt(inner[index][index]) for index in range(count)]

    def cosine(i: int, j: int) -> float | None:
        both = lengths[i] * lengths[j]
        return max(-1.0, min(1.0, inner[i][j] / both)) if both else None

    return tuple(tuple(cosine(i, j) for j in range(count)) for i in range(count))
