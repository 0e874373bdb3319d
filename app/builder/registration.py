"""Registration order of modules and parameters in a class, which an optimizer's state depends on.

It is call order unless `Node.order` overrides it, as in an imported net.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from app.builder.catalog.catalog import Catalog
from app.builder.graph import Graph, Node
from app.builder.plan import Step, plan
from app.util.frozen import FrozenMap

OWNING = ("module", "block", "custom", "parameter", "buffer")


def registered(steps: Iterable[Step], nodes: Mapping[str, Node]) -> list[Step]:
    """List the steps that own state, the first call of each module, in registration order.

    A node without an order follows the one called before it.
    """
    first: dict[str, Step] = {}
    for step in steps:
        if step.spec.kind in OWNING:
            first.setdefault(step.module, step)
    order, rows = 0, list[tuple[int, Step]]()
    for module, step in first.items():
        order = nodes.get(module, step.node).order or order
        rows.append((order, step))
    return [step for _, step in sorted(rows, key=lambda row: row[0])]


def sequence(graph: Graph, catalog: Catalog) -> list[str]:
    """List the ids of a sheet's nodes that own state, in registration order."""
    return [step.module for step in registered(_live(graph, catalog), graph.nodes)]


def with_sequence(graph: Graph, catalog: Catalog, node_ids: list[str]) -> Graph:
    """Set `order` so that modules register in the order of `node_ids`; all are 0 if the
    calls already have that order."""
    plain = Graph(
        FrozenMap(
            {
                key: replace(node, order=0) if node.order else node
                for key, node in graph.nodes.items()
            }
        ),
        graph.edges,
    )
    there = set(calls := sequence(plain, catalog))
    node_ids = [node for node in node_ids if node in there]
    if node_ids == [node for node in calls if node in set(node_ids)]:
        return plain
    orders = {node: number for number, node in enumerate(node_ids, 1)}
    nodes = {
        key: replace(node, order=orders[key]) if key in orders else node
        for key, node in plain.nodes.items()
    }
    return Graph(FrozenMap(nodes), graph.edges)


def _live(graph: Graph, catalog: Catalog) -> list[Step]:
    return [step for step in plan(graph, catalog).steps if step.live]
