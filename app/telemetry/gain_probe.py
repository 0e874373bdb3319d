"""Measure the gradient gain of each layer in one backward pass.

A layer's gain is |grad in| / |grad out|: the norm of the gradient it passes to other layers over that of its incoming
gradient. Every backward node belongs to the innermost module whose call created it; hooks are on the nodes of one graph
where a layer begins or ends, so unmeasured steps cost nothing.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from app.telemetry.gradient_gains import NET, Gains
from app.telemetry.throttle import Meter
from app.util import module_tree
from tapedeck.norms import norm_of, values_of

if TYPE_CHECKING:
    from torch import Tensor, nn

# AccumulateGrad nodes carry the largest sequence number there is.
_LEAF = 2**64 - 1


class GainProbe:
    """`begin` before the forward, `forward_done(loss)` before backward, `fetch` once the step is over.

    Calls of the modules note torch's count of nodes, which is one a thread and which every node carries.
    """

    def __init__(self, model: nn.Module, meter: Meter) -> None:
        self._meter = meter
        self._modules = {
            module: path or NET for path, module in module_tree.named_modules(model)
        }
        self._handles: list[Any] = []
        self._clear()

    def _clear(self) -> None:
        self._calls: dict[str, int] = {}
        self._open: list[str] = []
        self._from: list[int] = []  # from this number on nodes are of ...
        self._key: list[str] = []  # ... this layer; "" for the loss
        self._order: list[str] = []
        self._norms: list[tuple[str, bool, Tensor]] = []
        self._scale = 1.0

    def begin(self) -> None:
        """Install the module hooks."""

        self.drop()
        for module in self._modules:
            self._handles.append(
                module_tree.before_call(module, self._enter, prepend=True)
            )
            self._handles.append(
                module_tree.on_call(module, self._leave, always_call=True)
            )

    def forward_done(self, loss: Tensor | None, scale: float = 1.0) -> None:
        """Take them off; put hooks on the nodes below the loss. `scale` is a gradient scaler's factor."""
        if not self._handles:
            return
        self._off()
        self._scale = scale
        if loss is not None and loss.requires_grad:
            with self._meter:
                self._watch(loss)

    def fetch(self) -> Gains | None:
        """Return the measurements, None if there are none; synchronises with the device. Waits for the device."""
        totals: dict[tuple[str, bool], float] = {}
        norms = [norm for _, _, norm in self._norms]
        # On the CPU every number is there at once.
        if all(norm.is_cpu for norm in norms):
            values = [norm.item() for norm in norms]
        else:
            values = torch.stack([norm.to(norms[0].device) for norm in norms]).tolist()
        for (key, leaves, _), value in zip(self._norms, values, strict=True):
            norm = value / self._scale if math.isfinite(value) else math.inf
            totals[key, leaves] = math.hypot(totals.get((key, leaves), 0.0), norm)
        layers = tuple(reversed(self._order))
        arriving, leaving = (
            tuple(totals.get((key, leaves), math.nan) for key in layers)
            for leaves in (False, True)
        )
        self._clear()
        return Gains(layers, arriving, leaving) if layers else None

    def drop(self) -> None:
        """Discard the measurements of a step."""
        self._off()
        self._clear()

    def _off(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []

    # --- Forward

    def _enter(self, module: nn.Module, _inputs: Any) -> None:
        path = self._modules[module]
        call = self._calls[path] = self._calls.get(path, 0) + 1
        self._open.append(path if call == 1 else f"{path}#{call}")
        self._note(self._open[-1])

    def _leave(self, _module: nn.Module, _inputs: Any, _output: Any) -> None:
        if self._open:
            self._open.pop()
        self._note(self._open[-1] if self._open else "")

    def _note(self, key: str) -> None:
        self._from.append(torch._C._autograd._get_sequence_nr())
        self._key.append(key)

    def _layer_of(self, number: int) -> str:
        index = bisect_right(self._from, number) - 1
        return self._key[index] if index >= 0 else ""

    # --- Backward

    def _watch(self, loss: Tensor) -> None:
        root = loss.grad_fn
        nodes, edges = _graph(root)
        keys = self._keys(nodes)
        ends: dict[
            Any, list[int]
        ] = {}  # by which slots the gradient leaves a node for another layer
        begins = {root}  # where it arrives from another
        for node, slot, child in edges:
            if child in keys and keys[child] != keys[node]:
                ends.setdefault(node, []).append(slot)
                begins.add(child)
        for node in {*ends, *begins}:
            if key := keys[node]:
                node.register_hook(
                    partial(self._measure, key, ends.get(node, []), node in begins)
                )

    def _keys(self, nodes: Mapping[Any, int]) -> dict[Any, str]:
        """Return the layer of each node but the leaves. A container's own operations before, between and after its
        children count as separate layers."""
        keys: dict[Any, str] = {}
        runs: dict[str, int] = {}
        previous = ""
        for node, number in sorted(nodes.items(), key=lambda item: item[1]):
            if number == _LEAF:
                continue
            key = self._layer_of(number)
            if key and key != previous:
                runs[key] = runs.get(key, 0) + 1
            previous = key
            keys[node] = key if runs.get(key, 1) == 1 else f"{key}/{runs[key]}"
        return keys

    def _measure(
        self,
        key: str,
        slots: list[int],
        begins: bool,
        gradients: tuple[Tensor | None, ...],
        arrived: tuple[Tensor | None, ...],
    ) -> None:
        """Hook of a node: measure the norms of outgoing gradients by `slots`, and of incoming ones."""
        with self._meter, torch.no_grad():
            if key not in self._order:
                self._order.append(key)
            for leaves, tensors in (
                (True, [gradients[slot] for slot in slots]),
                (False, arrived if begins else ()),
            ):
                for tensor in tensors:
                    if tensor is not None and _is_plain(tensor):
                        self._norms.append(
                            (key, leaves, norm_of(values_of(tensor)).float())
                        )


def _graph(root: Any) -> tuple[dict[Any, int], list[tuple[Any, int, Any]]]:
    """Return every node below `root` with its number, and the edges: (node, slot, next node)."""
    nodes = {root: root._sequence_nr()}
    edges: list[tuple[Any, int, Any]] = []
    todo = [root]
    while todo:
        node = todo.pop()
        for slot, (child, _) in enumerate(node.next_functions):
            if child is None:
                continue
            edges.append((node, slot, child))
            if child not in nodes:
                nodes[child] = child._sequence_nr()
                todo.append(child)
    return nodes, edges


def _is_plain(gradient: Tensor) -> bool:
    """Return whether a norm can be computed: an exception in a hook would end the run."""
    return (
        gradient.layout in (torch.strided, torch.sparse_coo) and not gradient.is_nested
    )
