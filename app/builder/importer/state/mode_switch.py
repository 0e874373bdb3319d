"""Values that differ between train and eval mode: a generated layer selects one, and later calls are drawn once."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from app.builder.importer.lowering.ir import Draft, DraftNode, Source

TEXT = '''"""One of two values by the mode of the net, as a layer of a drawing."""

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
    made: dict[tuple[Source, Source], str] = {}
    for place, pair in plan.chosen.items():
        if pair not in made:
            node = training.add(op, training.fresh("by_mode"), {})
            node.written = True
            made[pair] = node.id
            training.wires += [
                (*value, node.id, port, 0)
                for value, port in zip(pair, _PORTS, strict=True)
            ]
        target, port, index = place
        training.wires = [wire for wire in training.wires if wire[2:] != place]
        training.wires.append((made[pair], 0, target, port, index))
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
        for one, two in zip(*feeds, strict=True):
            (port, index), ours, theirs = one[:2], one[2:], two[2:]
            if self._keys[0](ours) == self._keys[1](theirs):
                continue
            if self._equal(ours, theirs):
                continue
            place = self._places.get(self._keys[1](theirs)) or self._place_of(theirs)
            if place is None:
                return False
            self.chosen[mine, port, index] = ours, place
        return True

    def _equal(self, mine: Source, other: Source) -> bool:
        """Return whether two values are made by the same call of inputs that can be made equal."""
        if not self._alike(mine, other):
            return False
        kept = dict(self._paired), dict(self.chosen)
        if not self.follow(mine[0], other[0]):
            self._paired, self.chosen = kept
            return False
        return True

    def _place_of(self, other: Source) -> Source | None:
        """Return the value of the training draft that can be made equal to one of the other; None if there is none."""
        values = ((node, other[1]) for node in self._drafts[0].nodes)
        return next((value for value in values if self._equal(value, other)), None)

    def _alike(self, mine: Source, other: Source) -> bool:
        """Return whether two values are made by the same call."""
        one, two = self._drafts[0].nodes[mine[0]], self._drafts[1].nodes[other[0]]
        if (
            mine[1] != other[1]
            or (one.op, _params(one)) != (two.op, _params(two))
            or one.op == "input"
        ):
            return False
        owns = (
            one.inner is not None
            or one.op in ("parameter", "buffer")
            or one.op.startswith(_OWNERS)
        )
        return one.inner is two.inner and (not owns or one.name == two.name)


def _params(node: DraftNode) -> dict[str, str]:
    return {name: repr(value) for name, value in node.params.items()}


def _feeds(draft: Draft) -> Mapping[str, list[Feed]]:
    found: dict[str, list[Feed]] = {}
    for source, output, target, port, index in draft.wires:
        found.setdefault(target, []).append((port, index, source, output))
    return {target: sorted(feeds) for target, feeds in found.items()}


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
