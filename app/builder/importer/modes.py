"""A model that does something else while it is trained: both ways in one drawing, where other tensors come back."""

from __future__ import annotations

from typing import Any

from app.builder.importer.drafting import Draft, DraftError

_What = tuple[Any, ...]


def with_evaluation(training: Draft, evaluation: Draft) -> None:
    """Mark the outputs of the draft that was traced in training where evaluation returns others.

    Raises DraftError if evaluation computes what training does not.
    """
    told, asked = _Told(training), _Told(evaluation)
    mine = [told.of(*_source(training, node)) for node in training.outputs]
    other = [asked.of(*_source(evaluation, node)) for node in evaluation.outputs]
    if mine == other:
        return
    places = {told.of(source, output): (source, output) for source, output, *_ in training.wires}
    if not all(what in places for what in other):
        words = "in evaluation it computes what it does not in training, and a drawing has one way only"
        raise DraftError(f"{training.kind}: {words}")
    for node in training.outputs:
        training.nodes[node].params["when"] = "training"
    for number, what in enumerate(other):
        name = evaluation.nodes[evaluation.outputs[number]].name
        made = training.add("output", training.fresh(f"eval_{name}"), {"when": "eval"})
        training.wires.append((*places[what], made.id, "input", 0))
        training.outputs.append(made.id)


def _source(draft: Draft, node: str) -> tuple[str, int]:
    return next((wire[0], wire[1]) for wire in draft.wires if wire[2] == node)


class _Told:
    """What a value of a draft is made of, all the way up; two values that are told alike are computed alike."""

    def __init__(self, draft: Draft) -> None:
        self._nodes: dict[str, int] = {}
        self._numbers: dict[_What, int] = {}
        self._draft = draft
        into: dict[str, list[tuple[str, int, str, int]]] = {}
        for source, output, target, port, index in draft.wires:
            into.setdefault(target, []).append((port, index, source, output))
        self._whats: dict[str, _What] = {}
        for node in draft.nodes.values():  # in running order, so whatever feeds a node was told already
            inner = _Told(node.inner).whole() if node.inner is not None else ()
            feeds = tuple((port, index, self._whats[source], output)
                          for port, index, source, output in sorted(into.get(node.id, ())))  # fmt: skip
            params = tuple(sorted((name, repr(value)) for name, value in node.params.items()))
            name = node.name if node.op in ("", "parameter", "buffer", "input") or node.op.startswith("nn.") else ""
            self._whats[node.id] = (hash((node.op, name, params, inner, feeds)),)

    def of(self, node: str, output: int) -> _What:
        return (*self._whats[node], output)

    def whole(self) -> _What:
        return tuple(self._whats.values())
