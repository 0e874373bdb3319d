"""The tape's steps in the order of backward: whose turn it is for how long, and what memory each step lets go of."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

from app.autograd.grouping import group_by_layer, node_keys
from app.autograd.tape import Tape


@dataclass(frozen=True)
class Stretch:
    """Consecutive steps of one layer: from `first` to before `end`. `released` are the bytes that they let go of."""

    key: str
    title: str
    category: str
    first: int
    end: int
    released: int


def released_by_step(tape: Tape) -> list[int]:
    """Bytes of activations that each step of the order is the last to need."""
    steps, released = tape.steps, [0] * len(tape.order)
    for storage in tape.storages:
        if storage.kind == "activation":
            released[steps[storage.freed_by]] += storage.bytes
    return released


def held_by_step(tape: Tape) -> list[int]:
    """Bytes of activations that are held before each step and, last, after all of them."""
    return [tape.held - gone for gone in accumulate(released_by_step(tape), initial=0)]


def stretches(tape: Tape) -> tuple[Stretch, ...]:
    """The order cut where another layer takes its turn; a layer that is come back to has several stretches."""
    keys = node_keys(tape)
    groups = {group.key: group for group in group_by_layer(tape)}
    released = released_by_step(tape)
    found: list[Stretch] = []
    first = 0
    for place in range(1, len(tape.order) + 1):
        key = keys[tape.order[first]]
        if place < len(tape.order) and keys[tape.order[place]] == key:
            continue
        group = groups[key]
        found.append(Stretch(key, group.title, group.category, first, place, sum(released[first:place])))
        first = place
    return tuple(found)


def largest(pieces: tuple[Stretch, ...], most: int = 3, share: float = 0.08) -> tuple[Stretch, ...]:
    """Those that let go of the most, of at least `share` of it all, in the order of backward."""
    total = sum(piece.released for piece in pieces)
    big = [piece for piece in pieces if piece.released and piece.released >= share * total]
    return tuple(sorted(sorted(big, key=lambda piece: -piece.released)[:most], key=lambda piece: piece.first))
