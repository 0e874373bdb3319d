"""Grouping of nodes into a block (`Ctrl+G`), without changing what the net computes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar, cast

from msgspec import Struct
from msgspec.structs import replace

from app.builder.arrange import complete
from app.builder.blocks import Block, BlockError, spec_of, unused_name
from app.builder.catalog.catalog import Catalog, Param
from app.builder.edits.blocks import (
    Whole,
    check_name,
    flows_back,
    free_name,
    sheet_named,
    with_sheet,
)
from app.builder.expressions import Expr, expressions
from app.builder.graph import Edge, Graph, Node
from app.builder.names import identifier
from app.builder.sheet import FRAME, Comment, Point, Positions, Sheet, changed
from app.util.frozen import FrozenMap

W = TypeVar("W", bound=Whole)

COLUMN, ROW = (
    240.0,
    96.0,
)  # distance of a new block's inputs and outputs from the rest, and from one another
GRID = 8.0
NODE = (136.0, 72.0)  # approximate size of a node; only the canvas knows the real one
ROOM = 24.0  # between nodes
MARGIN = 64.0  # comments closer to the nodes than this move with them


class _Ports(Struct, frozen=True):
    """The wires that cross a selection's boundary: (source, output) -> name of the port."""

    inputs: dict[tuple[str, int], str]
    outputs: dict[tuple[str, int], str]
    open: dict[tuple[str, str], str]  # unconnected (target, port) -> name


def make_block(
    project: W, sheet: str, catalog: Catalog, nodes: Iterable[str], name: str
) -> tuple[W, str]:
    """Group nodes into a block called `name`; return the project and the id of its instance. The net computes the same.
    Raises BlockError for nodes that cannot form a block."""
    drawn = sheet_named(project, sheet)
    graph = drawn.graph
    inner = [node for node in graph.nodes if node in set(nodes)]
    check_name(project, name)
    _check_selection(graph, inner)
    ports = _ports(graph, catalog, inner)
    outer = project.blocks[sheet].params if sheet else ()
    block = _block(
        drawn, catalog, inner, ports, name, _params_used(graph, inner, outer)
    )
    project = cast(
        W, replace(cast(Any, project), blocks=project.blocks.set(name, block))
    )
    after, new = _with_instance(drawn, block, inner, ports)
    return with_sheet(project, sheet, after), new


# Stems of default names, by the most frequent category.
_KINDS = {
    "conv": "Conv",
    "linear": "Linear",
    "norm": "Norm",
    "act": "Activation",
    "shape": "Pool",
    "merge": "Merge",
}


def suggested_name(
    project: Whole, sheet: str, catalog: Catalog, nodes: Iterable[str]
) -> str:
    """Return a free name for a block, from its contents: ResidualBlock, AttentionBlock, ConvBlock."""
    graph = sheet_named(project, sheet).graph
    inner = [graph.nodes[node] for node in nodes if node in graph.nodes]
    categories = [catalog.spec_of(graph, node).category for node in inner]
    ops = {node.op for node in inner}
    weighty = [
        category for category in categories if category in ("conv", "linear", "seq")
    ]
    if any("attention" in op.lower() for op in ops):
        stem = "Attention"
    elif "operator.add" in ops and weighty:
        stem = "Residual"
    elif "seq" in weighty:
        stem = "Sequence"
    else:
        named_categories = [
            category for category in (weighty or categories) if category in _KINDS
        ]
        stem = (
            _KINDS[max(named_categories, key=named_categories.count)]
            if named_categories
            else ""
        )
    return unused_name(project.blocks, f"{stem}Block")


def _check_selection(graph: Graph, inner: list[str]) -> None:
    if not inner:
        raise BlockError("Select the nodes for the block first")
    ends = [
        graph.nodes[node].name
        for node in inner
        if graph.nodes[node].op in ("input", "output")
    ]
    if ends:
        raise BlockError(
            f"{ends[0]} stays outside: a block gets its own inputs and outputs. Select the other nodes."
        )
    chosen = set(inner)
    back = flows_back(graph, chosen)
    if back is not None:
        raise BlockError(
            f"{back} comes after some of the nodes and before others. Select it too, or fewer nodes."
        )
    for node in graph.nodes.values():
        if node.shares and (node.id in chosen) != (node.shares in chosen):
            reason = f"{node.name} shares the module of {graph.owner(node.id).name}"
            raise BlockError(f"{reason}: both must be in the block, or neither")
        for tie in node.tied.values():
            if tie.node in graph.nodes and (node.id in chosen) != (tie.node in chosen):
                reason = (
                    f"{node.name} shares a parameter with {graph.nodes[tie.node].name}"
                )
                raise BlockError(f"{reason}: both must be in the block, or neither")


