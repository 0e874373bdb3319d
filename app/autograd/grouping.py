"""The tape folded by layer: which nodes belong together, and what is left to draw when some groups are closed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from app.autograd.looks import module_category, node_category
from app.autograd.tape import LOSS, Tape, TapeNode

OPEN_GROUP = 12
OPEN_TOTAL = 90


@dataclass(frozen=True)
class LayerGroup:
    """The backward nodes of one layer's call, in forward order.

    `link` is the node of the drawing. `held` are the bytes of activations that the group's nodes keep, each block
    once (neighbours can share one); `freed` are those of them that no node keeps after this group has run, so that
    `freed` adds up to the tape's `held`. `kind` is the class of the module, or "" for operations without one.
    """

    key: str
    title: str
    kind: str
    category: str
    link: str | None
    nodes: tuple[int, ...]
    parameters: tuple[str, ...]
    held: int
    freed: int


@dataclass(frozen=True)
class FoldedEdge:
    """All edges between two things that are drawn; `shapes` are the different shapes of their gradients."""

    source: str
    target: str
    count: int
    shapes: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Folded:
    """What is drawn: `place[i]` is the id of the thing that stands for node `i` (`fold:<key>`, or its own number)."""

    groups: tuple[LayerGroup, ...]
    unfolded: frozenset[str]
    place: tuple[str, ...]
    edges: tuple[FoldedEdge, ...]


def group_by_layer(tape: Tape) -> tuple[LayerGroup, ...]:
    """The layers' groups in forward order, the loss last. Every node is in exactly one of them."""
    keys = node_keys(tape)
    members: dict[str, list[TapeNode]] = {}
    for node in _forward_order(tape):
        members.setdefault(keys[node.id], []).append(node)
    return tuple(_group(tape, key, nodes) for key, nodes in members.items())


def node_keys(tape: Tape) -> tuple[str, ...]:
    """The key of every node's group.

    A node of the drawing is one group wherever its operations ran. Without a drawing a module's call is one, but what
    a container computes before, between and after its children is as many, or the picture would run in circles.
    """
    keys = [""] * len(tape.nodes)
    runs: dict[str, int] = {}
    previous = ""
    for node in _forward_order(tape):
        if node.is_leaf:
            continue
        key = _key(node)
        if key != previous and node.node is None and not node.in_loss:
            runs[key] = runs.get(key, 0) + 1
        previous = key
        run = runs.get(key, 1)
        keys[node.id] = key if run == 1 else f"{key}/{run}"
    for node in tape.nodes:
        if node.is_leaf:
            users = [(tape.nodes[e.source].sequence or 0, e.source) for e in tape.incoming.get(node.id, ())]
            keys[node.id] = keys[min(users)[1]] if users else _key(node)
    return tuple(keys)


def _key(node: TapeNode) -> str:
    if node.in_loss:
        return LOSS
    if node.node is not None:
        return f"node:{node.node}"
    return f"layer:{node.layer}" if node.call <= 1 else f"layer:{node.layer}#{node.call}"


def _forward_order(tape: Tape) -> list[TapeNode]:
    """Nodes as they were made; leaves behind the operation that used them first."""
    first_use = {
        node.id: min((tape.nodes[e.source].sequence or 0 for e in tape.incoming.get(node.id, ())), default=0)
        for node in tape.nodes
        if node.is_leaf
    }
    return sorted(tape.nodes, key=lambda n: (first_use[n.id], 1, n.id) if n.is_leaf else (n.sequence or 0, 0, n.id))


def _group(tape: Tape, key: str, nodes: list[TapeNode]) -> LayerGroup:
    ids = {node.id for node in nodes}
    storages = {s.storage for node in nodes for s in node.saved if s.kind == "activation"}
    first = nodes[0]
    title = tape.title_of(first)
    if key.startswith("layer:") and first.call > 1:
        title = f"{title} (call {first.call})"
    label = tape.labels.get(first.node) if first.node is not None else None
    module = tape.layers.get(first.layer, "") if first.layer and not first.in_loss else ""
    kind = (label.kind if label else "") or module
    return LayerGroup(
        key=key,
        title=title,
        kind=kind,
        category=_category(tape, first, nodes, kind),
        link=first.node,
        nodes=tuple(node.id for node in nodes),
        parameters=tuple(node.parameters[0] for node in nodes if node.parameters),
        held=sum(tape.storages[s].bytes for s in storages),
        freed=sum(tape.storages[s].bytes for s in storages if tape.storages[s].freed_by in ids),
    )


def _category(tape: Tape, first: TapeNode, nodes: list[TapeNode], kind: str) -> str:
    if first.in_loss:
        return "loss"
    label = tape.labels.get(first.node) if first.node is not None else None
    if label and label.category:
        return label.category
    return module_category(kind) or node_category(next((n.name for n in reversed(nodes) if not n.is_leaf), first.name))


def opened(groups: Iterable[LayerGroup]) -> frozenset[str]:
    """The groups that stand open at first: the small ones, unless they would make a picture too large to read."""
    small = [group for group in groups if len(group.nodes) <= OPEN_GROUP]
    fits = sum(len(group.nodes) for group in small) <= OPEN_TOTAL
    return frozenset(group.key for group in small) if fits else frozenset()


def fold(tape: Tape, groups: tuple[LayerGroup, ...], unfolded: frozenset[str]) -> Folded:
    """The graph with every group that is not in `unfolded` drawn as one thing and its inner edges left out."""
    place = [str(node.id) for node in tape.nodes]
    for group in groups:
        if group.key not in unfolded:
            for node in group.nodes:
                place[node] = f"fold:{group.key}"
    found: dict[tuple[str, str], list[tuple[int, ...] | None]] = {}
    for edge in tape.edges:
        ends = place[edge.source], place[edge.target]
        if ends[0] != ends[1]:
            found.setdefault(ends, []).append(edge.shape)
    edges = tuple(
        FoldedEdge(source, target, len(shapes), tuple(dict.fromkeys(shape for shape in shapes if shape is not None)))
        for (source, target), shapes in found.items()
    )
    return Folded(groups, unfolded & {group.key for group in groups}, tuple(place), edges)
