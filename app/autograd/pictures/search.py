"""Search nodes of a tape by text, and find all nodes on the paths between two of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from app.autograd.tape import Tape, TapeNode
from app.util.formatting import shape_text


def find(tape: Tape, query: str) -> tuple[int, ...]:
    """Find the nodes that contain every word, case-insensitively; returns ids in forward order.

    Searches the node's name, its layer (title and module path), its parameters, and its saved tensors with their shapes
    (`result`, `64×32`, `float32`).
    """
    terms = query.casefold().replace("*", "×").split()
    if not terms:
        return ()
    return tuple(node.id for node in tape.forward if _fits(_text(tape, node), terms))


def _fits(text: str, terms: list[str]) -> bool:
    return all(word in text for word in terms)


def _text(tape: Tape, node: TapeNode) -> str:
    parts = [node.name, tape.title_of(node), node.layer, *node.parameters]
    parts += [
        f"{saved.name} {shape_text(saved.shape)} {saved.dtype}" for saved in node.saved
    ]
    return " ".join(parts).casefold()


def between(
    arrows: Iterable[tuple[str, str]], starts: frozenset[str], other: frozenset[str]
) -> tuple[frozenset[str], bool]:
    """Return (all on any path of arrows from `starts` to `other`, False); if there is none, the reverse paths and True.

    Empty if neither direction has a path. Ends that are on a path are included.
    """
    after: dict[str, list[str]] = {}
    before: dict[str, list[str]] = {}
    for source, target in arrows:
        after.setdefault(source, []).append(target)
        before.setdefault(target, []).append(source)
    forth = _reached(after, starts) & _reached(before, other)
    if forth:
        return forth, False
    return _reached(after, other) & _reached(before, starts), True


def _reached(
    following: Mapping[str, list[str]], ends: frozenset[str]
) -> frozenset[str]:
    reached = set(ends)
    todo = list(ends)
    while todo:
        for successor in following.get(todo.pop(), ()):
            if successor not in reached:
                reached.add(successor)
                todo.append(successor)
    return frozenset(reached)