def _ports(graph: Graph, catalog: Catalog, inner: list[str]) -> _Ports:
    """Find the ports in the order of nodes and of their ports, so that equal selections give equal blocks."""
    chosen = set(inner)
    arriving: dict[tuple[str, int], str] = {}
    for node in inner:
        port_order = {
            port.name: i
            for i, port in enumerate(catalog.spec_of(graph, graph.nodes[node]).inputs)
        }
        for edge in sorted(
            graph.into(node),
            key=lambda e: (port_order.get(e.port, len(port_order)), e.index),
        ):
            if edge.source not in chosen:
                arriving.setdefault((edge.source, edge.output), edge.port)
    leaving = sorted(
        {
            (inner.index(e.source), e.output)
            for node in inner
            for e in graph.out_of(node)
            if e.target not in chosen
        }
    )
    leaving_outputs = [(inner[position], output) for position, output in leaving]
    if not leaving_outputs:  # unconnected: its last nodes become the outputs
        leaving_outputs = [
            (node, 0)
            for node in inner
            if not graph.out_of(node)
            and catalog.spec_of(graph, graph.nodes[node]).outputs
        ]
    names = {graph.nodes[node].name for node in inner}
    inputs = _names(
        list(arriving),
        "input",
        [_output_name(graph, catalog, *end) for end in arriving],
        names,
    )
    outputs = _names(
        leaving_outputs,
        "output",
        [f"{_output_name(graph, catalog, *end)}_out" for end in leaving_outputs],
        names,
    )
    missing = {} if arriving else _unfed(graph, catalog, inner, names)
    return _Ports(inputs, outputs, missing)


def _unfed(
    graph: Graph, catalog: Catalog, inner: list[str], names: set[str]
) -> dict[tuple[str, str], str]:
    """Name the unconnected required ports of a selection, which become inputs."""
    ends = [
        (node, port.name)
        for node in inner
        for port in catalog.spec_of(graph, graph.nodes[node]).inputs
        if port.required
        and not any(edge.port == port.name for edge in graph.into(node))
    ]
    return _names(
        ends,
        "input",
        [f"{graph.nodes[node].name}_{port}" for node, port in ends],
        names,
    )


def _output_name(graph: Graph, catalog: Catalog, node: str, output: int) -> str:
    """Name an output after its node, and the output if it is not the first."""
    outputs = catalog.spec_of(graph, graph.nodes[node]).outputs
    which = f"_{outputs[output].name}" if 0 < output < len(outputs) else ""
    return identifier(graph.nodes[node].name) + which


End = TypeVar("End", bound=tuple[str, Any])


def _names(
    ends: list[End], only: str, fallback_names: list[str], used_names: set[str]
) -> dict[End, str]:
    """Name each end: "input" or "output" if it is the only one, else after its node."""
    names: dict[End, str] = {}
    for end, name in zip(
        ends, [only] if len(ends) == 1 else fallback_names, strict=True
    ):
        names[end] = free_name(name, used_names)
        used_names.add(names[end])
    return names


def _params_used(
    graph: Graph, inner: list[str], outer: tuple[Param, ...]
) -> tuple[Param, ...]:
    """Return the outer block's parameters that the nodes refer to, which the new block gets too."""
    names = {
        name
        for node in inner
        for value in graph.nodes[node].params.values()
        for expression in expressions(value)
        for name in expression.names
    }
    return tuple(param for param in outer if param.name in names)


def _block(
    drawn: Sheet,
    catalog: Catalog,
    inner: list[str],
    ports: _Ports,
    name: str,
    params: tuple[Param, ...],
) -> Block:
    graph, chosen = drawn.graph, set(inner)
    into, out = catalog["input"], catalog["output"]
    ids = _fresh(inner, len(ports.inputs) + len(ports.open) + len(ports.outputs))
    sources = {
        end: Node(next(ids), into.key, port) for end, port in ports.inputs.items()
    }
    opened = {end: Node(next(ids), into.key, port) for end, port in ports.open.items()}
    ends = {end: Node(next(ids), out.key, port) for end, port in ports.outputs.items()}
    edges = []
    for edge in graph.edges:
        if edge.target in chosen:
            source = sources.get((edge.source, edge.output))
            edges.append(
                edge if source is None else replace(edge, source=source.id, output=0)
            )
    edges += [Edge(node.id, 0, target, port) for (target, port), node in opened.items()]
    edges += [
        Edge(source, output, node.id, out.inputs[0].name)
        for (source, output), node in ends.items()
    ]
    before = [*sources.values(), *opened.values()]
    nodes = {
        node.id: node
        for node in (*before, *(graph.nodes[key] for key in inner), *ends.values())
    }
    positions = {key: drawn.positions[key] for key in inner if key in drawn.positions}
    around = _beside(positions, before, edges, -COLUMN) | _beside(
        positions, list(ends.values()), edges, COLUMN
    )
    return Block(
        name,
        Graph(FrozenMap(nodes), tuple(edges)),
        FrozenMap(around | positions),
        FrozenMap(
            {
                key: comment
                for key, comment in drawn.comments.items()
                if _moves_along(comment, positions, drawn)
            }
        ),
        FrozenMap(
            {
                edge: points
                for edge, points in drawn.bends.items()
                if {edge.source, edge.target} <= chosen
            }
        ),
        params,
        unfolded=drawn.unfolded & chosen,
    )


