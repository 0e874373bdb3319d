"""Blocks that are a plain chain of modules: inlined as `nn.Sequential`.

The names decide: a chain whose nodes are called 0, 1, 2, ... in order has the keys of a Sequential.
"""

from __future__ import annotations

from app.builder.blocks import Block
from app.builder.catalog.catalog import Catalog, OpSpec
from app.builder.graph import Edge, Graph, Node

# A chain with chains in it that is larger, or nested deeper, is a class: a text can double with every level.
LARGEST = 2000
DEEPEST = 16


class Chains:
    """Blocks written in place as nn.Sequential. `of` returns the nodes of one in order, None for a class."""

    def __init__(self, catalog: Catalog | None) -> None:
        self._catalog = catalog
        self._known: dict[str, tuple[Node, ...] | None] = {}
        self._sizes: dict[
            str, tuple[int, int]
        ] = {}  # modules that are written, and how deep they are nested

    def chain_of(self, block: Block) -> tuple[Node, ...] | None:
        """Return the nodes between input and output if the block is such a chain."""
        if block.name not in self._known:
            self._known[block.name] = None  # guards against recursion
            self._known[block.name] = self._read(block)
        return self._known[block.name]

    def _read(self, block: Block) -> tuple[Node, ...] | None:
        nodes, ends = block.graph.nodes.values(), ("input", "output")
        if self._catalog is None or not all(
            node.op in ends or node.name.isdecimal() for node in nodes
        ):
            return None
        order = self._in_order(block, self._catalog)
        if order is None or not self._small(block, order):
            return None
        return order

    def _in_order(self, block: Block, catalog: Catalog) -> tuple[Node, ...] | None:
        graph = block.graph
        if (
            len(block.inputs) != 1
            or len(block.outputs) != 1
            or block.inputs[0].muted
            or block.outputs[0].muted
        ):
            return None
        if any(node.shares or node.tied for node in graph.nodes.values()):
            return None
        order: list[Node] = []
        at, key = block.inputs[0].id, 0
        while len(edges := graph.out_of(at)) == 1:
            node = graph.nodes[edges[0].target]
            if node.op == "output":
                complete = len(order) + 2 == len(graph.nodes) and bool(order)
                return (
                    tuple(order) if complete and len(graph.into(node.id)) == 1 else None
                )
            if node.name != str(key) or not _one_in_one_out(
                graph, node, edges[0], catalog.spec_of(graph, node)
            ):
                return None
            order.append(node)
            at, key = node.id, key + node.repeat
        return None

    def _small(self, block: Block, order: tuple[Node, ...]) -> bool:
        size, depth = 1, 1  # a row of modules is as long as it is drawn
        for node in order:
            inner = (
                self._catalog[node.op].definition if self._catalog is not None else None
            )
            chain = self.chain_of(inner) if inner is not None else None
            modules, levels = (
                self._sizes[inner.name] if inner is not None and chain else (1, 0)
            )
            size, depth = size + modules * node.repeat, max(depth, levels + 1)
        self._sizes[block.name] = size, depth
        return depth == 1 or (size <= LARGEST and depth <= DEEPEST)


def _one_in_one_out(graph: Graph, node: Node, wire: Edge, spec: OpSpec) -> bool:
    """Return whether the node is a module whose only argument is the wire's value."""
    if (
        spec.kind not in ("module", "block")
        or wire.output
        or len(graph.into(node.id)) != 1
    ):
        return False
    if (
        not spec.inputs
        or wire.port != spec.inputs[0].name
        or any(port.required for port in spec.inputs[1:])
    ):
        return False
    by = spec.param(spec.outputs_by)
    if spec.outputs_given(node.params) != 1 or (by is not None and by.kind != "bool"):
        return False
    at_call = (param for param in spec.params if param.call and spec.kind == "module")
    return not any(
        p.required or p.auto or node.params.get(p.name, p.default) != p.default
        for p in at_call
    )
