"""The norms of all gradients of a real backward pass, measured while it runs and fetched with one wait at its end.

    with record(loss) as recorder:
        loss.backward()
    recorder.finish().edge_norms

Hooks sit on this one graph, so a step that is not recorded costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import torch

from app.autograd.measure import norm_of, values_of
from app.autograd.tape import Tape, TapeEdge
from app.autograd.walk import execution_order, is_accumulate, short_name, walk
from app.frozen import FrozenMap

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Recorded:
    """What a backward pass was like. Nodes are numbered as in the `Tape` of a capture of the same net.

    `ran` are the nodes with more than a leaf behind them, as the engine ran them; `order` is that with the leaves.
    `node_norms` is what arrived, by node, `edge_norms` what left, by (source, slot), both with a gradient scaler's
    factor divided out. A node that only one edge leads to has that edge's norm.
    """

    names: tuple[str, ...]
    edges: tuple[TapeEdge, ...]
    order: tuple[int, ...]
    ran: tuple[int, ...]
    node_norms: FrozenMap[int, float] = field(default_factory=FrozenMap)
    edge_norms: FrozenMap[tuple[int, int], float] = field(default_factory=FrozenMap)

    def fits(self, tape: Tape) -> bool:
        """Whether the tape has the same nodes and edges, so that its layers and lines are these nodes' too."""
        ours = [(e.source, e.slot, e.target, e.output_nr) for e in self.edges]
        theirs = [(e.source, e.slot, e.target, e.output_nr) for e in tape.edges]
        return ours == theirs and self.names == tuple(node.name for node in tape.nodes)

    @property
    def first_non_finite(self) -> int | None:
        """The first node, as the engine ran them, from which a gradient left that is not finite."""
        bad = {source for (source, _), norm in self.edge_norms.items() if not math.isfinite(norm)}
        return next((node for node in self.ran if node in bad), None)


class Recorder:
    """Hooks on the nodes below some tensors until `finish` or the end of its `with`. `scale` is a gradient scaler's."""

    def __init__(self, ends: Tensor | Sequence[Tensor], scale: float = 1.0) -> None:
        given = [ends] if isinstance(ends, torch.Tensor) else list(ends)
        self.scale = scale
        nodes, self._edges, roots = walk(given)
        self._names = tuple(map(short_name, nodes))
        self._order = execution_order([node._sequence_nr() for node in nodes], self._edges, roots)
        self._ran: list[int] = []
        self._norms: list[Tensor] = []
        self._what: list[tuple[int, int]] = []  # (source, slot), or (node, -1) for what arrived
        self._sums: set[int] = set()
        self._hooks = self._put_on(nodes, roots)

    def _put_on(self, nodes: list[Any], roots: tuple[int, ...]) -> list[Any]:
        """A leaf that one edge leads to needs no hook: the edge says it all."""
        slots: dict[tuple[int, int], int] = {}
        leaving: dict[int, list[TapeEdge]] = {}
        for edge in self._edges:
            slots[edge.target, edge.output_nr] = slots.get((edge.target, edge.output_nr), 0) + 1
            leaving.setdefault(edge.source, []).append(edge)
        inputs: dict[int, int] = {}
        for target, _ in slots:
            inputs[target] = inputs.get(target, 0) + 1
        self._sums = {target for (target, _), count in slots.items() if count > 1 or inputs[target] > 1} | set(roots)
        return [
            node.register_hook(self._hook(place, leaving.get(place, [])))
            for place, node in enumerate(nodes)
            if place in self._sums or not is_accumulate(node)
        ]

    def _hook(self, place: int, edges: list[TapeEdge]) -> Callable[[Any, Any], None]:
        ran, norms, what, sums = self._ran, self._norms, self._what, self._sums

        def after(gradients: tuple[Tensor | None, ...], arrived: tuple[Tensor | None, ...]) -> None:
            with torch.no_grad():
                if edges:
                    ran.append(place)
                for edge in edges:
                    gradient = gradients[edge.slot]
                    if gradient is None:
                        continue
                    what.append((place, edge.slot))
                    norms.append(norm_of(values_of(gradient)))
                if place in sums:
                    for gradient in arrived:
                        if gradient is not None:
                            what.append((place, -1))
                            norms.append(norm_of(values_of(gradient)))

        return after

    def finish(self) -> Recorded:
        """Take the hooks off and fetch what was measured; waits for the device."""
        self.close()
        values = self._fetched()
        edges = {key: value for key, value in zip(self._what, values, strict=True) if key[1] >= 0}
        squares: dict[int, float] = {}
        for (node, slot), value in zip(self._what, values, strict=True):
            if slot < 0:
                squares[node] = squares.get(node, 0.0) + value * value
        nodes = {node: math.sqrt(square) for node, square in squares.items()}
        for edge in self._edges:
            if edge.target not in nodes and (edge.source, edge.slot) in edges:
                nodes[edge.target] = edges[edge.source, edge.slot]
        return Recorded(
            self._names, tuple(self._edges), self._order, tuple(self._ran), FrozenMap(nodes), FrozenMap(edges)
        )

    def _fetched(self) -> list[float]:
        norms = [norm.detach() for norm in self._norms]
        if len({norm.device for norm in norms}) > 1:
            norms = [norm.cpu() for norm in norms]
        return [value / self.scale for value in torch.stack(norms).tolist()] if norms else []

    def close(self) -> None:
        """Take the hooks off."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()


def record(ends: Tensor | Sequence[Tensor], scale: float = 1.0) -> Recorder:
    """Watch the backward pass that is about to start from `ends`: a loss, or several outputs."""
    return Recorder(ends, scale)
