"""Layer spans and memory curve over the steps of backward."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from typing import TypeVar

from msgspec import Struct

from app.autograd.grouping import group_by_layer, held_by_module, node_keys
from app.autograd.pictures.op_category import node_category
from app.autograd.tape import Tape


class Stretch(Struct, frozen=True):
    """Consecutive steps of one layer: from `first` to before `end`. `released` are the bytes that they free."""

    key: str
    title: str
    category: str
    first: int
    end: int
    released: int


T = TypeVar("T")


def _once(tape: Tape, name: str, make: Callable[[Tape], T]) -> T:
    """Cache a value derived from a tape on the tape, like its cached properties."""
    attributes = vars(tape)
    if name not in attributes:
        attributes[name] = make(tape)
    return attributes[name]


def prepare(tape: Tape) -> Tape:
    """Compute everything here ahead of use, on a worker; returns the tape."""
    stretches(tape), held_by_step(tape), categories(tape), held_in_modules(tape)
    return tape


def released_by_step(tape: Tape) -> list[int]:
    """Return the bytes of activations that each step is the last to need."""
    return _once(tape, "_released_by_step", _released_by_step)


def _released_by_step(tape: Tape) -> list[int]:
    steps, released = tape.steps, [0] * len(tape.order)
    for storage in tape.storages:
        if storage.kind == "activation":
            released[steps[storage.freed_by]] += storage.bytes
    return released


def held_by_step(tape: Tape) -> list[int]:
    """Return the bytes of activations held before each step and, last, after all of them."""
    return _once(tape, "_held_by_step", _held_by_step)


def _held_by_step(tape: Tape) -> list[int]:
    return [
        tape.held_bytes - gone for gone in accumulate(released_by_step(tape), initial=0)
    ]


def held_in_modules(tape: Tape) -> dict[str, int]:
    """Return the bytes that each module of the whole tape holds for backward, the most first."""
    return _once(
        tape,
        "_held_in_modules",
        lambda tape: held_by_module(tape, range(len(tape.nodes))),
    )


def stretches(tape: Tape) -> tuple[Stretch, ...]:
    """Split the order into runs of one layer; a layer that runs again has several."""
    return _once(tape, "_stretches", _stretches)


def _stretches(tape: Tape) -> tuple[Stretch, ...]:
    keys = node_keys(tape)
    groups = {group.key: group for group in group_by_layer(tape)}
    released = released_by_step(tape)
    spans: list[Stretch] = []
    first = 0
    for index in range(1, len(tape.order) + 1):
        key = keys[tape.order[first]]
        if index < len(tape.order) and keys[tape.order[index]] == key:
            continue
        group = groups[key]
        spans.append(
            Stretch(
                key,
                group.title,
                group.category,
                first,
                index,
                sum(released[first:index]),
            )
        )
        first = index
    return tuple(spans)


def categories(tape: Tape) -> list[str]:
    """Return the category of each step: its layer's, or in a block its operation's; a leaf has its user's."""
    return _once(tape, "_step_categories", _categories)


def _categories(tape: Tape) -> list[str]:
    step_categories = [""] * len(tape.order)
    for piece in stretches(tape):
        for step in range(piece.first, piece.end):
            node = tape.nodes[tape.order[step]]
            if node.is_leaf:
                users = tape.incoming.get(node.id, ())
                node = tape.nodes[users[0].source] if users else node
            step_categories[step] = (
                node_category(node.name)
                if piece.category == "block"
                else piece.category
            )
    return step_categories


def largest(
    pieces: tuple[Stretch, ...], most: int = 3, share: float = 0.08
) -> tuple[Stretch, ...]:
    """Return the spans that free the most, at least `share` of it all, in the order of backward."""
    total = sum(piece.released for piece in pieces)
    big = [
        piece for piece in pieces if piece.released and piece.released >= share * total
    ]
    return tuple(
        sorted(
            sorted(big, key=lambda piece: -piece.released)[:most],
            key=lambda piece: piece.first,
        )
    )
