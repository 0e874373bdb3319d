"""Record all gradient norms of a real backward pass with hooks, fetched with one synchronization at its end.

    with record(loss) as recorder:
        loss.backward()
    recorder.finish().edge_norms

Hooks sit on this one graph, so a step that is not recorded costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import torch
from msgspec import Struct

from app.autograd.tape import Tape, TapeEdge
from app.autograd.walk import execution_order, short_name, walk
from app.util.frozen import FrozenMap
from tapedeck.norms import norm_of, values_of

if TYPE_CHECKING:
    from torch import Tensor

# Nodes that only rearrange elements, so their outgoing norm equals the incoming one. Most pooling does too, see
# `_spreads`.
_REARRANGING = frozenset(
    f"{name}Backward0"
    for name in (
        "T",
        "View",
        "UnsafeView",
        "ReshapeAlias",
        "Alias",
        "Transpose",
        "Permute",
        "Squeeze",
        "Unsqueeze",
    )
) | {"SqueezeBackward1", "SqueezeBackward2", "TransposeBackward1"}
_POOLING = frozenset({"MaxPool2DWithIndicesBackward0", "MaxPool3DWithIndicesBackward0"})


class Recorded(Struct, frozen=True, dict=True):
    """Gradient norms of one backward pass. Nodes are numbered as in the `Tape` of a capture of the same net.

    `node_norms` is what arrived, by node, `edge_norms` what left, by (source, slot), both with a gradient scaler's
    factor divided out. A node that only one edge leads to has that edge's norm.
    """

    names: tuple[str, ...]
    edges: tuple[TapeEdge, ...]
    roots: tuple[int, ...]
    sequences: tuple[int, ...]
    node_norms: FrozenMap[int, float] = FrozenMap()
    edge_norms: FrozenMap[tuple[int, int], float] = FrozenMap()

    @cached_property
    def order(self) -> tuple[int, ...]:
        """The nodes in the order in which the engine ran them."""
        return execution_order(list(self.sequences), self.edges, self.roots)

    def fits(self, tape: Tape) -> bool:
        """Return True if the tape has the same nodes and edges, so that its layers and lines apply."""
        ours = [(e.source, e.slot, e.target, e.output_nr) for e in self.edges]
        theirs = [(e.source, e.slot, e.target, e.output_nr) for e in tape.edges]
        return ours == theirs and self.names == tuple(node.name for node in tape.nodes)


class NormRecorder:
    """Hooks on the nodes below some tensors until `finish` or the end of its `with`. `scale` is a gradient scaler's."""

    def __init__(self, ends: Tensor | Sequence[Tensor], scale: float = 1.0) -> None:
        nodes, self._edges, self._roots = walk(
            [ends] if isinstance(ends, torch.Tensor) else ends, shapes=False
        )
        self.scale = scale
        self._names = tuple(map(short_name, nodes))
        self._sequences = tuple(node._sequence_nr() for node in nodes)
        self._norms: list[Tensor] = []
        self._what: list[
            tuple[int, int]
        ] = []  # (source, slot), or (node, -1) for what arrived
        self._sums = set(
            self._roots
        )  # nodes where gradients of several edges are summed
        self._handing_on = {
            index
            for index, name in enumerate(self._names)
            if name in _REARRANGING or (name in _POOLING and _spreads(nodes[index]))
        }
        self._hooks = self._put_on(nodes)

    def _put_on(self, nodes: list[Any]) -> list[Any]:
        """Register hooks; most leaves need none, as a single incoming edge determines their norm."""
        met: set[int] = set(self._roots)
        sums, handing_on = self._sums, self._handing_on
        slots: dict[int, list[int]] = {}
        for edge in self._edges:
            target, source = edge.target, edge.source
            if target in met:
                sums.add(target)
            met.add(target)
            if source not in handing_on:
                slots.setdefault(source, []).append(edge.slot)
        slots_by_node = {**slots, **{index: slots.get(index, []) for index in sums}}
        return [
            nodes[index].register_hook(
                _measuring(self._what, self._norms, index, of, index in sums)
            )
            for index, of in slots_by_node.items()
        ]

    def finish(self) -> Recorded:
        """Remove the hooks and fetch the measurements; synchronises the device."""
        self.close()
        nodes: dict[int, float] = {}
        edges: dict[tuple[int, int], float] = {}
        for key, value in zip(self._what, self._fetched(), strict=True):
            if key[1] >= 0:
                edges[key] = value
            else:
                nodes[key[0]] = math.hypot(nodes.get(key[0], 0.0), value)
        # Sources come before their targets here: `walk` numbers nodes from the ends on, except where several edges
        # meet, and there the norm was measured.
        sums, handing_on = self._sums, self._handing_on
        for edge in self._edges:
            source = edge.source
            key = source, edge.slot
            norm = edges.get(key)
            if norm is None and source in handing_on and source in nodes:
                norm = edges[key] = nodes[source]
            if norm is not None and edge.target not in sums:
                nodes[edge.target] = norm
        return Recorded(
            self._names,
            tuple(self._edges),
            self._roots,
            self._sequences,
            FrozenMap(nodes),
            FrozenMap(edges),
        )

    def _fetched(self) -> list[float]:
        norms, scale = self._norms, self.scale
        if any(norm.is_cpu for norm in norms):  # no device to wait for, or several
            return (
                [norm.item() for norm in norms]
                if scale == 1
                else [norm.item() / scale for norm in norms]
            )
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


def _spreads(node: Any) -> bool:
    """Return whether pooling windows do not overlap, so that backward sums nothing."""
    kernel, stride = node._saved_kernel_size, node._saved_stride
    apart = all(
        step >= size for step, size in zip(stride or kernel, kernel, strict=True)
    )
    return apart and all(gap == 1 for gap in node._saved_dilation)


def _measuring(
    edge_keys: list[tuple[int, int]],
    norms: list[Tensor],
    index: int,
    slots: list[int],
    sums: bool,
) -> Callable[[tuple[Tensor | None, ...], tuple[Tensor | None, ...]], None]:
    """Create the hook: record the norms of gradients leaving node `index` by `slots`, and with `sums` of the incoming
    one."""
    leaving = [((index, slot), slot) for slot in slots]
    arriving = index, -1

    def measure(
        gradients: tuple[Tensor | None, ...], arrived: tuple[Tensor | None, ...]
    ) -> None:
        if torch.is_grad_enabled():  # with `create_graph`
            with torch.no_grad():
                return measure(gradients, arrived)
        before = None
        for key, slot in leaving:
            gradient = gradients[slot]
            if gradient is not None:
                edge_keys.append(key)
                # An addition hands one gradient on to both sides.
                norms.append(
                    norms[-1] if gradient is before else norm_of(values_of(gradient))
                )
                before = gradient
        if sums:
            for gradient in arrived:
                if gradient is not None:
                    edge_keys.append(arriving)
                    norms.append(
                        norms[-1]
                        if gradient is before
                        else norm_of(values_of(gradient))
                    )
                    before = gradient
        return None

    return measure


def record(ends: Tensor | Sequence[Tensor], scale: float = 1.0) -> NormRecorder:
    """Watch the backward pass that is about to start from `ends`: a loss, or several outputs."""
    return NormRecorder(ends, scale)
