"""One walk over the graph, which shapes, source and drawing read: the calls in the order in which they run, and
the order in which their modules are registered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property

from msgspec import Struct
from msgspec.structs import replace

from app.builder.catalog.catalog import Catalog, OpSpec
from app.builder.graph import Graph, Node
from app.util.frozen import FrozenMap, Shared, equal_in


class Ref(Struct, frozen=True):
    """Output number `output` of a node."""

    node: str
    output: int


# Kinds that belong to a class even if they are never called.
HOLDING = ("module", "parameter", "buffer")


class Step(Shared, frozen=True, dict=True):
    """One call. `args` holds the connected ports in the order of the spec; `live` is True if an output needs it, or if
    it is `kept`: constructed but never called.

    `module` is the id of the node whose module is called, its own unless shared; the node has the parameters of that
    module.
    """

    node: Node
    spec: OpSpec
    args: FrozenMap[str, tuple[Ref, ...]]
    live: bool
    module: str = ""
    kept: bool = False

    @cached_property
    def id(self) -> str:
        return self.node.id

    @cached_property
    def sources(self) -> frozenset[str]:
        """The nodes whose values the call takes."""
        return frozenset(ref.node for ref in self.refs())

    def refs(self) -> tuple[Ref, ...]:
        """Return all values that the call takes, port by port."""
        return tuple(ref for refs in self.args.values() for ref in refs)


class Plan(Shared, frozen=True):
    """Steps in execution order, outputs last; `loops` are the nodes on a cycle, which have no order.

    Nodes downstream of a loop have no step either. A muted node has none: `passed` maps it to the value that it
    forwards, if any.
    """

    steps: tuple[Step, ...]
    loops: tuple[str, ...] = ()
    passed: FrozenMap[str, Ref | None] = FrozenMap()
    catalog: Catalog | None = None

    def __eq__(self, other: object) -> bool:
        """Compare the steps, of whichever catalog."""
        return equal_in(("steps", "loops", "passed"), self, other)

    def __hash__(self) -> int:
        return hash(self.steps)


def plan(
    graph: Graph, catalog: Catalog, earlier: tuple[Graph, Plan] | None = None
) -> Plan:
    """Sort the calls topologically, keeping chains together.

    Of nodes that are ready, the one made ready last goes first; ties follow the order of the nodes in the graph.
    Outputs come last, in the order of the graph, which is the order of what `forward` returns. Without an output node
    every node counts as live, so that an unfinished drawing has source too.

    `earlier` is a previous graph and its plan; unchanged steps are the same objects.
    """
    old_graph, old = (
        earlier if earlier and earlier[1].catalog is catalog else (None, None)
    )
    if (
        old_graph is not None
        and old is not None
        and (quick := _with_other_params(graph, catalog, old_graph, old))
    ):
        return quick
    outputs = [node.id for node in graph.nodes.values() if node.op == "output"]
    order, loops = _order(graph)
    ends, reached = set(outputs), set(order)
    order = [node for node in order if node not in ends] + [
        node for node in outputs if node in reached
    ]
    arguments_by_node = {
        node: _arguments(graph, catalog, node)
        for node in order
        if not graph.nodes[node].muted
    }
    live = _needed(outputs, arguments_by_node) if outputs else set(arguments_by_node)
    old_steps = {step.id: step for step in old.steps} if old else {}
    steps = (
        _as_before(old_steps.get(node), graph.nodes[node], args, node in live)
        or _step(graph, catalog, node, args, node in live, outputs != [])
        for node, args in arguments_by_node.items()
    )
    refs = {
        node.id: passed_by(graph, catalog, Ref(node.id, 0))
        for node in graph.nodes.values()
        if node.muted and node.id in reached
    }
    return Plan(tuple(steps), loops, FrozenMap(refs), catalog)


def _with_other_params(
    graph: Graph, catalog: Catalog, old_graph: Graph, old: Plan
) -> Plan | None:
    """Return the updated plan if only parameters and names changed; None otherwise."""
    if graph.edges is not old_graph.edges or list(graph.nodes) != list(old_graph.nodes):
        return None
    before = old_graph.nodes
    changed = {key for key, node in graph.nodes.items() if node is not before[key]}
    for key in tuple(changed):
        new, was = graph.nodes[key], before[key]
        if (new.op, new.muted, new.shares, new.kept) != (
            was.op,
            was.muted,
            was.shares,
            was.kept,
        ):
            return None
        changed.update(graph.sharing(key))
    return replace(
        old,
        steps=tuple(
            _step(
                graph,
                catalog,
                step.id,
                step.args,
                step.live and not step.kept,
                step.kept,
            )
            if step.id in changed
            else step
            for step in old.steps
        ),
    )


def _as_before(
    step: Step | None, node: Node, args: Arguments, live: bool
) -> Step | None:
    """Return the previous step if it cannot have changed; the number of outputs may depend on wires."""
    same = (
        step is not None
        and step.node is node
        and (step.live and not step.kept) == live
        and step.args == args
    )
    return (
        step
        if same and step is not None and not step.spec.outputs_by and not node.shares
        else None
    )


def _step(
    graph: Graph,
    catalog: Catalog,
    node_id: str,
    args: Arguments,
    live: bool,
    keeping: bool = False,
) -> Step:
    node = graph.nodes[node_id]
    spec = catalog.spec_of(graph, node)
    if (
        keeping
        and node.kept
        and not live
        and node_id not in graph.shared
        and spec.kind in HOLDING
    ):
        return Step(node, spec, args, True, node_id, kept=True)
    owner = graph.owner(node_id) if node.shares else node
    if owner is not node and owner.op == node.op:
        node = replace(
            node,
            params=owner.params,
            frozen=owner.frozen,
            repeat=owner.repeat,
            inits=owner.inits,
            tied=owner.tied,
        )
        return Step(node, spec, args, live, owner.id)
    return Step(node, spec, args, live, node_id)


Arguments = FrozenMap[str, tuple["Ref", ...]]


def _needed(outputs: list[str], arguments_by_node: dict[str, Arguments]) -> set[str]:
    """Find the nodes whose values reach an output; values that a muted node drops do not count."""
    needed: set[str] = set()
    todo = [node for node in outputs if node in arguments_by_node]
    while todo:
        node = todo.pop()
        if node not in needed:
            needed.add(node)
            todo.extend(
                ref.node
                for refs in arguments_by_node[node].values()
                for ref in refs
                if ref.node in arguments_by_node
            )
    return needed | set(outputs)


def _order(graph: Graph) -> tuple[list[str], tuple[str, ...]]:
    positions = {node: i for i, node in enumerate(graph.nodes)}
    waiting = {node: len({e.source for e in graph.into(node)}) for node in graph.nodes}
    ready = sorted(
        (node for node, count in waiting.items() if count == 0),
        key=positions.__getitem__,
        reverse=True,
    )
    order: list[str] = []
    while ready:
        node = ready.pop()
        order.append(node)
        freed = []
        for target in dict.fromkeys(edge.target for edge in graph.out_of(node)):
            waiting[target] -= 1
            if waiting[target] == 0:
                freed.append(target)
        ready.extend(sorted(freed, key=positions.__getitem__, reverse=True))
    return order, _circling(graph, [node for node in graph.nodes if waiting[node] > 0])


def _circling(graph: Graph, stuck: list[str]) -> tuple[str, ...]:
    """Keep the nodes that are part of a cycle, not those merely downstream of one."""
    left = set(stuck)
    leads = {
        node: len({edge.target for edge in graph.out_of(node)} & left) for node in stuck
    }
    ends = [node for node in stuck if leads[node] == 0]
    while ends:
        node = ends.pop()
        left.discard(node)
        for source in {edge.source for edge in graph.into(node)} & left:
            leads[source] -= 1
            if leads[source] == 0:
                ends.append(source)
    return tuple(node for node in stuck if node in left)


def passed_by(graph: Graph, catalog: Catalog, ref: Ref) -> Ref | None:
    """Resolve the real source of a value: a muted node forwards its first connected input.

    None for an input that a muted node lacks, and for its outputs after the first.
    """
    while graph.nodes[ref.node].muted:
        edges = {(edge.port, edge.index): edge for edge in graph.into(ref.node)}
        ports = [
            port.name
            for port in catalog.spec_of(graph, graph.nodes[ref.node]).inputs
            if not port.wired
        ]
        first = next((edges[port, 0] for port in ports if (port, 0) in edges), None)
        if first is None or ref.output:
            return None
        ref = Ref(first.source, first.output)
    return ref


def _arguments(graph: Graph, catalog: Catalog, node_id: str) -> Arguments:
    edges = graph.into(node_id)
    args = {}
    for port in catalog.spec_of(graph, graph.nodes[node_id]).inputs:
        wired = (
            passed_by(graph, catalog, Ref(e.source, e.output))
            for e in edges
            if e.port == port.name
        )
        refs = tuple(ref for ref in wired if ref is not None)
        if refs:
            args[port.name] = refs
    return FrozenMap(args)


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
