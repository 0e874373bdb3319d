"""Which node of a drawing a layer of the net is."""

from __future__ import annotations

from app.source.generated import Source


def node_of(source: Source, layer: str) -> str | None:
    """The node whose module a layer is or lies in, and for a parameter of the net itself the node that it is."""
    owners = {path: node for node, path in source.modules.items()}
    while layer and layer not in owners:
        layer = layer.rpartition(".")[0]
    return owners.get(layer)
