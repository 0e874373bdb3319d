"""Train/eval differences: both modes in one drawing, if only the returned tensors differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from app.builder.catalog.ops import COUNTED, IN_TRAINING
from app.features.importing.compute.lowering.binding import BATCH_NORM
from app.features.importing.compute.lowering.ir import (
    Draft,
    DraftError,
    DraftNode,
    Source,
)

_What = tuple[Any, ...]


def with_evaluation(
    training: Draft,
    evaluation: Draft,
    switch_op: Callable[[], str | None] = lambda: None,
) -> None:
    """Mark the outputs of the draft that was traced in training where evaluation returns others.

    Other values that differ go through nodes of the op that `switch_op` returns, if any. Raises DraftError if
    evaluation computes what training does not; its path is the innermost module that does so.
    """
    for drafts in _pairs(training, evaluation):
        _settle(*drafts)
    training_keys, evaluation_keys = _CallKeys(training), _CallKeys(evaluation)
    mine = [
        training_keys.key_of_output(*_source(training, node))
        for node in training.outputs
    ]
    other = [
        evaluation_keys.key_of_output(*_source(evaluation, node))
        for node in evaluation.outputs
    ]
    if mine == other:
        return
    sources = {
        training_keys.key_of_output(source, output): (source, output)
        for source, output, *_ in training.wires
    }
    if not all(other_key in sources for other_key in other):
        if _switched(training, evaluation, switch_op):
            return
        reason = "it computes something in eval mode that it does not in training, and a network has one path only"
        path = innermost(training, evaluation)
        raise DraftError(f"{path or training.kind}: {reason}", path, reason)
    for node in training.outputs:
        training.nodes[node].params["when"] = "training"
    for number, key in enumerate(other):
        name = evaluation.nodes[evaluation.outputs[number]].name
        output_node = training.add(
            "output", training.fresh(f"eval_{name}"), {"when": "eval"}
        )
        training.wires.append((*sources[key], output_node.id, "input", 0))
        training.outputs.append(output_node.id)


def _switched(
    training: Draft, evaluation: Draft, switch_op: Callable[[], str | None]
) -> bool:
    """Draw what differs by the mode within layers with `switch_op`, the innermost first; return whether that is
    possible. A part without layers is left: it can be one node."""
    others = {node.name: node for node in evaluation.nodes.values()}
    for node in training.nodes.values():
        other = others.get(node.name)
        if node.inner is None or other is None or other.inner is None:
            continue
        if _CallKeys(node.inner).all_keys() != _CallKeys(other.inner).all_keys():
            if not has_layers(node.inner) or not _switched(
                node.inner, other.inner, switch_op
            ):
                return False
        other.inner = node.inner
    training_keys, evaluation_keys = _CallKeys(training), _CallKeys(evaluation)
    ends = (
        [_source(draft, node) for node in draft.outputs]
        for draft in (training, evaluation)
    )
    if [training_keys.key_of_output(*source) for source in next(ends)] == [
        evaluation_keys.key_of_output(*source) for source in next(ends)
    ]:
        return True
    op = switch_op()
    keys = (
        (lambda source: training_keys.key_of_output(*source)),
        (lambda source: evaluation_keys.key_of_output(*source)),
    )
    return (
        op is not None
        and len(training.outputs) == len(evaluation.outputs)
        and switch(training, evaluation, keys, op)
    )


def innermost(training: Draft, evaluation: Draft) -> str:
    """Return the path of the innermost module whose calls differ between two drafts of a model."""
    theirs = {node.name: node.inner for node in evaluation.nodes.values()}
    for node in training.nodes.values():
        mine, other = node.inner, theirs.get(node.name)
        if (
            mine is not None
            and other is not None
            and _CallKeys(mine).all_keys() != _CallKeys(other).all_keys()
        ):
            return innermost(mine, other)
    return training.path


def _pairs(training: Draft, evaluation: Draft) -> Iterator[tuple[Draft, Draft]]:
    """Yield two drafts, and those of the submodules in both, that correspond."""
    yield training, evaluation
    inner, other = (
        [node.inner for node in draft.nodes.values() if node.inner]
        for draft in (training, evaluation)
    )
    if len(inner) == len(other):
        for first, second in zip(inner, other, strict=True):
            yield from _pairs(first, second)


def _settle(training: Draft, evaluation: Draft) -> None:
    """Make what uses batch statistics, or drops values, in training only follow the net's mode."""
    for op in (BATCH_NORM, *IN_TRAINING):
        ours, theirs = (
            [node for node in draft.nodes.values() if node.op == op]
            for draft in (training, evaluation)
        )
        if len(ours) != len(theirs):
            continue
        for node, other in zip(ours, theirs, strict=True):
            if op == BATCH_NORM:
                _settle_norm(training, evaluation, node, other)
            elif (name := IN_TRAINING[op]) in node.params:
                other.params.setdefault(name, node.params[name])


