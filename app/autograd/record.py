"""The norms of all gradients of a real backward pass, measured while it runs and fetched with one wait at its end.

    with record(loss) as recorder:
        loss.backward()
    recorder.finish().edge_norms

Hooks sit on this one graph, so a step that is not recorded costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Self

import torch

from app.autograd.measure import norm_of, values_of
from app.autograd.tape import Tape, TapeEdge
from app.autograd.walk import execution_order, short_name, walk
from app.frozen import FrozenMap

if TYPE_CHECKING:
    from torch import Tensor

# Nodes that hand on all elements as they are, in another shape: what leaves has the norm of what arrived.
_REARRANGING = frozenset(
    f"{name}Backward0"
    for name in ("T", "View", "UnsafeView", "ReshapeAlias", "Alias", "Transpose", "Permute", "Squeeze", "Unsqueeze")
) | {"SqueezeBackward1", "SqueezeBackward2", "TransposeBackward1"}


@dataclass(frozen=True)
class Recorded:
    """What a backward pass was like. Nodes are numbered as in the `Tape` of a capture of the same net.

    `node_norms` is what arrived, by node, `edge_norms` what left, by (source, slot), both with a gradient scaler's
    factor divided out. A node that only one edge leads to has that edge's norm.
    """

    names: tuple[str, ...]
    edges: tuple[TapeEdge, ...]
    roots: tuple[int, ...]
    sequences: tuple[int, ...]
    node_norms: FrozenMap[int, float] = field(default_factory=FrozenMap)
    edge_norms: FrozenMap[tuple[int, int], float] = field(default_factory=FrozenMap)

    @cached_property
    def order(self) -> tuple[int, ...]:
        """The nodes in the order in which the engine ran them."""
        return execution_order(list(self.sequences), self.edges, self.roots)

    def fits(self, tape: Tape) -> bool:
        """Whether the tape has the same nodes and edges, so that its layers and lines are these nodes' too."""
        ours = [(e.source, e.slot, e.target, e.output_nr) for e in self.edges]
        theirs = [(e.source, e.slot, e.target, e.output_nr) for e in tape.edges]
        return ours == theirs and self.names == tuple(node.name for node in tape.nodes)

    @property
    def first_non_finite(self) -> int | None:
        """The first node, as the engine ran them, from which a gradient left that is not finite."""
        bad = {source for (source, _), norm in self.edge_norms.items() if not math.isfinite(norm)}
        return next((node for node in self.order if node in bad), None) if bad else None


class Recorder:
    """Hooks on the nodes below some tensors until `finish` or the end of its `with`. `scale` is a gradient scaler's."""

    def __init__(self, ends: Tensor | Sequence[Tensor], scale: float = 1.0) -> None:
        nodes, self._edges, self._roots = walk([ends] if isinstance(ends, torch.Tensor) else ends, shapes=False)
        self.scale = scale
        self._names = tuple(map(short_name, nodes))
        self._sequences = tuple(node._sequence_nr() for node in nodes)
        self._norms: list[Tensor] = []
        self._what: list[tuple[int, int]] = []  # (source, slot), or (node, -1) for what arrived
        self._sums = set(self._roots)  # where more arrives than one edge brings
        self._hooks = self._put_on(nodes)

    def _put_on(self, nodes: list[Any]) -> list[Any]:
        """What one edge alone brings is known from that edge, so most leaves need no hook."""
        names, roots = self._names, self._roots
        met: set[int] = set(roots)
        sums = self._sums
        slots: dict[int, list[int]] = {}
        for edge in self._edges:
            target, source = edge.target, edge.source
            if target in met:
                sums.add(target)
            met.add(target)
            if names[source] not in _REARRANGING:
                slots.setdefault(source, []).append(edge.slot)
        places = {**slots, **{place: slots.get(place, []) for place in sums}}
        return [
            nodes[place].register_hook(partial(_measure, self._what, self._norms, place, of, place in sums))
            for place, of in places.items()
        ]

    def finish(self) -> Recorded:
        """Take the hooks off and fetch what was measured; waits for the device."""
        self.close()
        nodes: dict[int, float] = {}
        edges: dict[tuple[int, int], float] = {}
        for (node, slot), value in zip(self._what, self._fetched(), strict=True):
            if slot < 0:
                nodes[node] = math.hypot(nodes.get(node, 0.0), value)
            else:
                edges[node, slot] = value
        # A source comes before its targets here: `walk` numbers and follows them from the ends on, but where several
        # edges meet, and there the norm was measured.
        for edge in self._edges:
            key = edge.source, edge.slot
            if key not in edges and edge.source in nodes and self._names[edge.source] in _REARRANGING:
                edges[key] = nodes[edge.source]
            if key in edges and edge.target not in self._sums:
                nodes[edge.target] = edges[key]
        return Recorded(
            self._names, tuple(self._edges), self._roots, self._sequences, FrozenMap(nodes), FrozenMap(edges)
        )

    def _fetched(self) -> list[float]:
        norms, scale = self._norms, self.scale
        if any(norm.is_cpu for norm in norms):  # no device to wait for, or several
            return [norm.item() / scale for norm in norms]
        if len({norm.device for norm in norms}) > 1:
            norms = [norm.cpu() for norm in norms]
        return [value / scale for value in torch.stack(norms).tolist()] if norms else []

    def close(self) -> None:
        """Take the hooks off."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()


def _measure(
    what: list[tuple[int, int]],
    norms: list[Tensor],
    place: int,
    slots: list[int],
    sums: bool,
    gradients: tuple[Tensor | None, ...],
    arrived: tuple[Tensor | None, ...],
) -> None:
    """The hook: note the norms of what leaves node `place` by `slots`, and where it `sums` of what arrived."""
    if torch.is_grad_enabled():  # with `create_graph`
        with torch.no_grad():
            return _measure(what, norms, place, slots, sums, gradients, arrived)
    taken = [(slot, gradients[slot]) for slot in slots]
    if sums:
        taken += [(-1, gradient) for gradient in arrived]
    for slot, gradient in taken:
        if gradient is not None:
            what.append((place, slot))
            # Straight for what nearly all are: asking more takes as long as the norm of a small tensor.
            plain = gradient.dtype is torch.float32 and gradient.layout is torch.strided
            norms.append(torch.linalg.vector_norm(gradient) if plain else norm_of(values_of(gradient)))
    return None


def record(ends: Tensor | Sequence[Tensor], scale: float = 1.0) -> Recorder:
    """Watch the backward pass that is about to start from `ends`: a loss, or several outputs."""
    return Recorder(ends, scale)
