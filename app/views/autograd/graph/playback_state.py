"""Update the graph with the state of a playback: only what a step changes."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject

from app.autograd.pictures.positions import TapePositions
from app.autograd.playback.steps import FanIn, GradStats
from app.autograd.tape import TapeEdge
from app.util.formatting import MINUS, figure
from app.views.autograd.graph.playback_paint import EdgeFlow, Played
from app.views.autograd.tape.player import EMPTY, READY, Player

if TYPE_CHECKING:
    from app.views.autograd.page import AutogradPage

PREDICT = "Hidden: type your prediction on the page Learn first."


class PlayedGraph(QObject):
    """Follows a `Player` in a room's scene, without a new layout."""

    def __init__(
        self, room: AutogradPage, player: Player, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._room, self._player = room, player
        self._index: TapePositions | None = None
        self._ran: dict[str, int] = defaultdict(int)
        self._position = 0
        self._next: tuple[str, ...] = ()
        self._marked: frozenset[str] = (
            frozenset()
        )  # boxes at which a gradient was edited
        player.moved.connect(self._moved)
        player.state_changed.connect(self._state)
        player.stood.connect(lambda _stop: self._next_flows())
        player.changed.connect(self._changed)
        room.redrawn.connect(self._redrawn)

    def _state(self, state: str) -> None:
        playing = state not in (EMPTY, READY)
        self._room.head.set_played(playing)
        if not playing:
            self._index = None
            self._room.scene.played.end()
        elif self._index is None:
            self._all()

    def _redrawn(self) -> None:
        self._index = None
        if self._player.shows:
            self._all()

    def _changed(self) -> None:
        if self._player.shows and self._index is not None:
            before, self._marked = self._marked, self._edited_boxes()
            self._show(set(before | self._marked), set(self._index.edges))

    def _edited_boxes(self) -> frozenset[str]:
        assert self._index is not None
        return frozenset(
            key for _, node, _ in self._player.edits for key in self._index.keys(node)
        )

    def _all(self) -> None:
        """Update everything for another drawing."""
        tape = self._room.tape
        if tape is None or self._room.folded is None:
            return
        self._index = TapePositions(tape, self._room.folded, self._room.scene.drawing)
        self._ran, self._position, self._next = defaultdict(int), 0, ()
        self._marked = self._edited_boxes()
        position = self._player.position
        keys, _ = self._count(0, position)
        self._position = position
        self._show(set(self._index.counts), set(self._index.edges))

    def _moved(self, before: int, now: int) -> None:
        if self._index is None or self._position != before:
            self._all()
            return
        keys, arrows = self._count(before, now)
        self._position = now
        end = len(self._index.tape.order)
        if end in (before, now):  # where all has run, nothing steps back
            keys = set(self._index.counts)
        self._show(keys, arrows)

    def _count(self, before: int, now: int) -> tuple[set[str], set[int]]:
        """Count what runs, or runs no more, between two positions; returns what looks different."""
        index = self._index
        assert index is not None
        keys: set[str] = set()
        arrows: set[int] = set()
        step = 1 if now > before else -1
        for position in range(min(before, now), max(before, now)):
            node = index.tape.order[position]
            for key in index.keys(node):
                self._ran[key] += step
                keys.add(key)
            keys.update(index.place[holder] for holder in index.freed_at.get(node, ()))
            # What leaves it is computed then, and what came together there is known.
            tape = index.tape
            for edge in (*tape.outgoing.get(node, ()), *tape.incoming.get(node, ())):
                number = index.arrow(edge.source, edge.target)
                if number is not None:
                    arrows.add(number)
        return keys, arrows

    def _show(self, keys: set[str], arrows: set[int]) -> None:
        index = self._index
        assert index is not None
        node = self._player.next_node
        after = index.keys(node) if node is not None else ()
        keys = keys | set(self._next) | set(after)
        self._next = after
        boxes = {
            key: self._played(key, key == after[0] if after else False) for key in keys
        }
        self._room.scene.played.show(
            boxes, {number: self._flow(number) for number in arrows}
        )

    def _played(self, key: str, runs_next: bool) -> Played:
        assert self._index is not None
        count = self._index.counts[key]
        return Played(
            self._ran[key],
            count,
            runs_next,
            self._index.freed(key, self._position),
            key in self._marked,
            self._position == len(self._index.tape.order),
        )

    def _next_flows(self) -> None:
        """Show the gradients that are summed at the next node; they are known only when it is next."""
        node, index = self._player.next_node, self._index
        if node is None or index is None or not self._player.fan_ins:
            return
        arrows = {
            index.arrow(edge.source, edge.target)
            for edge in index.tape.incoming.get(node, ())
        }
        self._show(set(), {number for number in arrows if number is not None})

    def _flow(self, number: int) -> EdgeFlow:
        """Return the norm over an arrow, of all its edges together."""
        assert self._index is not None
        edges, steps = self._index.edges[number], self._index.tape.steps
        norms = [
            self._player.norms[edge] for edge in edges if edge in self._player.norms
        ]
        reached = any(steps[source] < self._position for source, _ in edges)
        if not norms:
            return EdgeFlow(None, reached, "")
        if any(self._is_concealed(edge) for edge in edges):
            return EdgeFlow(None, reached, PREDICT, concealed=True)
        norm = math.hypot(*norms) if len(norms) > 1 else norms[0]
        text = f"gradient norm {figure(norm)}"
        if len(edges) > 1:
            text += f" of the sum of {len(edges)} gradients"
        edited, now = self._edited(edges)
        if edited:
            sum_ = "" if now is None else f": {figure(now.unscaled)} arrives"
            text += f"\nThe incoming gradient was edited{sum_}"
            if now is not None and len(edges) == 1 and self._alone(*edges[0]):
                norm = now.unscaled
        return EdgeFlow(norm, reached, "\n".join([text, *self._shares(edges)]), edited)

    def _is_concealed(self, edge: tuple[int, int]) -> bool:
        player = self._player
        return bool(player.concealed) and player.is_concealed(self._edge(*edge).target)

    def _edited(self, edges: list[tuple[int, int]]) -> tuple[bool, GradStats | None]:
        """Return whether what some edges lead to was edited, and what arrives there now, if it is known."""
        assert self._index is not None
        edits = {(node, output_nr) for _, node, output_nr in self._player.edits}
        for source, slot in edges if edits else ():
            edge = self._edge(source, slot)
            if (edge.target, edge.output_nr) in edits:
                record = self._player.record_of(edge.target)
                next_up = (
                    self._player.arriving
                    if edge.target == self._player.next_node
                    else ()
                )
                arriving = record.arriving if record is not None else next_up
                return True, arriving[edge.output_nr] if edge.output_nr < len(
                    arriving
                ) else None
        return False, None

    def _edge(self, source: int, slot: int) -> TapeEdge:
        assert self._index is not None
        outgoing = self._index.tape.outgoing[source]
        return next(edge for edge in outgoing if edge.slot == slot)

    def _alone(self, source: int, slot: int) -> bool:
        """Return whether no other gradient is added to that of an edge."""
        assert self._index is not None
        edge = self._edge(source, slot)
        return (
            sum(
                other.output_nr == edge.output_nr
                for other in self._index.tape.incoming[edge.target]
            )
            == 1
        )

    def _shares(self, edges: list[tuple[int, int]]) -> list[str]:
        """Return the share of each edge of a sum."""
        assert self._index is not None
        texts = []
        for source, slot in edges[:4]:
            edge = self._edge(source, slot)
            for sum_ in fan_ins_of(self._player, edge.target):
                if sum_.output_nr == edge.output_nr:
                    texts += [
                        text
                        for key, text in share_texts(sum_).items()
                        if key == (source, slot)
                    ]
        return texts


def fan_ins_of(player: Player, node: int) -> tuple[FanIn, ...]:
    """Return the sums before a node that has run or is next."""
    record = player.record_of(node)
    if record is not None:
        return record.fan_ins
    return player.fan_ins if node == player.next_node else ()


def share_texts(sum_: FanIn) -> dict[tuple[int, int], str]:
    """Format the share of each edge of a sum; "cosine" is to the other, or to the largest of the others."""
    texts: dict[tuple[int, int], str] = {}
    for index, share in enumerate(sum_.shares):
        parts = []
        if share.projection is not None:
            percent = f"{100 * share.projection:.0f}".replace("-", MINUS)
            parts.append(f"{percent} % of the sum")
        others = [other for other in range(len(sum_.shares)) if other != index]
        largest = max(others, key=lambda other: sum_.shares[other].norm, default=None)
        if largest is not None and (cosine := sum_.cosines[index][largest]) is not None:
            parts.append(
                f"cosine {cosine:.2f}".replace("-", MINUS)
                + (" with the other" if len(others) == 1 else " with the largest other")
            )
        texts[share.source, share.slot] = ", ".join(parts)
    return texts
