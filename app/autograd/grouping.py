"""Group the tape by layer, and compute what remains to be drawn when some groups are collapsed."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from app.autograd.pictures.op_category import module_category, node_category
from app.autograd.tape import LEAF, LOSS, Label, Tape, TapeNode

OPEN_GROUP = 12
OPEN_TOTAL = 90
HOLDERS = (
    "ModuleList",
    "ModuleDict",
)  # classes of modules that are not called themselves


class LayerGroup(Struct, frozen=True):
    """The backward nodes of one layer's call, in forward order.

    `link` is the node of the drawing, or `module_link` for a model without one. `held` are the bytes of activations
    that the group's nodes keep, each block once (neighbours can share one); `freed` are those of them that no node
    keeps after this group has run, so that `freed` adds up to the tape's `held`. `kind` is the class of the module, or
    "" for operations without one, `path` the full path of the module.
    A group within another has its key as `parent`; `own` are the nodes that are in none of the groups within this one.
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
    parent: str | None = None
    own: tuple[int, ...] = ()
    path: str = ""


class FoldedEdge(Struct, frozen=True):
    """All edges between two things that are drawn; `shapes` are the different shapes of their gradients."""

    source: str
    target: str
    count: int
    shapes: tuple[tuple[int, ...], ...]


class Folded(Struct, frozen=True):
    """A folded tape: `place[i]` is the id of the item that replaces node `i` (`fold:<key>`, or its own number)."""

    groups: tuple[LayerGroup, ...]
    unfolded: frozenset[str]
    place: tuple[str, ...]
    edges: tuple[FoldedEdge, ...]


def group_by_layer(tape: Tape) -> tuple[LayerGroup, ...]:
    """Return the layers' groups in forward order, the loss last. Every node is in exactly one of them."""
    keys = node_keys(tape)
    members: dict[str, list[TapeNode]] = {}
    for node in tape.forward:
        members.setdefault(keys[node.id], []).append(node)
    return tuple(make_group(tape, key, nodes) for key, nodes in members.items())


def node_keys(tape: Tape) -> tuple[str, ...]:
    """Return the key of every node's group.

    A node of the drawing is one group wherever its operations ran. Without a drawing each module call is one, but a
    container's own operations before, between and after its children are separate groups, or the picture would have
    cycles.
    """
    keys = [""] * len(tape.nodes)
    runs: dict[str, int] = {}
    previous = ""
    for node in tape.forward:
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
            users = [
                (tape.nodes[e.source].sequence or 0, e.source)
                for e in tape.incoming.get(node.id, ())
            ]
            apart = node.node is not None and node.node.startswith(LEAF)
            keys[node.id] = keys[min(users)[1]] if users and not apart else _key(node)
    return tuple(keys)


def _key(node: TapeNode) -> str:
    if node.in_loss:
        return LOSS
    if node.node is not None:
        return f"node:{node.node}"
    return (
        f"layer:{node.layer}" if node.call <= 1 else f"layer:{node.layer}#{node.call}"
    )


def make_group(
    tape: Tape,
    key: str,
    nodes: list[TapeNode],
    *,
    title: str = "",
    module: str | None = None,
    parent: str | None = None,
    own: tuple[int, ...] | None = None,
    container: bool = False,
) -> LayerGroup:
    """Build the group of `nodes`, which are in forward order. A `container` has other groups within it."""
    ids = tuple(node.id for node in nodes)
    id_set = frozenset(ids)
    storages = {
        s.storage for node in nodes for s in node.saved if s.kind == "activation"
    }
    first = nodes[0]
    if not title:
        title = tape.drawn_title(first)
        if key.startswith("layer:") and first.call > 1:
            title = f"{title} (call {first.call})"
    label = (
        tape.labels.get(first.node)
        if first.node is not None and parent is None
        else None
    )
    of_files = bool(tape.codes) and key.startswith("layer:")
    link = (
        module_link(first.layer if module is None else module)
        if of_files
        else first.node
    )
    module = _module_of(tape, nodes) if module is None else module
    kind = (label.kind if label else "") or (
        tape.layers.get(module, "") if module and not first.in_loss else ""
    )
    return LayerGroup(
        key=key,
        title=title,
        kind=kind,
        category=_category(label, first, nodes, kind, container),
        link=link,
        nodes=ids,
        parameters=tuple(node.parameters[0] for node in nodes if node.parameters),
        held=sum(tape.storages[s].bytes for s in storages),
        freed=sum(
            tape.storages[s].bytes
            for s in storages
            if tape.storages[s].freed_by in id_set
        ),
        parent=parent,
        own=ids if own is None else own,
        path="" if first.in_loss else module,
    )


