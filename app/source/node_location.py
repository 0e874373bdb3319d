"""The node of a drawing that a module of its generated net, or a line of it, belongs to."""

from __future__ import annotations

from app.source.generated import Path, Source


def node_location(source: Source, path: str, line: int) -> tuple[Path, str] | None:
    """Return the way to a module's node and its id; of a module without a node that of its line."""
    way: Path = ()
    while path:
        inner = source.within(way)
        spots = [
            (node, number, name)
            for node in inner.modules
            for number, name in enumerate(
                (inner.modules[node], *inner.further.get(node, ()))
            )
            if name == path
            or path.startswith(f"{name}.")
            or name.startswith(f"{path}.")
        ]
        if not spots:
            break
        node, number, name = max(
            spots, key=lambda spot: len(spot[2]) if len(spot[2]) <= len(path) else 0
        )
        if len(name) >= len(path) or not source.within((*way, (node, number))).modules:
            return way, node
        way = (*way, (node, number))
    node_id = next(
        (node for node, lines in source.within(way).lines.items() if line in lines),
        None,
    )
    return (way, node_id) if node_id is not None else None
