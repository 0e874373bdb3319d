"""Edits behind the canvas gestures, as pure functions from project to project.

A project is any `Sheet`: the project itself, or a block that is being edited. Wires are validated by `rules`, which
raises `ConnectError`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from app.builder import rules
from app.builder.catalog.catalog import Catalog, OpSpec, Port
from app.builder.edits import bends
from app.builder.graph import Edge, Graph, Node, merged
from app.builder.params import ParamError, check_param
from app.builder.sheet import Bends, Comments, Point, Positions, Sheet
from app.builder.sheet import changed as sheet_changed
from app.util.frozen import FrozenMap

P = TypeVar("P", bound=Sheet)


class Fragment(Struct, frozen=True):
    """Nodes with their wires and positions, and notes: the content of a copy."""

    graph: Graph
    positions: Positions
    comments: Comments = FrozenMap()
    bends: Bends = FrozenMap()
    unfolded: frozenset[str] = frozenset()


class NothingFitsError(rules.ConnectError):
    """No port of the op accepts, or provides, the value of the wire."""


def changed(
    project: P,
    graph: Graph | None = None,
    positions: Positions | None = None,
    comments: Comments | None = None,
    bends: Bends | None = None,
    unfolded: frozenset[str] | None = None,
) -> P:
    """Replace graph, positions, comments or bends; bends of deleted wires are dropped."""
    parts = {
        "positions": positions,
        "comments": comments,
        "bends": bends,
        "unfolded": unfolded,
    }
    return sheet_changed(project, graph=graph, **parts)


def _rewired(project: P, graph: Graph, led: Mapping[Edge, tuple[Point, ...]]) -> P:
    """Replace the graph; `led` are the bends of replacement wires."""
    after = changed(project, graph)
    bent = {wire: points for wire, points in led.items() if points}
    return changed(after, bends=after.bends.update(bent)) if bent else after


# --- Adding -----------------------------------------------------------------------------------------------------


def new_node(graph: Graph, catalog: Catalog, op: str) -> Node:
    """Create a node of `op` with a fresh id and name and the parameters that it needs to run. Raises UnknownOpError."""
    spec = catalog[op]
    names = {node.name for node in graph.nodes.values()}
    plain = spec.category == "io" and spec.stem not in names
    name = spec.stem if plain else graph.fresh_name(spec.stem)
    return Node(graph.fresh_id(), op, name, spec.starting_params())


def with_params(project: P, node: str, params: Mapping[str, Any]) -> P:
    """Set parameters of a node."""
    graph = project.graph
    for name, value in params.items():
        graph = graph.with_param(node, name, value)
    return changed(project, graph) if params else project


def add(project: P, catalog: Catalog, op: str, at: Point) -> tuple[P, str]:
    """Put a new node on the canvas; returns its id too."""
    node = new_node(project.graph, catalog, op)
    return changed(
        project, project.graph.with_node(node), project.positions.set(node.id, at)
    ), node.id


def add_behind(
    project: P, catalog: Catalog, op: str, behind: str, at: Point
) -> tuple[P, str]:
    """Add a node after `behind` and connect the first output that fits; existing wires are kept."""
    project, new = add(project, catalog, op, at)
    outputs = catalog.spec_of(project.graph, project.graph.nodes[behind]).outputs
    for output in range(len(outputs)):
        port = rules.first_free_input(project.graph, catalog, behind, output, new)
        if port is not None:
            return connect(project, catalog, behind, output, new, port), new
    return project, new


def add_after(
    project: P, catalog: Catalog, op: str, source: str, output: int, at: Point
) -> tuple[P, str]:
    """Put a new node at the loose end of a wire from an output. Raises NothingFitsError."""
    project, new = add(project, catalog, op, at)
    port = rules.first_free_input(project.graph, catalog, source, output, new)
    if port is None:
        raise NothingFitsError(
            f"{catalog[op].label} has no input for the output of {project.graph.nodes[source].name}"
        )
    return connect(project, catalog, source, output, new, port), new


def add_before(
    project: P, catalog: Catalog, op: str, target: str, port: str, at: Point
) -> tuple[P, str]:
    """Put a new node at the loose end of a wire into an input. Raises NothingFitsError."""
    project, new = add(project, catalog, op, at)
    for output in range(len(catalog[op].outputs)):
        if rules.can_connect(project.graph, catalog, new, output, target, port):
            return connect(project, catalog, new, output, target, port), new
    raise NothingFitsError(
        f"{catalog[op].label} has no output for {port} of {project.graph.nodes[target].name}"
    )


def insert(
    project: P, catalog: Catalog, op: str, wire: Edge, at: Point
) -> tuple[P, str]:
    """Put a new node on a wire, between its ends. Raises NothingFitsError."""
    added, new = add(project, catalog, op, at)
    return insert_node(added, catalog, new, wire), new


def insert_node(project: P, catalog: Catalog, node: str, wire: Edge) -> P:
    """Lead a wire through a node without wires that is there already. Raises NothingFitsError."""
    spec, target = (
        catalog.spec_of(project.graph, project.graph.nodes[node]),
        project.graph.nodes[wire.target],
    )
    cut_open = project.graph.without_edge(wire)
    port = rules.first_free_input(cut_open, catalog, wire.source, wire.output, node)
    if port is None:
        source = project.graph.nodes[wire.source].name
        raise NothingFitsError(f"{spec.label} has no input for the output of {source}")
    fed = connect(
        changed(project, cut_open), catalog, wire.source, wire.output, node, port
    )
    for output in range(len(spec.outputs)):
        if rules.can_connect(fed.graph, catalog, node, output, wire.target, wire.port):
            behind = replace(wire, source=node, output=output)
            before = fed.graph.into(node)[0]
            at = project.positions[node]
            ends = (
                project.positions.get(wire.source, at),
                project.positions.get(wire.target, at),
            )
            halves = bends.split(project.bends.get(wire, ()), at, *ends)
            led = dict(zip((before, behind), halves, strict=True))
            return _rewired(fed, fed.graph.with_edge(behind), led)
    raise NothingFitsError(
        f"{spec.label} has no output for {wire.port} of {target.name}"
    )


def fitting_after(
    graph: Graph, catalog: Catalog, source: str, output: int
) -> tuple[str, ...]:
    """List the ops that accept an output, in palette order."""
    kind = catalog.spec_of(graph, graph.nodes[source]).outputs[output].kind

    def ports(spec: OpSpec) -> Iterable[Port]:
        sizes = graph.nodes[source].op in (
            "Tensor.shape",
            "tuple",
        )  # other tuples, as of an LSTM, hold no sizes
        if kind != "number" and not sizes:
            return spec.inputs
        return (*spec.inputs, *rules.wirable_at_first(spec))

    return tuple(
        key
        for key, spec in catalog.items()
        if any(rules.kinds_fit(kind, p.kind) for p in ports(spec))
    )


def fitting_before(
    graph: Graph, catalog: Catalog, target: str, port: str
) -> tuple[str, ...]:
    """List the ops that provide what an input accepts, in palette order."""
    target_port = rules.port_of(
        catalog.spec_of(graph, graph.nodes[target]), graph.nodes[target], port
    )
    kind = target_port.kind if target_port else ""
    return tuple(
        key
        for key, spec in catalog.items()
        if any(rules.kinds_fit(p.kind, kind) for p in spec.outputs)
    )


# --- Wires ------------------------------------------------------------------------------------------------------


def connect(
    project: P, catalog: Catalog, source: str, output: int, target: str, port: str
) -> P:
    """Draw a wire. Raises ConnectError."""
    return changed(
        project, rules.connect(project.graph, catalog, source, output, target, port)
    )


def move_end(project: P, catalog: Catalog, wire: Edge, target: str, port: str) -> P:
    """Take the input end of a wire to another port. Raises ConnectError."""
    loose = project.graph.without_edge(wire)
    graph = rules.connect(loose, catalog, wire.source, wire.output, target, port)
    stays = (
        {graph.edges[-1]: project.bends.get(wire, ())} if target == wire.target else {}
    )
    return _rewired(project, graph, stays)


def cut(project: P, wires: Iterable[Edge]) -> P:
    """Remove wires."""
    gone = set(wires)
    return changed(
        project,
        replace(
            project.graph, edges=tuple(e for e in project.graph.edges if e not in gone)
        ),
    )


# --- Removing ---------------------------------------------------------------------------------------------------


def delete(project: P, nodes: Iterable[str], wires: Iterable[Edge] = ()) -> P:
    """Remove nodes with every wire at them, and further wires."""
    gone = set(nodes)
    graph = cut(project, wires).graph.without_nodes(gone)
    return changed(project, graph, project.positions.without(*gone))


def delete_and_reconnect(project: P, catalog: Catalog, nodes: Iterable[str]) -> P:
    """Remove nodes and connect their sources to their targets, where the value types allow it."""
    gone = set(nodes)
    before = project.graph
    graph = before.without_nodes(gone)
    led: dict[Edge, tuple[Point, ...]] = {}
    for wire in before.edges:
        if wire.source not in gone or wire.target in gone:
            continue
        feed = _feed(before, catalog, wire.source, gone)
        if feed and rules.can_connect(
            graph, catalog, feed.source, feed.output, wire.target, wire.port
        ):
            joined = replace(wire, source=feed.source, output=feed.output)
            led[joined] = project.bends.get(feed, ()) + project.bends.get(wire, ())
            graph = graph.with_edge(joined)
    return _rewired(
        changed(project, positions=project.positions.without(*gone)), graph, led
    )


def _feed(graph: Graph, catalog: Catalog, node: str, gone: set[str]) -> Edge | None:
    """Return the wire from outside `gone` into the chain of its nodes ending at `node`, along first inputs."""
    visited: set[str] = set()
    while node in gone and node not in visited:
        visited.add(node)
        ports = {
            port.name: i
            for i, port in enumerate(catalog.spec_of(graph, graph.nodes[node]).inputs)
        }
        arriving = sorted(
            graph.into(node), key=lambda edge: (ports.get(edge.port, 0), edge.index)
        )
        if not arriving:
            return None
        if arriving[0].source not in gone:
            return arriving[0]
        node = arriving[0].source
    return None


def flaggable(
    project: Sheet, catalog: Catalog, nodes: Iterable[str], flag: str
) -> tuple[str, ...]:
    """Filter the nodes that can be "muted" (they have inputs and outputs) or "frozen" (they have parameters)."""
    graph = project.graph
    specs = {
        node: catalog.spec_of(graph, graph.nodes[node])
        for node in nodes
        if node in graph.nodes
    }
    if flag == "frozen":
        return tuple(
            node
            for node, spec in specs.items()
            if spec.kind in ("module", "block", "custom", "parameter")
        )
    return tuple(node for node, spec in specs.items() if spec.inputs and spec.outputs)


def flagged(project: P, nodes: Iterable[str], flag: str, on: bool) -> P:
    """Set or clear `muted` or `frozen`."""
    graph = project.graph
    for node in nodes:
        old = graph.nodes[node]
        graph = graph.with_node(
            replace(old, muted=on) if flag == "muted" else replace(old, frozen=on)
        )
    return changed(project, graph)


def replace_op(project: P, catalog: Catalog, node: str, op: str) -> P:
    """Change the op of a node, keeping the wires and parameters that fit.

    A wire keeps the port of its name, else takes the first free one of its kind, else it is dropped. A default name is
    renewed for the new op. Raises UnknownOpError.
    """
    graph, spec = project.graph, catalog[op]
    old = graph.nodes[node]
    before = catalog.spec_of(graph, old)
    bare = graph.without_nodes([node])
    made_up = old.name.rstrip("0123456789") == before.stem
    name = new_node(bare, catalog, op).name if made_up else old.name
    fitting_params = {
        key: value for key, value in old.params.items() if _takes(spec, key, value)
    }
    # It gets its own module; nodes that shared its module continue to share that.
    new = replace(
        old,
        op=op,
        name=name,
        params=spec.starting_params().update(fitting_params),
        shares="",
    )
    result = Graph(
        FrozenMap({k: new if k == node else bare.nodes[k] for k in graph.nodes}),
        bare.edges,
    )
    led: dict[Edge, tuple[Point, ...]] = {}
    for edge in graph.into(node):
        for port in (edge.port, *(port.name for port in spec.inputs)):
            ports = {other.port for other in result.into(node)}
            new_port = rules.port_of(spec, result.nodes[node], port)
            free = new_port is not None and (new_port.variadic or port not in ports)
            if free and rules.can_connect(
                result, catalog, edge.source, edge.output, node, port
            ):
                result = rules.connect(
                    result, catalog, edge.source, edge.output, node, port
                )
                led[result.edges[-1]] = project.bends.get(edge, ())
                break
    for edge in graph.out_of(node):
        if rules.can_connect(
            result, catalog, node, edge.output, edge.target, edge.port
        ):
            result = result.with_edge(edge)
    return changed(_rewired(project, result, led), unfolded=project.unfolded - {node})


def _takes(spec: OpSpec, name: str, value: Any) -> bool:
    param = spec.param(name)
    if param is None:
        return False
    try:
        check_param(param, value)
    except ParamError:
        return False
    return True


# --- Places -----------------------------------------------------------------------------------------------------


def move(project: P, nodes: Iterable[str], dx: float, dy: float) -> P:
    """Shift nodes that have a place."""
    positions = project.positions
    return move_nodes(
        project,
        {
            n: (positions[n][0] + dx, positions[n][1] + dy)
            for n in nodes
            if n in positions
        },
    )


def move_nodes(project: P, positions: Mapping[str, Point]) -> P:
    """Move nodes; bends of a wire follow if both of its ends move by the same offset."""
    before = project.positions
    shifts = {
        n: (x - before[n][0], y - before[n][1])
        for n, (x, y) in positions.items()
        if n in before
    }
    led = bends.shifted(project.bends, project.graph, shifts) if project.bends else None
    return changed(project, positions=before.update(positions), bends=led)


# --- Copies -----------------------------------------------------------------------------------------------------


def copy(project: Sheet, nodes: Iterable[str], notes: Iterable[str] = ()) -> Fragment:
    """Copy nodes with the wires among them, in the order of the graph, and comments and frames."""
    node_ids, noted = set(nodes), set(notes)
    graph = Graph(
        FrozenMap(
            {key: node for key, node in project.graph.nodes.items() if key in node_ids}
        ),
        tuple(
            e
            for e in project.graph.edges
            if e.source in node_ids and e.target in node_ids
        ),
    )
    positions = FrozenMap(
        {key: project.positions[key] for key in graph.nodes if key in project.positions}
    )
    comments = FrozenMap(
        {key: note for key, note in project.comments.items() if key in noted}
    )
    unfolded = project.unfolded & graph.nodes.keys()
    return Fragment(
        graph, positions, comments, bends.within(project.bends, graph.nodes), unfolded
    )


def paste(
    project: P, piece: Fragment, dx: float, dy: float
) -> tuple[P, frozenset[str]]:
    """Add a copy under fresh ids and names, shifted by (dx, dy); returns the ids of the new nodes too.

    New comments are those that the project had not.
    """
    graph, ids = merged(project.graph, piece.graph)
    positions = {
        ids[node]: (x + dx, y + dy)
        for node, (x, y) in piece.positions.items()
        if node in ids
    }
    led = {
        replace(wire, source=ids[wire.source], target=ids[wire.target]): tuple(
            (x + dx, y + dy) for x, y in points
        )
        for wire, points in piece.bends.items()
        if wire.source in ids and wire.target in ids
    }
    comments, number = project.comments, len(project.comments)
    for note in piece.comments.values():
        number += 1
        while f"c{number}" in comments:
            number += 1
        comments = comments.set(
            f"c{number}", replace(note, x=note.x + dx, y=note.y + dy)
        )
    unfolded = project.unfolded | {ids[node] for node in piece.unfolded if node in ids}
    pasted = changed(
        project,
        graph,
        project.positions.update(positions),
        comments,
        project.bends.update(led),
        unfolded,
    )
    return pasted, frozenset(ids.values())