def _fresh(ids: Iterable[str], count: int) -> Iterator[str]:
    used_up = set(ids)
    return iter(
        [
            key
            for key in (f"n{i}" for i in range(1, len(used_up) + count + 1))
            if key not in used_up
        ][:count]
    )


def _beside(
    positions: Mapping[str, Point],
    nodes: list[Node],
    edges: Iterable[Edge],
    step: float,
) -> dict[str, Point]:
    """Place a column before (step < 0) or after the nodes, each in the row of the first node that it is wired to."""
    if not positions:
        return {}
    wired: dict[str, str] = {}
    for edge in edges:
        wired.setdefault(edge.source, edge.target)
        wired[edge.target] = edge.source
    xs, ys = [x for x, _ in positions.values()], [y for _, y in positions.values()]
    x = (min(xs) if step < 0 else max(xs)) + step
    points: dict[str, Point] = {}
    y = -float("inf")
    for node in nodes:
        row = positions.get(wired.get(node.id, ""), (0.0, (min(ys) + max(ys)) / 2))[1]
        y = max(row, y + ROW)
        points[node.id] = (x, y)
    return points


def _moves_along(
    comment: Comment, inner_positions: Mapping[str, Point], drawn: Sheet
) -> bool:
    """Return whether a comment moves into the block: a frame whose contents all do, a comment among the nodes."""
    covered = {
        key
        for key, (x, y) in drawn.positions.items()
        if comment.x <= x < comment.x + comment.width
        and comment.y <= y < comment.y + comment.height
    }
    if comment.kind == FRAME:
        return bool(covered) and covered <= inner_positions.keys()
    if not inner_positions:
        return False
    left, top = (
        min(x for x, _ in inner_positions.values()),
        min(y for _, y in inner_positions.values()),
    )
    right, bottom = (
        max(x for x, _ in inner_positions.values()) + NODE[0],
        max(y for _, y in inner_positions.values()) + NODE[1],
    )
    x, y = comment.x + comment.width / 2, comment.y + comment.height / 2
    return left - MARGIN <= x <= right + MARGIN and top - MARGIN <= y <= bottom + MARGIN


def _with_instance(
    drawn: Sheet, block: Block, inner: list[str], ports: _Ports
) -> tuple[Sheet, str]:
    """Replace the nodes by one instance at their position in the order."""
    graph, chosen = drawn.graph, set(inner)
    new = graph.fresh_id()
    rest = replace(graph, nodes=graph.nodes.without(*inner))
    params = FrozenMap({param.name: Expr(param.name) for param in block.params})
    order = min(
        (graph.nodes[key].order for key in inner if graph.nodes[key].order), default=0
    )
    node = Node(
        new, block.key, rest.fresh_name(spec_of(block, {}).stem), params, order=order
    )
    nodes: dict[str, Node] = {}
    for key, other in graph.nodes.items():
        if key == inner[0]:
            nodes[new] = node
        if key not in chosen:
            nodes[key] = other
    numbers = {end: number for number, end in enumerate(ports.outputs)}
    edges: dict[Edge, None] = {}
    for edge in graph.edges:
        if edge.source in chosen and edge.target in chosen:
            continue
        if edge.target in chosen:
            edge = Edge(
                edge.source, edge.output, new, ports.inputs[edge.source, edge.output]
            )
        elif edge.source in chosen:
            edge = replace(edge, source=new, output=numbers[edge.source, edge.output])
        edges[edge] = None
    after = Graph(FrozenMap(nodes), tuple(edges))
    positions = _with_place(
        drawn,
        after,
        new,
        [drawn.positions[key] for key in inner if key in drawn.positions],
    )
    comments = drawn.comments.without(*block.comments)
    return changed(drawn, graph=after, positions=positions, comments=comments), new


def _with_place(drawn: Sheet, graph: Graph, new: str, points: list[Point]) -> Positions:
    """Place the instance at the centre of its nodes, or on its wire if another node is there."""
    rest = FrozenMap(
        {key: point for key, point in drawn.positions.items() if key in graph.nodes}
    )
    if not points:
        return rest
    xs, ys = [x for x, _ in points], [y for _, y in points]
    across, down = grid((min(xs) + max(xs)) / 2), (min(ys) + max(ys)) / 2
    beside = [rest[edge.source][1] for edge in graph.into(new) if edge.source in rest]
    beside += [
        rest[edge.target][1] for edge in graph.out_of(new) if edge.target in rest
    ]
    line = min(
        beside, key=lambda y: abs(y - down), default=down
    )  # in the row of a connected node
    middle = across, line if abs(line - down) <= NODE[1] / 2 else grid(down)
    free = all(
        abs(x - middle[0]) > NODE[0] + ROOM or abs(y - middle[1]) > NODE[1] + ROOM
        for x, y in rest.values()
    )
    if free or any(node not in rest for node in graph.nodes if node != new):
        return rest.set(new, middle)
    return complete(graph, rest, {})


def grid(value: float) -> float:
    """Round a coordinate to the grid."""
    return round(value / GRID) * GRID