def held_by_module(tape: Tape, nodes: Iterable[int]) -> dict[str, int]:
    """Return the bytes that the modules of some nodes hold for backward, the most first, by their full paths. A storage
    counts where it is freed, so that those of all nodes add up to what the tape holds."""
    node_ids, bytes_by_path = set(nodes), dict[str, int]()
    for storage in tape.storages:
        if storage.kind == "activation" and storage.freed_by in node_ids:
            path = tape.title_of(tape.nodes[storage.freed_by])
            bytes_by_path[path] = bytes_by_path.get(path, 0) + storage.bytes
    return dict(sorted(bytes_by_path.items(), key=lambda entry: -entry[1]))


def module_link(path: str) -> str:
    """Return what links a group of a model that has no drawing to the module at `path`."""
    return f"module:{path}"


def _module_of(tape: Tape, nodes: list[TapeNode]) -> str:
    """Return the innermost module that contains all nodes; among list members the first."""
    paths = {node.layer for node in nodes if not node.is_leaf} or {nodes[0].layer}
    if len(paths) == 1:
        return nodes[0].layer
    shared = []
    for names in zip(*(path.split(".") for path in paths), strict=False):
        if len(set(names)) > 1:
            break
        shared.append(names[0])
    path = ".".join(shared)
    return nodes[0].layer if not path or tape.layers.get(path) in HOLDERS else path


def _category(
    label: Label | None,
    first: TapeNode,
    nodes: list[TapeNode],
    kind: str,
    container: bool,
) -> str:
    if first.in_loss:
        return "loss"
    if label and label.category:
        return label.category
    if container:
        return module_category(kind) or "block"
    return module_category(kind) or node_category(
        next((n.name for n in reversed(nodes) if not n.is_leaf), first.name)
    )


def opened(groups: Iterable[LayerGroup]) -> frozenset[str]:
    """Return the groups that start open: the small ones, unless the picture would be too large to read.

    Groups with subgroups start closed; small ones inside are open once their parents are.
    """
    groups = tuple(groups)
    containers = {group.parent for group in groups}
    small = [
        group
        for group in groups
        if len(group.nodes) <= OPEN_GROUP and group.key not in containers
    ]
    fits = (
        sum(len(group.nodes) for group in small if group.parent is None) <= OPEN_TOTAL
    )
    return frozenset(group.key for group in small if fits or group.parent is not None)


def deeper(groups: Iterable[LayerGroup], unfolded: frozenset[str]) -> frozenset[str]:
    """With the outermost level opened on which a closed group is seen."""
    depths = _depths(groups, unfolded)
    least = min(
        (depth for key, depth in depths.items() if key not in unfolded), default=0
    )
    return unfolded | {key for key, depth in depths.items() if depth == least}


def shallower(groups: Iterable[LayerGroup], unfolded: frozenset[str]) -> frozenset[str]:
    """With the innermost level closed on which an open group is seen."""
    depths = _depths(groups, unfolded)
    most = max((depth for key, depth in depths.items() if key in unfolded), default=0)
    return frozenset(
        key for key, depth in depths.items() if key in unfolded and depth < most
    )


def _depths(groups: Iterable[LayerGroup], unfolded: frozenset[str]) -> dict[str, int]:
    """Return the nesting depth of each visible group, open or closed."""
    depths: dict[str | None, int] = {None: -1}
    shown: dict[str, int] = {}
    for group in groups:
        above = depths.get(group.parent)
        if above is not None:
            shown[group.key] = above + 1
            if group.key in unfolded:
                depths[group.key] = above + 1
    return shown


def fold(
    tape: Tape, groups: tuple[LayerGroup, ...], unfolded: frozenset[str]
) -> Folded:
    """Collapse every group that is not in `unfolded` to one item, dropping its inner edges.

    `groups` has parents before their children; the contents of a closed one are hidden, open or closed.
    """
    item_ids = [str(node.id) for node in tape.nodes]
    for group in reversed(
        groups
    ):  # parents come later in this order, so a closed parent overrides
        if group.key not in unfolded:
            name = f"fold:{group.key}"
            for node in group.nodes:
                item_ids[node] = name
    edge_shapes: dict[tuple[str, str], list[tuple[int, ...] | None]] = {}
    for edge in tape.edges:
        ends = item_ids[edge.source], item_ids[edge.target]
        if ends[0] != ends[1]:
            edge_shapes.setdefault(ends, []).append(edge.shape)
    edges = tuple(
        FoldedEdge(*ends, len(shapes), _different(shapes))
        for ends, shapes in edge_shapes.items()
    )
    return Folded(
        groups, unfolded & {group.key for group in groups}, tuple(item_ids), edges
    )


def _different(shapes: list[tuple[int, ...] | None]) -> tuple[tuple[int, ...], ...]:
    if len(shapes) == 1:
        return () if shapes[0] is None else (shapes[0],)
    return tuple(dict.fromkeys(shape for shape in shapes if shape is not None))
