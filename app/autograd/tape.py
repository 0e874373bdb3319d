"""The autograd graph of one forward pass, as frozen plain data without tensors or autograd nodes.

Classes with tens of thousands of instances are `Struct`s: frozen like all values, and created ten times as
fast.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from app.util.frozen import FrozenMap, Shared

ACCUMULATE = "AccumulateGrad"
LOSS = "loss"


LEAF = "leaf:"  # begins the label of a leaf that belongs to none of the operations that use it


class Label(Struct, frozen=True):
    """Title and category of a node of the drawing.

    `category` is a key such as "conv", `kind` the operation's name such as "Conv2d"; both are "" if unknown.
    """

    title: str
    category: str = ""
    kind: str = ""


class SavedTensor(Struct, frozen=True, array_like=True):
    """A tensor that a backward node saved.

    `bytes` is the size of its elements, `storage` the index of its storage in `Tape.storages` (several saved tensors
    can share one). `kind` is "activation", "parameter", "buffer" or "input". `version` is the tensor's version counter
    when it was saved and `version_now` the one after the forward pass; they differ after an in-place change, and are
    None if torch does not expose them (custom Functions, packed tensors).
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    bytes: int
    kind: str
    storage: int
    version: int | None = None
    version_now: int | None = None


class Storage(Struct, frozen=True, array_like=True):
    """A memory block that backward needs: `holders` are node ids, the last of which in execution order frees it."""

    id: int
    bytes: int
    kind: str
    holders: tuple[int, ...]
    freed_by: int


class TapeNode(Struct, frozen=True, array_like=True):
    """One autograd node, named as torch names it ("ConvolutionBackward0").

    `layer` is the path of the innermost module that created it ("" for the net's own operations and for the loss),
    `call` numbers the calls of that module, `node` is the drawing's node, `line` the line of the generated text,
    or of `file` if given. `parameters` are all names of the parameter that an AccumulateGrad node accumulates into,
    `variables` the names in a snippet of the forward operation's result. `in_loss` marks nodes created after the net's
    forward. `sequence` counts the nodes that torch created since the forward pass began. `order` is 2 for nodes created
    by a backward pass with `create_graph=True`; their location is that of the node that was running.
    """

    id: int
    name: str
    layer: str = ""
    call: int = 0
    in_loss: bool = False
    node: str | None = None
    line: int | None = None
    parameters: tuple[str, ...] = ()
    sequence: int | None = None
    saved: tuple[SavedTensor, ...] = ()
    values: FrozenMap[str, Any] = FrozenMap()
    variables: tuple[str, ...] = ()
    order: int = 1
    file: str = ""

    @property
    def is_leaf(self) -> bool:
        """True where the gradient is added to a tensor's `.grad`."""
        return self.name == ACCUMULATE


class TapeEdge(Struct, frozen=True, array_like=True):
    """An edge of the gradient from input `slot` of the forward op of `source` to output `output_nr` of that of
    `target`.

    `shape` is the shape of the incoming gradient; None if torch does not expose it.
    """

    source: int
    slot: int
    target: int
    output_nr: int
    shape: tuple[int, ...] | None = None


class Tape(Shared, frozen=True, dict=True, weakref=True):
    """Everything that backward would traverse, `nodes[i].id == i`.

    `order` is the order in which torch's engine would run the nodes on one device. `layers` maps module paths to class
    names, `labels` drawing nodes to their labels. `loss` is the number that backward starts from, named `root`; it is
    None when backward starts at the net's outputs. `text` is the generated source that ran, "" for a model without one;
    `codes` are lines of its files, by "file:line".
    """

    nodes: tuple[TapeNode, ...]
    edges: tuple[TapeEdge, ...]
    roots: tuple[int, ...]
    order: tuple[int, ...]
    storages: tuple[Storage, ...]
    loss: float | None
    train: bool
    input_shapes: tuple[tuple[int, ...], ...] = ()
    layers: FrozenMap[str, str] = FrozenMap()
    labels: FrozenMap[str, Label] = FrozenMap()
    text: str = ""
    codes: FrozenMap[str, str] = FrozenMap()
    root: str = LOSS

    @cached_property
    def held_bytes(self) -> int:
        """Bytes kept alive only for backward: activations, each storage counted once."""
        return sum(s.bytes for s in self.storages if s.kind == "activation")

    @cached_property
    def steps(self) -> dict[int, int]:
        """Node id -> its place in the execution order, from 0."""
        return {node: step for step, node in enumerate(self.order)}

    @cached_property
    def outgoing(self) -> dict[int, tuple[TapeEdge, ...]]:
        """Edges by source, in slot order."""
        edges_by_source: dict[int, list[TapeEdge]] = {}
        for edge in self.edges:
            edges_by_source.setdefault(edge.source, []).append(edge)
        return {
            key: (edges[0],)
            if len(edges) == 1
            else tuple(sorted(edges, key=lambda e: e.slot))
            for key, edges in edges_by_source.items()
        }

    @cached_property
    def incoming(self) -> dict[int, tuple[TapeEdge, ...]]:
        """Edges by target."""
        edges_by_target: dict[int, list[TapeEdge]] = {}
        for edge in self.edges:
            edges_by_target.setdefault(edge.target, []).append(edge)
        return {key: tuple(edges) for key, edges in edges_by_target.items()}

    def leaf_behind(self, number: int) -> int | None:
        """Return the leaf to which a node leads exclusively: itself, or through views and casts only."""
        hops = 0
        while not self.nodes[number].is_leaf and hops < 4:
            targets = {edge.target for edge in self.outgoing.get(number, ())}
            if len(targets) != 1 or any(
                saved.kind == "activation" for saved in self.nodes[number].saved
            ):
                return None
            (number,) = targets
            hops += 1
        return number if self.nodes[number].is_leaf else None

    @cached_property
    def forward(self) -> tuple[TapeNode, ...]:
        """Nodes in order of creation; leaves after the first operation that used them."""
        order: list[tuple[int, int, int]] = []
        for node in self.nodes:
            if node.is_leaf:
                users = (
                    self.nodes[edge.source].sequence or 0
                    for edge in self.incoming.get(node.id, ())
                )
                order.append((min(users, default=0), 1, node.id))
            else:
                order.append((node.sequence or 0, 0, node.id))
        order.sort()
        return tuple(self.nodes[node] for _, _, node in order)

    @cached_property
    def forward_ranks(self) -> tuple[int, ...]:
        """A node's place in `forward`, by its id."""
        ranks = [0] * len(self.nodes)
        for rank, node in enumerate(self.forward):
            ranks[node.id] = rank
        return tuple(ranks)

    def code_of(self, node: TapeNode) -> str:
        """Return the stripped line of the generated source, or of its file, that created the node; "" if unknown."""
        if node.file:
            return self.codes.get(f"{node.file}:{node.line}", "")
        lines = self.text.splitlines()
        return (
            lines[node.line - 1].strip()
            if node.line is not None and node.line <= len(lines)
            else ""
        )

    def title_of(self, node: TapeNode) -> str:
        """Return the user-visible name of the node's origin: the full path of a module within another, the drawing's
        name of any other operation, or "loss"."""
        return (
            node.layer
            if "." in node.layer and not node.in_loss
            else self.drawn_title(node)
        )

    def drawn_title(self, node: TapeNode) -> str:
        """Return the name of what a node belongs to in the drawing: for all nodes of a block that of the block."""
        if node.in_loss:
            return LOSS
        if node.node is not None:
            label = self.labels.get(node.node)
            return label.title if label else node.layer or node.node
        return node.layer or self.layers.get("", "net")


