"""Strict records of sheets and blocks in a project file, and their conversion. Nothing is ever executed."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Protocol

from msgspec import Meta, Struct
from msgspec.structs import replace

from app.builder import limits, literals
from app.builder.blocks import Block, Blocks, circling, with_blocks
from app.builder.catalog.catalog import Catalog, Param
from app.builder.catalog.inits import check_inits
from app.builder.codegen.free_tensors import check_ties
from app.builder.expressions import expressions
from app.builder.graph import Edge, Graph, Init, Node, Tie
from app.builder.params import COMPUTED, ParamError, check_node, check_param
from app.builder.sheet import KINDS, Comment, Sheet
from app.source.interface import Text
from app.util.errors import CodedError
from app.util.frozen import FrozenMap

FARTHEST = 1e9
MOST_REPEATS = 1000
SEPARATORS = "/#"  # between the ids of a path into blocks

Finite = Annotated[float, Meta(ge=-FARTHEST, le=FARTHEST)]
Places = dict[str, tuple[Finite, Finite]]
Output = Annotated[int, Meta(ge=0, le=1000)]
Index = Annotated[int, Meta(ge=0, le=100_000)]


class ProjectFileError(CodedError, ValueError):
    """A file that is not a project; the text names the place and the cure, and of words without end their beginning."""

    exit_code = 2

    def __init__(self, text: str) -> None:
        super().__init__(re.sub(r"(\S{160})\S{40,}", r"\1...", text))


class InitRecord(Struct, forbid_unknown_fields=True):
    name: Text
    params: dict[str, Any] = {}


class TieRecord(Struct, forbid_unknown_fields=True):
    node: Text
    name: Text


class NodeRecord(Struct, forbid_unknown_fields=True):
    id: Text
    op: Text
    name: Text
    params: dict[str, Any] = {}
    muted: bool = False
    frozen: bool = False
    shares: Text = ""
    repeat: Annotated[int, Meta(ge=1, le=MOST_REPEATS)] = 1
    inits: dict[Text, InitRecord] = {}
    kept: bool = False
    tied: dict[Text, TieRecord] = {}
    order: Index = 0


class EdgeRecord(Struct, forbid_unknown_fields=True):
    source: Text
    target: Text
    port: Text
    output: Output = 0
    index: Index = 0


class BendRecord(EdgeRecord, forbid_unknown_fields=True):
    points: list[tuple[Finite, Finite]] = []


class CommentRecord(Struct, forbid_unknown_fields=True):
    text: Text
    x: Finite
    y: Finite
    width: Finite
    height: Finite
    kind: Text = "comment"
    color: Text = ""


class GraphRecord(Struct, forbid_unknown_fields=True):
    nodes: list[NodeRecord] = []
    edges: list[EdgeRecord] = []


class ParamRecord(Struct, forbid_unknown_fields=True):
    name: Text
    kind: Text
    default: Any = None
    choices: list[Text] = []
    count: Annotated[int, Meta(ge=0, le=64)] = 1
    optional: bool = False
    minimum: float | None = None
    maximum: float | None = None


class BlockRecord(Struct, forbid_unknown_fields=True):
    name: Text
    graph: GraphRecord
    positions: Places = {}
    comments: dict[Text, CommentRecord] = {}
    bends: list[BendRecord] = []
    params: list[ParamRecord] = []
    note: str = ""
    unfolded: list[Text] = []


class SheetRecord(Protocol):
    """The fields shared by the records of a project and of a block."""

    positions: Places
    comments: dict[str, CommentRecord]
    bends: list[BendRecord]
    unfolded: list[str]


# --- To records -------------------------------------------------------------------------------------------------


def sheet_record(sheet: Sheet) -> dict[str, Any]:
    """Serialize a sheet; empty parts are left out."""
    graph = sheet.graph
    raw: dict[str, Any] = {
        "graph": {
            "nodes": [_node(node) for node in graph.nodes.values()],
            "edges": [_edge(e) for e in graph.edges],
        },
        "positions": {
            node: _clamped(point)
            for node, point in sheet.positions.items()
            if node in graph.nodes
        },
    }
    if sheet.comments:
        raw["comments"] = {
            key: _comment(comment) for key, comment in sheet.comments.items()
        }
    if sheet.bends:
        raw["bends"] = [
            {**_edge(edge), "points": [_clamped(point) for point in points]}
            for edge, points in sheet.bends.items()
        ]
    if sheet.unfolded:
        raw["unfolded"] = [node for node in graph.nodes if node in sheet.unfolded]
    return raw


def block_record(block: Block) -> dict[str, Any]:
    """Plain data of a block."""
    raw = {"name": block.name, **sheet_record(block)}
    if block.params:
        raw["params"] = [_param(param) for param in block.params]
    return {**raw, "note": block.note} if block.note else raw


def encoded(params: Mapping[str, Any]) -> dict[str, Any]:
    """Encode parameters as JSON."""
    return {name: literals.encode(value) for name, value in params.items()}


def _node(node: Node) -> dict[str, Any]:
    raw: dict[str, Any] = {
        "id": node.id,
        "op": node.op,
        "name": node.name,
        "params": encoded(node.params),
    }
    raw |= {name: True for name in ("muted", "frozen", "kept") if getattr(node, name)}
    if node.shares:
        raw["shares"] = node.shares
    if node.repeat != 1:
        raw["repeat"] = node.repeat
    if node.inits:
        raw["inits"] = {
            key: {"name": init.name, "params": encoded(init.params)}
            for key, init in node.inits.items()
        }
    if node.tied:
        raw["tied"] = {
            key: {"node": tie.node, "name": tie.name} for key, tie in node.tied.items()
        }
    if node.order:
        raw["order"] = node.order
    return raw


def _edge(edge: Edge) -> dict[str, Any]:
    return {
        "source": edge.source,
        "output": edge.output,
        "target": edge.target,
        "port": edge.port,
        "index": edge.index,
    }


def _comment(comment: Comment) -> dict[str, Any]:
    x, y = _clamped((comment.x, comment.y))
    width, height = _clamped((comment.width, comment.height))
    raw = {
        "text": comment.text,
        "x": x,
        "y": y,
        "width": width,
        "height": height,
        "kind": comment.kind,
    }
    return {**raw, "color": comment.color} if comment.color else raw


def _param(param: Param) -> dict[str, Any]:
    raw: dict[str, Any] = {
        "name": param.name,
        "kind": param.kind,
        "default": literals.encode(param.default),
    }
    plain = Param(param.name, param.kind)
    for name in ("choices", "count", "optional", "minimum", "maximum"):
        value = getattr(param, name)
        if value != getattr(plain, name):
            raw[name] = list(value) if name == "choices" else value
    return raw


def _clamped(point: tuple[float, float]) -> list[float]:
    """Clamp a point to the extent of the canvas."""
    return [0.0 if math.isnan(c) else min(max(c, -FARTHEST), FARTHEST) for c in point]


# --- From records -----------------------------------------------------------------------------------------------


def sheet_parts(record: SheetRecord, graph: Graph, location: str) -> dict[str, Any]:
    """Return positions, comments, bends and unfolded nodes of a sheet, as arguments of a Project or a Block."""
    wires = set(graph.edges)
    bends = {
        Edge(b.source, b.output, b.target, b.port, b.index): tuple(b.points)
        for b in record.bends
    }
    for key, comment in record.comments.items():
        if comment.kind not in KINDS:
            raise ProjectFileError(
                f"{comment.kind!r:.40} is not one of {', '.join(KINDS)} - at `{location}.comments.{key}`"
            )
    return {
        "positions": FrozenMap(
            {
                node: point
                for node, point in record.positions.items()
                if node in graph.nodes
            }
        ),
        "comments": FrozenMap(
            {
                key: Comment(c.text, c.x, c.y, c.width, c.height, c.kind, c.color)
                for key, c in record.comments.items()
            }
        ),
        "bends": FrozenMap(
            {edge: points for edge, points in bends.items() if edge in wires and points}
        ),
        "unfolded": frozenset(record.unfolded).intersection(graph.nodes),
    }


def blocks_from(
    records: list[BlockRecord], ops: Catalog, network: GraphRecord
) -> tuple[Blocks, Catalog]:
    """Return the blocks of a file and the catalog with them. Wires and values are checked after all blocks have their
    nodes, which define the ports. Together with the `network` they must respect the drawing limits."""
    drafts: dict[str, Block] = {}
    for i, record in enumerate(records):
        location = f"$.blocks[{i}]"
        if not record.name.isidentifier() or record.name in drafts:
            message = (
                f"{record.name!r:.60} is not a valid name for a block, or is used twice"
            )
            raise ProjectFileError(f"{message} - at `{location}.name`")
        params = tuple(
            _block_param(param, f"{location}.params[{n}]")
            for n, param in enumerate(record.params)
        )
        nodes = _nodes(record.graph.nodes, f"{location}.graph.nodes")
        drafts[record.name] = Block(
            record.name, Graph(nodes), params=params, note=record.note
        )
    _check_nesting(network, drafts)
    ops = with_blocks(ops, FrozenMap(drafts))
    blocks = {}
    for i, record in enumerate(records):
        graph = graph_from(record.graph, ops, f"$.blocks[{i}].graph")
        parts = sheet_parts(record, graph, f"$.blocks[{i}]")
        blocks[record.name] = replace(drafts[record.name], graph=graph, **parts)
    return FrozenMap(blocks), ops


def _check_nesting(network: GraphRecord, drafts: Mapping[str, Block]) -> None:
    locations = {name: f"$.blocks[{i}]" for i, name in enumerate(drafts)}
    if inner := circling(drafts):
        raise ProjectFileError(
            f"the block {inner:.60} contains itself - at `{locations[inner]}`"
        )
    try:
        limits.check_nesting(
            (Node(n.id, n.op, n.name, repeat=n.repeat) for n in network.nodes), drafts
        )
    except limits.TooLargeError as error:
        raise ProjectFileError(
            f"{error} - at `{locations.get(error.block, '$.graph')}`"
        ) from error


def _block_param(record: ParamRecord, location: str) -> Param:
    kinds = (*COMPUTED, "choice", "dtype")
    if record.kind not in kinds or not record.name.isidentifier():
        raise ProjectFileError(
            f"{record.name!r:.40} of kind {record.kind!r:.40} is not a parameter - at `{location}`"
        )
    param = Param(
        record.name,
        record.kind,
        None,
        choices=tuple(record.choices),
        count=record.count,
        optional=record.optional,
        minimum=record.minimum,
        maximum=record.maximum,
    )
    try:
        value = literals.decode(record.default)
        check_param(param, value)
        if any(expressions(value)):
            raise ParamError(
                f"the default of {param.name:.60} is a value, not an expression"
            )
    except (literals.LiteralError, ParamError) as error:
        raise ProjectFileError(f"{error} - at `{location}.default`") from error
    return replace(param, default=value)


def _nodes(records: list[NodeRecord], location: str) -> FrozenMap[str, Node]:
    nodes: dict[str, Node] = {}
    for i, item in enumerate(records):
        at = f"{location}[{i}]"
        if item.id in nodes:
            raise ProjectFileError(
                f"two nodes have the id {item.id!r:.60} - at `{at}.id`; give one another id"
            )
        if any(sign in item.id for sign in SEPARATORS):
            raise ProjectFileError(
                f"an id cannot contain / or #: {item.id!r:.60} - at `{at}.id`"
            )
        params = decoded(item.params, f"{at}.params")
        inits = {
            key: Init(init.name, decoded(init.params, f"{at}.inits.{key}.params"))
            for key, init in item.inits.items()
        }
        tied = FrozenMap(
            {key: Tie(tie.node, tie.name) for key, tie in item.tied.items()}
        )
        nodes[item.id] = Node(
            item.id,
            item.op,
            item.name,
            params,
            item.muted,
            item.frozen,
            item.shares,
            item.repeat,
            FrozenMap(inits),
            item.kept,
            tied,
            item.order,
        )
    for i, node in enumerate(nodes.values()):
        owner = nodes.get(node.shares)
        if node.shares and (owner is None or owner.shares or owner.op != node.op):
            message = f"{node.name:.60} shares its module with {node.shares!r:.60}, which is no module of the same type"
            raise ProjectFileError(f"{message} - at `{location}[{i}].shares`")
    return FrozenMap(nodes)


def graph_from(record: GraphRecord, ops: Catalog, location: str = "$.graph") -> Graph:
    """Plain records checked against the catalog. Unknown ops pass: they become placeholders that keep their data."""
    nodes = _nodes(record.nodes, f"{location}.nodes")
    for i, node in enumerate(nodes.values()):
        if node.op in ops:
            try:
                check_node(ops[node.op], node)
                check_inits(node.inits)
            except ParamError as error:
                raise ProjectFileError(
                    f"{node.name:.60}: {error} - at `{location}.nodes[{i}].params`"
                ) from error
        _check_ties(node, nodes, f"{location}.nodes[{i}].tied")
    edges: list[Edge] = []
    graph = Graph(nodes)
    for i, wire in enumerate(record.edges):
        edge = Edge(wire.source, wire.output, wire.target, wire.port, wire.index)
        _check_edge(graph, edge, f"{location}.edges[{i}]", ops)
        edges.append(edge)
    _check_ports(edges, graph, ops, location)
    return Graph(nodes, tuple(edges))


def _check_ties(node: Node, nodes: Mapping[str, Node], location: str) -> None:
    try:
        check_ties(node.tied)
    except ParamError as error:
        raise ProjectFileError(f"{node.name:.60}: {error} - at `{location}`") from error
    for name, tie in node.tied.items():
        if tie.node not in nodes or tie.node == node.id:
            message = f"{name:.60} of {node.name:.60} is tied to node {tie.node!r:.60}, which does not exist here"
            raise ProjectFileError(f"{message} - at `{location}`")


def _check_edge(graph: Graph, edge: Edge, location: str, ops: Catalog) -> None:
    for end, node_id in (("source", edge.source), ("target", edge.target)):
        if node_id not in graph.nodes:
            raise ProjectFileError(
                f"a wire ends at node {node_id!r:.60}, which does not exist - at `{location}.{end}`"
            )
    source, target = graph.nodes[edge.source], graph.nodes[edge.target]
    spec = ops.get(target.op)
    if (
        spec is not None
        and spec.input(edge.port) is None
        and spec.wirable(edge.port) is None
    ):
        ports = ", ".join(port.name for port in ops[target.op].inputs) or "no inputs"
        raise ProjectFileError(
            f"{target.name:.60} has no input {edge.port!r:.60}, it has {ports} - at `{location}.port`"
        )
    if source.op in ops and edge.output >= len(ops[source.op].outputs):
        count = len(ops[source.op].outputs)
        raise ProjectFileError(
            f"{source.name:.60} has {count} outputs, not number {edge.output} - at `{location}.output`"
        )


def _check_ports(edges: Iterable[Edge], graph: Graph, ops: Catalog, at: str) -> None:
    """Check that no port position has two wires. Loops are left to `plan`, which shows them as problems on the
    canvas."""
    wired: set[tuple[str, str, int]] = set()
    for i, edge in enumerate(edges):
        spec = ops.get(graph.nodes[edge.target].op)
        port = (spec.input(edge.port) or spec.wirable(edge.port)) if spec else None
        input_position = (
            edge.target,
            edge.port,
            edge.index if port is None or port.variadic else 0,
        )
        if input_position in wired:
            where = f"{edge.port:.60} of {graph.nodes[edge.target].name:.60}"
            raise ProjectFileError(
                f"two wires end at {where} - at `{at}.edges[{i}]`; remove one"
            )
        wired.add(input_position)


def decoded(params: dict[str, Any], location: str) -> FrozenMap[str, Any]:
    """Decode parameters. Raises ProjectFileError."""
    values = {}
    for name, raw in params.items():
        try:
            values[name] = literals.decode(raw)
        except literals.LiteralError as error:
            raise ProjectFileError(f"{error} - at `{location}.{name}`") from error
    return FrozenMap(values)
