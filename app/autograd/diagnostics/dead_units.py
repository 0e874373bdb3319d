"""Find dead units: always 0 in the forward pass, or without any gradient in backward."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from msgspec import Struct

from app.autograd.memory import raw_saved
from app.autograd.playback.kept_graph import LiveGraph
from app.autograd.tape import TapeNode

if TYPE_CHECKING:
    from torch import Tensor

MOST_NAMED = 64

# Nodes that save their own output, in which a dead unit is 0.
_CUTTING = ("ReluBackward", "HardtanhBackward", "ThresholdBackward")
# Lookup tables, whose rows are not dead merely because a batch did not index them.
_TABLES = ("Embedding", "EmbeddingBag")


class DeadUnits(Struct, frozen=True):
    """Dead units of a layer, `dead` of `units`. `what` is "activation" (output 0 for the whole batch), "output" (no
    gradient for any weight into the unit) or "input" (none for any weight out of it).

    `node` is the tape's node: the activation's, or the parameter's leaf. `which` are the first of the units.
    """

    node: int
    layer: str
    title: str
    what: str
    dead: int
    units: int
    which: tuple[int, ...]
    parameter: str = ""

    @property
    def share(self) -> float:
        """The fraction of its units that are dead, 0 to 1."""
        return self.dead / self.units if self.units else 0.0


@torch.no_grad()
def dead_units(
    graph: LiveGraph, gradients: Mapping[str, Tensor]
) -> tuple[DeadUnits, ...]:
    """Find the layers with dead units, in tape order; `gradients` are the parameters', as of `Playback.gradients`."""
    dead: list[DeadUnits] = []
    for node, live in zip(graph.tape.nodes, graph.nodes, strict=True):
        if node.name.startswith(_CUTTING):
            output = _output_of(live)
            if output is not None and output.ndim >= 2:
                unit = output.ndim - 1 if output.ndim == 3 else 1
                others = tuple(d for d in range(output.ndim) if d != unit)
                dead += _dead_units_of(
                    graph, node, "activation", (output == 0).all(dim=others)
                )
        elif node.is_leaf and node.parameters and node.parameters[0] in gradients:
            dead += _of_weight(graph, node, gradients[node.parameters[0]])
    return tuple(dead)


def _of_weight(graph: LiveGraph, node: TapeNode, gradient: Tensor) -> list[DeadUnits]:
    kind = graph.tape.layers.get(node.layer, "")
    if gradient.ndim < 2 or gradient.layout is not torch.strided or kind in _TABLES:
        return []
    none = (gradient == 0).flatten(2).all(2) if gradient.ndim > 2 else gradient == 0
    to, away = (0, 1) if kind.startswith("ConvTranspose") else (1, 0)
    return [
        *_dead_units_of(graph, node, "output", none.all(dim=to)),
        *_dead_units_of(graph, node, "input", none.all(dim=away)),
    ]


def _dead_units_of(
    graph: LiveGraph, node: TapeNode, kind: str, dead: Tensor
) -> list[DeadUnits]:
    which = dead.nonzero().flatten().tolist()
    if not which:
        return []
    title, parameter = (
        graph.tape.title_of(node),
        node.parameters[0] if node.parameters else "",
    )
    return [
        DeadUnits(
            node.id,
            node.layer,
            title,
            kind,
            len(which),
            len(dead),
            tuple(which[:MOST_NAMED]),
            parameter,
        )
    ]


def _output_of(live: Any) -> Tensor | None:
    """Return the output that a node saved, unless a hook packed it."""
    for attribute, items in raw_saved(live):
        for _, raw in items:
            if (
                attribute == "_saved_result"
                and raw.unpack_hook is None
                and isinstance(raw.data, torch.Tensor)
            ):
                return raw.data
    return None
