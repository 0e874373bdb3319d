"""Map nodes and edges of a tape to the boxes and arrows of its drawing."""

from __future__ import annotations

from collections import defaultdict

from app.autograd.grouping import Folded
from app.autograd.pictures.diagram import shown_first
from app.autograd.tape import Tape
from app.diagram.diagram import Drawing


class TapePositions:
    """Maps nodes and edges of the tape to boxes, groups and arrows of a drawing.

    `counts` are the numbers of nodes in a box or an open group, `edges` the (source, slot) pairs of each arrow, by
    number, `freed_at` the nodes with chips whose memory is freed when a node has run.
    """

    def __init__(self, tape: Tape, folded: Folded, drawing: Drawing | None) -> None:
        self.tape, self.place = tape, folded.place
        frames = (
            {group.id: group.parent for group in drawing.groups}
            if drawing is not None
            else {}
        )
        self._frame_of = (
            {box.id: box.group for box in drawing.boxes} if drawing is not None else {}
        )
        self._above: dict[str | None, tuple[str, ...]] = {None: ()}
        for key, parent in frames.items():  # a parent comes before what is in it
            self._above[key] = (key, *self._above[parent])
        self.counts: dict[str, int] = defaultdict(int)
        for node in tape.order:
            for key in self.keys(node):
                self.counts[key] += 1
        arrows = enumerate(drawing.arrows) if drawing is not None else ()
        self._numbers = {
            (arrow.source, arrow.target): number for number, arrow in arrows
        }
        self.edges: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for edge in tape.edges:
            number = self.arrow(edge.source, edge.target)
            if number is not None:
                self.edges[number].append((edge.source, edge.slot))
        self.freed_at: dict[int, list[int]] = defaultdict(list)
        for storage in tape.storages:
            if storage.kind == "activation":
                self.freed_at[storage.freed_by] += storage.holders

    def keys(self, node: int) -> tuple[str, ...]:
        """Return the box of a node, and the open groups around it."""
        box = self.place[node]
        return (box, *self._above[self._frame_of.get(box)])

    def arrow(self, source: int, target: int) -> int | None:
        """Return the number of the arrow that contains an edge; None inside a box."""
        return self._numbers.get((self.place[source], self.place[target]))

    def chips(self, box: str) -> tuple[int | None, ...]:
        """Return for each chip of a box the step that frees its memory, None if none does."""
        if not box.isdecimal():
            return ()
        tape = self.tape
        storages = [
            tape.storages[saved.storage]
            for saved in shown_first(tape.nodes[int(box)].saved)
        ]
        return tuple(
            tape.steps[storage.freed_by] if storage.kind == "activation" else None
            for storage in storages
        )

    def freed(self, box: str, position: int) -> frozenset[int]:
        """Return the chips of a box whose memory is freed once `position` nodes have run."""
        return frozenset(
            index
            for index, step in enumerate(self.chips(box))
            if step is not None and step < position
        )
