"""The graph of a network: nodes are calls, edges carry values. Immutable values, pure edits."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import cached_property
from operator import attrgetter
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from app.util.errors import CodedError
from app.util.frozen import FrozenMap, Shared


class GraphError(CodedError, ValueError):
    """An edit that would leave the graph broken."""


class Edge(Shared, frozen=True, order=True, dict=True):
    """A wire from output number `output` of `source` into `port` of `target`.

    `index` orders the wires of a variadic port (`torch.cat`); it is 0 elsewhere.
    """

    source: str
    output: int
    target: str
    port: str
    index: int = 0

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """Cached: the canvas looks up each wire many times per edit."""
        return hash((self.source, self.output, self.target, self.port, self.index))


class Init(Struct, frozen=True):
    """How one parameter of a layer is initialised: a function of `torch.nn.init` and its arguments."""

    name: str
    params: FrozenMap[str, Any] = FrozenMap()


class Tie(Struct, frozen=True):
    """The parameter `name`, a state_dict key, of the module of `node`; "" if the node is itself a parameter."""

    node: str
    name: str


class Node(Shared, frozen=True):
    """One call. `op` is a key of the catalog; `params` holds only values that differ from the default.

    A `muted` node is bypassed: its first input becomes its first output. The parameters of a `frozen` node have
    `requires_grad=False`. `shares` is the id of the node whose module this one reuses, and whose parameters apply, ""
    for an own module. `repeat` chains that many modules, each with its own weights. `inits` maps a parameter
    to an initialisation other than `reset_parameters`. A `kept` node that no output needs is constructed anyway, for
    its state_dict keys. `tied` maps its parameters to those of another node: one tensor under two names. `order` is the
    position of its module in registration order, 0 for call order.
    """

    id: str
    op: str
    name: str
    params: FrozenMap[str, Any] = FrozenMap()
    muted: bool = False
    frozen: bool = False
    shares: str = ""
    repeat: int = 1
    inits: FrozenMap[str, Init] = FrozenMap()
    kept: bool = False
    tied: FrozenMap[str, Tie] = FrozenMap()
    order: int = 0


class Graph(Shared, frozen=True, dict=True):
    """Nodes by id and the edges between them. Every method returns a new graph."""

    nodes: FrozenMap[str, Node] = FrozenMap()
    edges: tuple[Edge, ...] = ()

    @cached_property
    def incoming(self) -> dict[str, tuple[Edge, ...]]:
        """Edges by target, in port and index order."""
        return _grouped(self.edges, attrgetter("target"))

    @cached_property
    def outgoing(self) -> dict[str, tuple[Edge, ...]]:
        """Edges by source."""
        return _grouped(self.edges, attrgetter("source"))

    @cached_property
    def ops(self) -> tuple[str, ...]:
        """The ops of the nodes, each once, in order."""
        return tuple(dict.fromkeys(node.op for node in self.nodes.values()))

    def into(self, node: str) -> tuple[Edge, ...]:
        return self.incoming.get(node, ())

    def out_of(self, node: str) -> tuple[Edge, ...]:
        return self.outgoing.get(node, ())

    def part(self, nodes: Collection[str]) -> Graph:
        """Return some of the nodes with the edges between them."""
        node_ids = frozenset(nodes)
        edges = tuple(
            edge
            for edge in self.edges
            if edge.source in node_ids and edge.target in node_ids
        )
        return Graph(
            FrozenMap(
                {key: node for key, node in self.nodes.items() if key in node_ids}
            ),
            edges,
        )

    def fresh_id(self) -> str:
        """Return an unused id of the form `n7`."""
        number = len(self.nodes) + 1
        while f"n{number}" in self.nodes:
            number += 1
        return f"n{number}"

    def fresh_name(self, stem: str) -> str:
        """Return `stem1`, or the first of `stem2`, `stem3`, ... that is unused."""
        used = {node.name for node in self.nodes.values()}
        number = 1
        while f"{stem}{number}" in used:
            number += 1
        return f"{stem}{number}"

    def with_node(self, node: Node) -> Graph:
        """Add a node, or replace the one with its id."""
        after = replace(self, nodes=self.nodes.set(node.id, node))
        for index_name in (
            "incoming",
            "outgoing",
        ):  # the wires are unchanged, so the cached indexes stay valid
            if index_name in self.__dict__:
                after.__dict__[index_name] = self.__dict__[index_name]
        return after

    def with_param(self, node: str, name: str, value: Any) -> Graph:
        """Set a parameter of the module that the node calls, which others may call too."""
        old = self.owner(node)
        return self.with_node(replace(old, params=old.params.set(name, value)))

    def without_param(self, node: str, name: str) -> Graph:
        """Back to the default."""
        old = self.owner(node)
        return self.with_node(replace(old, params=old.params.without(name)))

    def with_name(self, node: str, name: str) -> Graph:
        return self.with_node(replace(self.nodes[node], name=name))

    def with_edge(self, edge: Edge) -> Graph:
        """Add a wire. Whether it is valid is checked by `rules`, not here."""
        if edge.source not in self.nodes or edge.target not in self.nodes:
            raise GraphError(
                f"a wire joins {edge.source} and {edge.target}, and one of them does not exist"
            )
        return replace(self, edges=(*self.edges, edge))

    def without_edge(self, edge: Edge) -> Graph:
        return replace(
            self, edges=tuple(other for other in self.edges if other != edge)
        )

    @cached_property
    def shared(self) -> frozenset[str]:
        """The nodes whose module is called by more than one."""
        sharing = [
            node
            for node in self.nodes.values()
            if node.shares and node.shares in self.nodes
        ]
        return frozenset(node.id for node in sharing) | {
            node.shares for node in sharing
        }

    def owner(self, node: str) -> Node:
        """Return the node whose module is called: the node itself, or the one that it shares with."""
        caller = self.nodes[node]
        return self.nodes.get(caller.shares, caller) if caller.shares else caller

    def sharing(self, node: str) -> tuple[str, ...]:
        """List all nodes that call the module of this one, itself included, in order."""
        owner = self.owner(node).id
        return tuple(
            other.id
            for other in self.nodes.values()
            if other.id == owner or other.shares == owner
        )

    def with_shared(self, node: str, owner: str) -> Graph:
        """Let a node call the module of another. Raises GraphError unless both are of one op."""
        target = self.owner(owner)
        if target.op != self.nodes[node].op:
            raise GraphError(
                f"{self.nodes[node].name} and {target.name} differ in type, so they cannot share a module"
            )
        if target.id == node or self.nodes[node].shares == target.id:
            return self
        graph = self.unshared(node)
        return graph.with_node(
            replace(
                graph.nodes[node],
                shares=target.id,
                params=FrozenMap(),
                frozen=False,
                repeat=1,
                inits=FrozenMap(),
                tied=FrozenMap(),
            )
        )

    def unshared(self, node: str) -> Graph:
        """Give a node its own module with the same parameters; the others continue to share."""
        old, owner = self.nodes[node], self.owner(node)
        if owner.id != node:
            return self.with_node(_owning(replace(old, shares=""), owner))
        heirs = [other for other in self.sharing(node) if other != node]
        graph = self
        for other in heirs:
            heir = graph.nodes[other]
            heir = (
                _owning(replace(heir, shares=""), old)
                if other == heirs[0]
                else replace(heir, shares=heirs[0])
            )
            graph = graph.with_node(heir)
        return graph

    def without_nodes(self, ids: Iterable[str]) -> Graph:
        """Remove nodes and every wire that touches them. Of nodes that shared a module with a removed one, the first
        that stays has it then, with its parameters."""
        gone = set(ids)
        heirs: dict[str, str] = {}
        nodes: dict[str, Node] = {}
        for node in self.nodes.values():
            if node.id in gone:
                continue
            if node.shares in gone and node.shares in self.nodes:
                owner = self.nodes[node.shares]
                if owner.id in heirs:
                    node = replace(node, shares=heirs[owner.id])
                else:
                    heirs[owner.id] = node.id
                    node = _owning(replace(node, shares=""), owner)
            nodes[node.id] = node
        nodes = {key: _without_ties(node, gone) for key, node in nodes.items()}
        return Graph(
            FrozenMap(nodes),
            tuple(
                e for e in self.edges if e.source not in gone and e.target not in gone
            ),
        )


def _owning(node: Node, owner: Node) -> Node:
    """Copy to a node everything that defines the module of another."""
    return replace(
        node,
        params=owner.params,
        frozen=owner.frozen,
        repeat=owner.repeat,
        inits=owner.inits,
        tied=owner.tied,
        order=owner.order,
    )


def _without_ties(node: Node, gone: set[str]) -> Node:
    """Drop the ties of a node to parameters of deleted nodes."""
    left = {name: tie for name, tie in node.tied.items() if tie.node not in gone}
    return node if len(left) == len(node.tied) else replace(node, tied=FrozenMap(left))


_PLACE = attrgetter("port", "index")


def _grouped(edges: Iterable[Edge], key: Any) -> dict[str, tuple[Edge, ...]]:
    groups: dict[str, list[Edge]] = {}
    for edge in edges:
        groups.setdefault(key(edge), []).append(edge)
    return {
        name: tuple(sorted(group, key=_PLACE) if len(group) > 1 else group)
        for name, group in groups.items()
    }


def merged(graph: Graph, piece: Graph) -> tuple[Graph, dict[str, str]]:
    """Put a copy of `piece` into `graph` under fresh ids and names; returns old id -> new id."""
    names, ids = {node.name for node in graph.nodes.values()}, dict[str, str]()
    nodes, number, numbers = (
        dict(graph.nodes),
        0,
        dict[str, int](),
    )  # numbers up to these are used: of ids, of stems
    for node in piece.nodes.values():
        number = max(number, len(nodes)) + 1
        while f"n{number}" in nodes:
            number += 1
        ids[node.id], name = f"n{number}", node.name
        if name in names:
            stem = name.rstrip("0123456789") or name
            numbers[stem] = numbers.get(stem, 0) + 1
            while f"{stem}{numbers[stem]}" in names:
                numbers[stem] += 1
            name = f"{stem}{numbers[stem]}"
        names.add(name)
        nodes[ids[node.id]] = replace(node, id=ids[node.id], name=name)
    for node in piece.nodes.values():
        new = ids[node.id]
        if node.shares:  # with the copy if it was copied too, else with the node of `graph`, else with none
            shares = ids.get(
                node.shares, node.shares if node.shares in graph.nodes else ""
            )
            nodes[new] = replace(nodes[new], shares=shares)
        if node.tied:
            ends = {
                name: (ids.get(tie.node, tie.node), tie)
                for name, tie in node.tied.items()
            }
            tied = {
                name: replace(tie, node=end)
                for name, (end, tie) in ends.items()
                if end in nodes
            }
            nodes[new] = replace(nodes[new], tied=FrozenMap(tied))
    edges = (
        replace(edge, source=ids[edge.source], target=ids[edge.target])
        for edge in piece.edges
    )
    return Graph(FrozenMap(nodes), (*graph.edges, *edges)), ids
