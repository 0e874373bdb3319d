"""One walk over the graph, which shapes, source and drawing read: the calls in the order in which they run."""

from __future__ import annotations

from dataclasses import dataclass

from app.builder.catalog import Catalog, OpSpec
from app.builder.graph import Graph, Node
from app.builder.rules import upstream
from app.frozen import FrozenMap


@dataclass(frozen=True)
class Ref:
    """Output number `output` of a node."""

    node: str
    output: int


@dataclass(frozen=True)
class Step:
    """One call. `args` holds the connected ports in the order of the spec; `live` says that an output needs it."""

    node: Node
    spec: OpSpec
    args: FrozenMap[str, tuple[Ref, ...]]
    live: bool

    @property
    def id(self) -> str:
        return self.node.id

    def refs(self) -> tuple[Ref, ...]:
        """Everything that the call takes, port by port."""
        return tuple(ref for refs in self.args.values() for ref in refs)


@dataclass(frozen=True)
class Plan:
    """Steps in running order, outputs last; `loops` are nodes that wait for each other and so are in no order at all.

    What lies behind a loop has no step either.
    """

    steps: tuple[Step, ...]
    loops: tuple[str, ...] = ()


def plan(graph: Graph, catalog: Catalog) -> Plan:
    """Order the calls so that each comes after what it takes, and a chain stays together.

    Of nodes that are ready, the one made ready last goes first; ties follow the order of the nodes in the graph.
    Outputs come last, in the order of the graph, which is the order of what `forward` returns. Without an output node
    every node counts as live, so that a drawing under way has source too.
    """
    outputs = [node.id for node in graph.nodes.values() if node.op == "output"]
    live = {*outputs, *upstream(graph, outputs)} if outputs else set(graph.nodes)
    order, loops = _order(graph)
    ends, reached = set(outputs), set(order)
    order = [node for node in order if node not in ends] + [node for node in outputs if node in reached]
    steps = tuple(_step(graph, catalog, node, node in live) for node in order)
    return Plan(steps, loops)


def _order(graph: Graph) -> tuple[list[str], tuple[str, ...]]:
    place = {node: i for i, node in enumerate(graph.nodes)}
    waiting = {node: len({e.source for e in graph.into(node)}) for node in graph.nodes}
    ready = sorted((node for node, count in waiting.items() if count == 0), key=place.__getitem__, reverse=True)
    order: list[str] = []
    while ready:
        node = ready.pop()
        order.append(node)
        freed = []
        for target in dict.fromkeys(edge.target for edge in graph.out_of(node)):
            waiting[target] -= 1
            if waiting[target] == 0:
                freed.append(target)
        ready.extend(sorted(freed, key=place.__getitem__, reverse=True))
    return order, _circling(graph, [node for node in graph.nodes if waiting[node] > 0])


def _circling(graph: Graph, stuck: list[str]) -> tuple[str, ...]:
    """Of nodes that never get ready, those that lead back to a loop, not those that merely come after one."""
    left = set(stuck)
    leads = {node: len({edge.target for edge in graph.out_of(node)} & left) for node in stuck}
    ends = [node for node in stuck if leads[node] == 0]
    while ends:
        node = ends.pop()
        left.discard(node)
        for source in {edge.source for edge in graph.into(node)} & left:
            leads[source] -= 1
            if leads[source] == 0:
                ends.append(source)
    return tuple(node for node in stuck if node in left)


def _step(graph: Graph, catalog: Catalog, node_id: str, live: bool) -> Step:
    node = graph.nodes[node_id]
    spec = catalog.of(graph, node)
    edges = graph.into(node_id)
    args = {}
    for port in spec.inputs:
        refs = tuple(Ref(edge.source, edge.output) for edge in edges if edge.port == port.name)
        if refs:
            args[port.name] = refs
    return Step(node, spec, FrozenMap(args), live)