def _settle_norm(
    training: Draft, evaluation: Draft, node: DraftNode, other: DraftNode
) -> None:
    if node.params.get("training") is True and not other.params.get("training"):
        del node.params["training"]
        other.params.pop("training", None)
    if not any(wire[2:4] == (node.id, COUNTED) for wire in training.wires):
        _not_counted(evaluation, other.id)


def check_chance(training: Draft, evaluation: Draft | None) -> None:
    """Raise DraftError for a function that applies dropout in eval mode too: its op does so in training alone."""
    for node in (evaluation or training).nodes.values():
        if node.params.get(IN_TRAINING.get(node.op, ""), 0.0):
            raise DraftError(
                f"{training.path or training.kind}: {node.op} applies dropout in eval mode too",
                training.path,
            )
    inner = [
        node.inner for node in (evaluation or training).nodes.values() if node.inner
    ]
    for draft in inner:
        check_chance(draft, None)


def _not_counted(draft: Draft, norm: str) -> None:
    counts = {wire[0] for wire in draft.wires if wire[2:4] == (norm, COUNTED)}
    draft.wires = [wire for wire in draft.wires if wire[0] not in counts]
    draft.nodes = {key: node for key, node in draft.nodes.items() if key not in counts}


def _source(draft: Draft, node: str) -> tuple[str, int]:
    return next((wire[0], wire[1]) for wire in draft.wires if wire[2] == node)


class _CallKeys:
    """Structural description of every value of a draft; equal descriptions are equal computations. How a tensor lies in
    memory is no part of it."""

    def __init__(self, draft: Draft) -> None:
        self._whats: dict[str, _What] = {}
        self._same: dict[
            str, tuple[str, int]
        ] = {}  # identity nodes, with the source of their input
        into: dict[str, list[tuple[str, int, str, int]]] = {}
        for source, output, target, port, index in draft.wires:
            into.setdefault(target, []).append((port, index, source, output))
        for node in (
            draft.nodes.values()
        ):  # in topological order, so inputs are described already
            if node.op == "Tensor.contiguous":
                ((_, _, source, output),) = into[node.id]
                self._same[node.id] = self._same.get(source, (source, output))
                continue
            inner = _CallKeys(node.inner).all_keys() if node.inner is not None else ()
            feeds = tuple(
                (port, index, self.key_of_output(source, output))
                for port, index, source, output in sorted(into.get(node.id, ()))
            )
            params = tuple(
                sorted((name, repr(value)) for name, value in node.params.items())
            )
            name = (
                node.name
                if node.op in ("", "parameter", "buffer", "input")
                or node.op.startswith("nn.")
                else ""
            )
            self._whats[node.id] = (hash((node.op, name, params, inner, feeds)),)

    def key_of_output(self, node: str, output: int) -> _What:
        source, output_index = self._same.get(node, (node, output))
        return (*self._whats[source], output_index)

    def all_keys(self) -> _What:
        return tuple(self._whats.values())


# --- One of two values by the mode


BY_MODE = '''"""One of two values by the mode of the net, as a layer of a drawing."""

import torch
from torch import nn


class ByMode(nn.Module):
    """Returns its first input in training, and its second in eval mode."""

    def forward(self, in_training: torch.Tensor, in_eval: torch.Tensor):
        return in_training if self.training else in_eval
'''
MOST_STEPS = 2_000  # after which a part is one node: what differs in it is everywhere
_PORTS = "in_training", "in_eval"
_OWNERS = ("nn.", "ops.", "custom.")
Key = Callable[[Source], object]  # equal for equal computations
Feed = tuple[str, int, str, int]  # port, index, source, output


