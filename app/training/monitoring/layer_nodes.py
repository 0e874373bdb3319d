"""Map layers of the network to nodes of the drawing."""

from __future__ import annotations

from app.source.generated import Source


def node_of(source: Source, layer: str) -> str | None:
    """Return the node of a layer, of the module that contains it, or of a parameter of the network itself."""
    owners = {path: node for node, path in source.modules.items()}
    while layer and layer not in owners:
        layer = layer.rpartition(".")[0]
    return owners.get(layer)
