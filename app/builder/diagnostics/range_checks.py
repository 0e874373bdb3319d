"""Index ranges: whether the declared values of an Input are valid rows of embedding tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from app.builder.diagnostics.problems import Cure, Problem, SetParam

if TYPE_CHECKING:
    from app.builder.diagnostics.checks import Net
    from app.builder.graph import Node

_TABLES = {"nn.Embedding": "num_embeddings", "nn.EmbeddingBag": "num_embeddings", "F.one_hot": "num_classes"}
# What gives the very values that arrive at its first input.
_SAME_VALUES = frozenset(
    """
    nn.Flatten nn.Unflatten nn.Identity nn.ChannelShuffle Tensor.view Tensor.expand Tensor.contiguous Tensor.long
    Tensor.to torch.reshape torch.flatten torch.permute torch.transpose torch.movedim torch.squeeze torch.unsqueeze
    torch.tile torch.repeat_interleave torch.chunk torch.split torch.select torch.narrow torch.roll torch.flip
    torch.clone torch.detach operator.getitem
    """.split()
)


def ranges(net: Net) -> Iterator[Problem]:
    """Find tables smaller than an input's declared range, or indexed below 0."""
    for node in net.live:
        size = net.param(node, _TABLES.get(node.op, ""))
        source = _source(net, node) if type(size) is int else None
        if source is None or type(size) is not int:
            continue
        low, high = source.params.get("low"), source.params.get("high")
        table = _TABLES[node.op]
        if high is not None and high > size:
            message = f"{source.name} has values up to {int(high) - 1}, {node.name} has {size:,} rows"
            reason = f"Rows are counted from 0, so {table} must be at least {int(high)}."
            cures = (Cure(f"Set {table}={int(high)}", (SetParam(node.id, table, int(high)),)),
                     Cure(f"Set high={size} at {source.name}", (SetParam(source.id, "high", size),)))  # fmt: skip
            yield Problem("error", node.id, message, reason, cures=cures)
        elif low is not None and low < 0:
            message = f"{source.name} has values from {low}, and {node.name} has no rows below 0"
            cure = Cure(f"Set low=0 at {source.name}", (SetParam(source.id, "low", 0),))
            yield Problem("error", node.id, message, "Rows are counted from 0.", cures=(cure,))


def _source(net: Net, node: Node) -> Node | None:
    """Return the input whose values are the indices, None if they are computed."""
    seen: set[str] = set()
    while node.id not in seen:
        seen.add(node.id)
        first = next((port.name for port in net.spec(node).inputs), "")
        wire = next((edge for edge in net.graph.into(node.id) if edge.port == first), None)
        if wire is None:
            return None
        node = net.graph.nodes[wire.source]
        if node.op == "input":
            return node
        if node.op not in _SAME_VALUES:
            return None
    return None