def same_graph(tape: Tape, other: Tape | None) -> bool:
    """Return True if two tapes have the same nodes, edges and order, so that node ids agree."""
    return other is not None and (tape.nodes, tape.edges, tape.order) == (
        other.nodes,
        other.edges,
        other.order,
    )


def to_json(tape: Tape) -> dict[str, Any]:
    """Return the tape as JSON-ready plain data; `held_bytes` counts each storage once."""
    return {
        "loss": tape.loss,
        "train": tape.train,
        "inputs": [list(shape) for shape in tape.input_shapes],
        "held_bytes": tape.held_bytes,
        "nodes": [_node_json(tape, node) for node in tape.nodes],
        "edges": [
            {
                "source": e.source,
                "slot": e.slot,
                "target": e.target,
                "output_nr": e.output_nr,
            }
            for e in tape.edges
        ],
        "order": list(tape.order),
        "storages": [
            {
                "id": s.id,
                "bytes": s.bytes,
                "kind": s.kind,
                "holders": list(s.holders),
                "freed_by": s.freed_by,
            }
            for s in tape.storages
        ],
    }


def _node_json(tape: Tape, node: TapeNode) -> dict[str, Any]:
    return {
        "id": node.id,
        "name": node.name,
        "layer": tape.title_of(node),
        "module": node.layer or None,
        "node": node.node,
        "line": node.line,
        **({"file": node.file} if node.file else {}),
        "parameter": node.parameters[0] if node.parameters else None,
        "parameters": list(node.parameters),
        "variables": list(node.variables),
        "sequence": node.sequence,
        "saved": [
            {
                "name": s.name,
                "shape": list(s.shape),
                "dtype": s.dtype,
                "bytes": s.bytes,
                "kind": s.kind,
                "storage": s.storage,
                "version": s.version,
                "version_now": s.version_now,
            }
            for s in node.saved
        ],
        "values": {name: _plain(value) for name, value in node.values.items()},
    }


def _plain(value: Any) -> Any:
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def numbers_below(tape: Tape, root: int) -> dict[int, int]:
    """Map the nodes that `root` reaches to their numbers in the tape that `below` creates."""
    reached, todo = {root}, [root]
    while todo:
        for edge in tape.outgoing.get(todo.pop(), ()):
            if edge.target not in reached:
                reached.add(edge.target)
                todo.append(edge.target)
    node_ids = [
        root,
        *(node.id for node in tape.nodes if node.id in reached and node.id != root),
    ]
    return {node: index for index, node in enumerate(node_ids)}


def below(tape: Tape, root: int, loss: float | None = None) -> Tape:
    """Return the subgraph reachable from node `root` as a Tape; `loss` is the value at `root`."""
    number = numbers_below(tape, root)
    node_ids, reached = list(number), set(number)
    blocks = [s for s in tape.storages if reached.intersection(s.holders)]
    block = {s.id: position for position, s in enumerate(blocks)}
    order = tuple(number[node] for node in tape.order if node in reached)
    steps = {node: step for step, node in enumerate(order)}
    nodes = []
    for node in (tape.nodes[node_id] for node_id in node_ids):
        saved = tuple(replace(s, storage=block[s.storage]) for s in node.saved)
        nodes.append(replace(node, id=number[node.id], saved=saved))
    storages = []
    for index, old in enumerate(blocks):
        holders = tuple(number[node] for node in old.holders if node in reached)
        storages.append(
            replace(
                old,
                id=index,
                holders=holders,
                freed_by=max(holders, key=steps.__getitem__),
            )
        )
    left = (edge for edge in tape.edges if edge.source in reached)
    edges = [replace(e, source=number[e.source], target=number[e.target]) for e in left]
    return replace(
        tape,
        nodes=tuple(nodes),
        edges=tuple(edges),
        roots=(0,),
        order=order,
        storages=tuple(storages),
        loss=loss,
    )