def switch(training: Draft, evaluation: Draft, keys: tuple[Key, Key], op: str) -> bool:
    """Change a draft that was traced in training so that it computes in eval mode what `evaluation` does, by nodes of
    `op` between values that it has; return whether that is possible. `keys` are those of both drafts."""
    plan = _Plan(training, evaluation, keys)
    if not all(map(plan.follow, training.outputs, evaluation.outputs)):
        return False
    switch_ids: dict[tuple[Source, Source], str] = {}
    for input_key, pair in plan.chosen.items():
        if pair not in switch_ids:
            node = training.add(op, training.fresh("by_mode"), {})
            node.written = True
            switch_ids[pair] = node.id
            training.wires += [
                (*value, node.id, port, 0)
                for value, port in zip(pair, _PORTS, strict=True)
            ]
        target, port, index = input_key
        training.wires = [wire for wire in training.wires if wire[2:] != input_key]
        training.wires.append((switch_ids[pair], 0, target, port, index))
    return _sort(training)


def has_layers(draft: Draft) -> bool:
    """Return whether a part has submodules, parameters or buffers."""
    owners = (
        node.inner is not None
        or node.op in ("parameter", "buffer")
        or node.op.startswith(_OWNERS)
        for node in draft.nodes.values()
    )
    return any(owners)


class _Plan:
    """Which inputs of a draft's nodes take one of two values. `chosen` has both by target, port and index."""

    def __init__(
        self, training: Draft, evaluation: Draft, keys: tuple[Key, Key]
    ) -> None:
        self._drafts, self._keys = (training, evaluation), keys
        self._feeds = _feeds(training), _feeds(evaluation)
        self._places = {
            keys[0]((source, output)): (source, output)
            for source, output, *_ in training.wires
        }
        self._paired: dict[str, str] = {}
        self._steps = 0
        self.chosen: dict[tuple[str, str, int], tuple[Source, Source]] = {}

    def follow(self, mine: str, other: str) -> bool:
        """Pair a node of each draft; return whether their inputs can be made equal."""
        if mine in self._paired:
            return self._paired[mine] == other
        self._steps += 1
        if self._steps > MOST_STEPS:
            return False
        self._paired[mine] = other
        feeds = self._feeds[0].get(mine, []), self._feeds[1].get(other, [])
        if [feed[:2] for feed in feeds[0]] != [feed[:2] for feed in feeds[1]]:
            return False
        for training_feed, two in zip(*feeds, strict=True):
            (port, index), ours, theirs = training_feed[:2], training_feed[2:], two[2:]
            if self._keys[0](ours) == self._keys[1](theirs):
                continue
            if self._equal(ours, theirs):
                continue
            counterpart = self._places.get(self._keys[1](theirs)) or self._place_of(
                theirs
            )
            if counterpart is None:
                return False
            self.chosen[mine, port, index] = ours, counterpart
        return True

    def _equal(self, mine: Source, other: Source) -> bool:
        """Return whether two values are made by the same call of inputs that can be made equal."""
        if not self._alike(mine, other):
            return False
        saved_state = dict(self._paired), dict(self.chosen)
        if not self.follow(mine[0], other[0]):
            self._paired, self.chosen = saved_state
            return False
        return True

    def _place_of(self, other: Source) -> Source | None:
        """Return the value of the training draft that can be made equal to one of the other; None if there is none."""
        values = ((node, other[1]) for node in self._drafts[0].nodes)
        return next((value for value in values if self._equal(value, other)), None)

    def _alike(self, mine: Source, other: Source) -> bool:
        """Return whether two values are made by the same call."""
        first, two = self._drafts[0].nodes[mine[0]], self._drafts[1].nodes[other[0]]
        if (
            mine[1] != other[1]
            or (first.op, _params(first)) != (two.op, _params(two))
            or first.op == "input"
        ):
            return False
        owns = (
            first.inner is not None
            or first.op in ("parameter", "buffer")
            or first.op.startswith(_OWNERS)
        )
        return first.inner is two.inner and (not owns or first.name == two.name)


def _params(node: DraftNode) -> dict[str, str]:
    return {name: repr(value) for name, value in node.params.items()}


def _feeds(draft: Draft) -> Mapping[str, list[Feed]]:
    feeds_by_target: dict[str, list[Feed]] = {}
    for source, output, target, port, index in draft.wires:
        feeds_by_target.setdefault(target, []).append((port, index, source, output))
    return {target: sorted(feeds) for target, feeds in feeds_by_target.items()}


def _sort(draft: Draft) -> bool:
    """Sort the nodes topologically; return whether that is possible."""
    feeds, ordered = _feeds(draft), dict[str, DraftNode]()
    left = list(draft.nodes.values())
    while left:
        ready = next(
            (
                node
                for node in left
                if all(feed[2] in ordered for feed in feeds.get(node.id, ()))
            ),
            None,
        )
        if ready is None:
            return False
        ordered[ready.id] = ready
        left.remove(ready)
    draft.nodes = ordered
    return True
