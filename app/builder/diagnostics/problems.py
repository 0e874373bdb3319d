"""Problems of a graph, and their cures as data."""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from msgspec.structs import force_setattr, replace

from app.builder.catalog.catalog import Catalog
from app.builder.graph import Edge, Graph, Node
from app.builder.literals import AUTO
from app.util.frozen import FrozenMap, Shared


class SetParam(Struct, frozen=True):
    """Give a parameter of a node a value."""

    node: str
    name: str
    value: Any


class InsertBefore(Struct, frozen=True):
    """Put a new node on the wire into `port` of `node`, on number `index` of a port that takes several."""

    node: str
    port: str
    op: str
    params: FrozenMap[str, Any] = FrozenMap()
    index: int = 0


class Connect(Struct, frozen=True):
    """Draw a wire from output number `output` of `source` into the free `port` of `node`."""

    node: str
    port: str
    source: str
    output: int = 0


class Append(Struct, frozen=True):
    """Put a new node behind a node, on output number `output`."""

    node: str
    op: str
    output: int = 0


class RemoveNode(Struct, frozen=True):
    """Remove a node."""

    node: str


class TakeOut(Struct, frozen=True):
    """Remove a node of one input from its wire: its source is connected to its targets."""

    node: str


class Move(Struct, frozen=True):
    """Take a node of one input out of its wire and put it on the wire into `port` of `target`."""

    node: str
    target: str
    port: str
    index: int = 0


class ReplaceOp(Struct, frozen=True):
    """Change the op of a node; its wires are kept, so the new op has ports of the same names."""

    node: str
    op: str
    params: FrozenMap[str, Any] = FrozenMap()


class Thaw(Struct, frozen=True):
    """Unfreeze a node."""

    node: str


class Unshare(Struct, frozen=True):
    """Give a node its own module instead of a shared one."""

    node: str


class Keep(Struct, frozen=True):
    """Have a node in the class that no output needs, or leave it out of the code."""

    node: str
    kept: bool = True


class Untie(Struct, frozen=True):
    """Give a node its own parameter instead of a tied one."""

    node: str
    name: str


class OpenLayers(Struct, frozen=True):
    """Open the file that `module` is imported from to review and trust it. The graph stays unchanged."""

    node: str
    module: str


class DropInit(Struct, frozen=True):
    """Leave a parameter of a layer as its constructor made it."""

    node: str
    name: str


class SetTraining(Struct, frozen=True):
    """Change a training setting, because of `node`. The graph is unchanged."""

    node: str
    name: str
    value: Any


class SetData(Struct, frozen=True):
    """Change a data setting, because of `node`. The graph is unchanged."""

    node: str
    name: str
    value: Any


class ChooseData(Struct, frozen=True):
    """Open the choice of data, because of `node`. The graph stays unchanged."""

    node: str


Wiring = InsertBefore | Append | Connect | RemoveNode | TakeOut | Move | ReplaceOp
OfGraph = Wiring | SetParam | Thaw | Unshare | Untie | Keep | DropInit
Edit = OfGraph | SetTraining | SetData | OpenLayers | ChooseData


FITS, ADDS, CHANGES = range(3)  # the order in which cures are offered


