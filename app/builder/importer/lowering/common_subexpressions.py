"""Common subexpression elimination for numbers: one `size // 7` node however often it is computed."""

from __future__ import annotations

from typing import Any

from app.builder.importer.lowering.ir import Draft, drafts_in


def numbers_once(root: Draft) -> None:
    """Merge nodes that compute the same number, on every sheet."""
    for draft in drafts_in(root):
        _once(draft, draft.numbers)


def _once(draft: Draft, numbers: set[str]) -> None:
    into: dict[str, list[tuple[str, int, str, int]]] = {}
    for source, output, target, port, index in draft.wires:
        into.setdefault(target, []).append((source, output, port, index))
    known: dict[Any, str] = {}
    same: dict[str, str] = {}
    for (
        node
    ) in draft.nodes.values():  # in topological order, so inputs were visited already
        if node.id in numbers:
            feeds = sorted(
                (port, index, same.get(source, source), output)
                for source, output, port, index in into.get(node.id, ())
            )
            key = node.op, repr(sorted(node.params.items())), tuple(feeds)
            if known.setdefault(key, node.id) != node.id:
                same[node.id] = known[key]
    if same:
        draft.nodes = {
            key: node for key, node in draft.nodes.items() if key not in same
        }
        draft.wires = [
            (same.get(source, source), output, target, port, index)
            for source, output, target, port, index in draft.wires
            if target not in same
        ]