class Cure(Struct, frozen=True):
    """One click that mends a problem: its words and its edits.

    `replaces` is true if it gives up something that somebody chose, which the label names.
    """

    label: str
    edits: tuple[Edit, ...]
    replaces: bool = False

    @property
    def rank(self) -> int:
        """The sort key of the cures of a problem: FITS the user's choices, ADDS to them, or CHANGES them."""
        if self.replaces or self.destructive:
            return CHANGES
        return ADDS if any(map(_gives_other_layers, self.edits)) else FITS

    @property
    def opens(self) -> str:
        """The module of the layer file to review, "" for a cure that edits."""
        return next(
            (edit.module for edit in self.edits if isinstance(edit, OpenLayers)), ""
        )

    @property
    def destructive(self) -> bool:
        """True if it removes a node, and nothing takes its place."""
        return (
            any(isinstance(edit, RemoveNode | TakeOut) for edit in self.edits)
            and len(self.edits) == 1
        )

    @property
    def moved(self) -> tuple[str, ...]:
        """The nodes that get another position."""
        return tuple(edit.node for edit in self.edits if isinstance(edit, Move))

    @property
    def chooses_data(self) -> bool:
        """True if it opens the choice of data instead of editing."""
        return any(isinstance(edit, ChooseData) for edit in self.edits)

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of the training that it changes, by name."""
        return {
            edit.name: edit.value
            for edit in self.edits
            if isinstance(edit, SetTraining)
        }

    @property
    def data(self) -> dict[str, Any]:
        """The choices of the data that it changes, by name."""
        return {
            edit.name: edit.value for edit in self.edits if isinstance(edit, SetData)
        }


def _gives_other_layers(edit: Edit) -> bool:
    """Return whether an edit adds, moves or exchanges a layer, or has it take the size that arrives."""
    return isinstance(edit, Wiring) or getattr(edit, "value", None) is AUTO


class Problem(Shared, frozen=True):
    """A problem: `severity` is "error" (the net cannot run), "warning" or "info".

    `port` is the input that causes it: None for any of them, "" for a problem with none, such as one of weights.
    `torch_message` is PyTorch's own message, if the call was tried. A problem inside a block is reported at its
    instance, `node`, with the `path` to it: pairs of instance and repetition. Its cures are in the order of their
    ranks. `code` names the kind of problem, as `tapedeck check --json` writes it.
    """

    severity: str
    node: str | None
    message: str
    reason: str = ""
    torch_message: str = ""
    port: str | None = None
    cures: tuple[Cure, ...] = ()
    path: tuple[tuple[str, int], ...] = ()
    code: str = ""

    def __post_init__(self) -> None:
        ordered = tuple(sorted(self.cures, key=lambda cure: cure.rank))
        force_setattr(self, "cures", ordered)

    @property
    def rank(self) -> int:
        """Sort key: errors first, notes last."""
        return ("error", "warning", "info").index(self.severity)


def apply_cure(graph: Graph, catalog: Catalog, cure: Cure) -> Graph:
    """Apply a cure. Edits of deleted nodes are skipped."""
    for edit in cure.edits:
        if edit.node not in graph.nodes or isinstance(
            edit, OpenLayers | SetTraining | SetData | ChooseData
        ):
            continue
        if isinstance(edit, SetParam):
            graph = graph.with_param(edit.node, edit.name, edit.value)
        elif isinstance(edit, RemoveNode):
            graph = graph.without_nodes([edit.node])
        elif isinstance(edit, Unshare):
            graph = graph.unshared(edit.node)
        elif isinstance(edit, DropInit):
            owner = graph.owner(edit.node)
            graph = graph.with_node(
                replace(owner, inits=owner.inits.without(edit.name))
            )
        elif isinstance(edit, Untie):
            owner = graph.owner(edit.node)
            graph = graph.with_node(replace(owner, tied=owner.tied.without(edit.name)))
        elif isinstance(edit, Keep):
            graph = graph.with_node(replace(graph.nodes[edit.node], kept=edit.kept))
        elif isinstance(edit, Thaw):
            graph = graph.with_node(replace(graph.nodes[edit.node], frozen=False))
        elif isinstance(edit, TakeOut):
            graph = _taken_out(graph, edit.node)
        elif isinstance(edit, Move):
            node, at = graph.nodes[edit.node], (edit.target, edit.port, edit.index)
            rest = _taken_out(graph, node.id).with_node(node)
            moved = _on_wire(rest, catalog, node, *at)
            graph = moved if node.id in moved.nodes else graph
        elif isinstance(edit, Connect):
            graph = _connected(graph, edit)
        elif isinstance(edit, Append):
            graph, new = _with_new(graph, catalog, edit.op)
            port = catalog[edit.op].inputs[0].name
            graph = graph.with_edge(Edge(edit.node, edit.output, new.id, port))
        elif isinstance(edit, ReplaceOp):
            unshared = graph.unshared(edit.node)  # the other sharers keep the old op
            graph = unshared.with_node(
                replace(unshared.nodes[edit.node], op=edit.op, params=edit.params)
            )
        else:
            with_new, new = _with_new(graph, catalog, edit.op, edit.params)
            at = (edit.node, edit.port, edit.index)
            graph = _on_wire(with_new, catalog, new, *at)
    return graph


def _connected(graph: Graph, edit: Connect) -> Graph:
    occupied = any(edge.port == edit.port for edge in graph.into(edit.node))
    if occupied or edit.source not in graph.nodes:
        return graph
    return graph.with_edge(Edge(edit.source, edit.output, edit.node, edit.port))


def _on_wire(
    graph: Graph, catalog: Catalog, node: Node, target: str, port: str, index: int
) -> Graph:
    """Lead the wire into a port through a node that has none yet; without such a wire the node is removed."""
    into = (
        edge for edge in graph.into(target) if (edge.port, edge.index) == (port, index)
    )
    wire = next(into, None)
    if wire is None:
        return graph.without_nodes([node.id])
    first = catalog[node.op].inputs[0].name
    graph = graph.without_edge(wire)
    graph = graph.with_edge(Edge(wire.source, wire.output, node.id, first))
    return graph.with_edge(Edge(node.id, 0, wire.target, wire.port, wire.index))


def _with_new(
    graph: Graph, catalog: Catalog, op: str, params: FrozenMap[str, Any] = FrozenMap()
) -> tuple[Graph, Node]:
    """Return the graph with a new node that has no wires yet, and the node."""
    spec = catalog[op]
    names = {node.name for node in graph.nodes.values()}
    name = spec.stem if spec.stem not in names else graph.fresh_name(spec.stem)
    new = Node(graph.fresh_id(), op, name, spec.starting_params().update(params))
    return graph.with_node(new), new


def _taken_out(graph: Graph, node: str) -> Graph:
    feed = next(iter(graph.into(node)), None)
    leaving = graph.out_of(node)
    graph = graph.without_nodes([node])
    if feed is None:
        return graph
    for wire in leaving:
        graph = graph.with_edge(replace(wire, source=feed.source, output=feed.output))
    return graph
