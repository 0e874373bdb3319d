"""Validity of wires. Each violation is a separate exception class whose message says what to change."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from app.builder.catalog.catalog import Catalog, OpSpec, Port
from app.builder.graph import Edge, Graph, Node
from app.builder.literals import Slice
from app.builder.value_types import kinds_fit
from app.util.errors import CodedError

SLICE_PARTS = ("start", "stop", "step")


class ConnectError(CodedError, ValueError):
    """A wire that may not be drawn."""


class NoSuchPortError(ConnectError):
    """The node or the port is not there."""


class CycleError(ConnectError):
    """The wire would create a cycle."""


class AlreadyConnectedError(ConnectError):
    """The very wire is there already."""


class OnlyTypedError(ConnectError):
    """A parameter that cannot be wired."""


class WrongKindError(ConnectError):
    """A value of the wrong kind, such as a tuple where a tensor or a number is expected."""


def check_connect(
    graph: Graph, catalog: Catalog, source: str, output: int, target: str, port: str
) -> None:
    """Raise a ConnectError unless the wire may be drawn. An existing wire at the port is allowed: it is replaced."""
    for node in (source, target):
        if node not in graph.nodes:
            names = f"{_name(graph, source)} and {_name(graph, target)}"
            raise NoSuchPortError(
                f"{names} cannot be connected: {node} no longer exists"
            )
    give, take = graph.nodes[source], graph.nodes[target]
    outputs = catalog.spec_of(graph, give).outputs
    if not 0 <= output < len(outputs):
        noun = f"output number {output}" if outputs else "output"
        raise NoSuchPortError(f"{give.name} has no {noun} to connect to {take.name}")
    spec = catalog.spec_of(graph, take)
    target_port = port_of(spec, take, port)
    if target_port is None:
        if (param := spec.param(port)) is not None:
            raise OnlyTypedError(
                f"{port} of {take.name} cannot be wired: {_why_typed(spec, param.name)}. Type its value"
            )
        noun = f"input {port}" if spec.inputs else "input"
        raise NoSuchPortError(f"{take.name} has no {noun} for {give.name}")
    if any(
        (e.source, e.output, e.target, e.port) == (source, output, target, port)
        for e in graph.into(target)
    ):
        if not target_port.variadic:
            raise AlreadyConnectedError(
                f"{give.name} is connected to {take.name} already"
            )
    if source == target or source in downstream(graph, (target,)):
        raise CycleError(
            f"{take.name} leads to {give.name}; a wire back would make a cycle"
        )
    _check_kind(outputs[output], target_port, give.name, take.name)


def _name(graph: Graph, node: str) -> str:
    return graph.nodes[node].name if node in graph.nodes else node


def port_of(spec: OpSpec, node: Node, port: str) -> Port | None:
    """Return the port of that name: an input, or a parameter that can be wired instead of typed."""
    input_port = next(
        (
            candidate
            for candidate in spec.inputs
            if candidate.name == port and not candidate.wired
        ),
        None,
    )
    return input_port or next(
        (
            wirable_port
            for wirable_port in wirable_of(spec, node)
            if wirable_port.name == port
        ),
        None,
    )


def wirable(graph: Graph, catalog: Catalog, node: str) -> tuple[Port, ...]:
    """List the parameters of a node, and their parts, that accept a wire: `dim`, `size`, `size[0]`, `index[1].stop`."""
    return wirable_of(catalog.spec_of(graph, graph.nodes[node]), graph.nodes[node])


def wirable_at_first(spec: OpSpec) -> tuple[Port, ...]:
    """List the wirable parameters of a node fresh from the palette."""
    return wirable_of(spec, Node("", spec.key, "", spec.starting_params()))


def wirable_of(spec: OpSpec, node: Node) -> tuple[Port, ...]:
    """Return the ports as `wirable`, of a node with its spec."""
    names: list[str] = []
    for param in spec.params:
        value = node.params.get(param.name, param.default)
        names.append(param.name)
        if isinstance(value, tuple):
            for i, item in enumerate(value):
                if isinstance(item, Slice):
                    names += [
                        f"{param.name}[{i}].{bound_name}" for bound_name in SLICE_PARTS
                    ]
                elif item is not None and item is not Ellipsis:
                    names.append(f"{param.name}[{i}]")
        elif isinstance(value, Slice):
            names += [f"{param.name}.{bound_name}" for bound_name in SLICE_PARTS]
    return tuple(port for name in names if (port := spec.wirable(name)))


def _why_typed(spec: OpSpec, param: str) -> str:
    if param == spec.outputs_by:
        return "it determines the number of outputs"
    if spec.kind in ("module", "block", "custom"):
        return "the layer is constructed before there are data"
    return "it is a choice, a dtype or a fixed value"


def _check_kind(source_port: Port, target_port: Port, source: str, target: str) -> None:
    if not kinds_fit(source_port.kind, target_port.kind):
        raise WrongKindError(
            f"{source} gives a {source_port.kind}, {target} expects a {target_port.kind} as {target_port.name}"
        )


def can_connect(
    graph: Graph, catalog: Catalog, source: str, output: int, target: str, port: str
) -> bool:
    """Return whether `check_connect` accepts the wire."""
    try:
        check_connect(graph, catalog, source, output, target, port)
    except ConnectError:
        return False
    return True


def connect(
    graph: Graph, catalog: Catalog, source: str, output: int, target: str, port: str
) -> Graph:
    """Draw the wire; on a port for one wire it takes the place of the old one. Raises ConnectError."""
    check_connect(graph, catalog, source, output, target, port)
    target_port = port_of(
        catalog.spec_of(graph, graph.nodes[target]), graph.nodes[target], port
    )
    edges_at_port = [edge for edge in graph.into(target) if edge.port == port]
    if (
        target_port is not None and target_port.wired
    ):  # a parameter is wired as a whole or by its parts
        graph = _without_parts(graph, target, port)
    index = 0
    if target_port is not None and target_port.variadic:
        index = max((edge.index + 1 for edge in edges_at_port), default=0)
    else:
        for edge in edges_at_port:
            graph = graph.without_edge(edge)
    return graph.with_edge(Edge(source, output, target, port, index))


def _without_parts(graph: Graph, target: str, port: str) -> Graph:
    """Remove wires into parts of a parameter that is about to be wired whole, or the other way round."""
    for edge in graph.into(target):
        pairs = ((edge.port, port), (port, edge.port))
        if any(
            narrower.startswith((f"{broader}[", f"{broader}."))
            for narrower, broader in pairs
        ):
            graph = graph.without_edge(edge)
    return graph


def downstream(graph: Graph, starts: Iterable[str]) -> set[str]:
    """Return all nodes that depend on `starts`, without the starts themselves (unless a loop leads back)."""
    return _reach(starts, lambda node: (edge.target for edge in graph.out_of(node)))


def upstream(graph: Graph, starts: Iterable[str]) -> set[str]:
    """Return all nodes that `starts` depend on."""
    return _reach(starts, lambda node: (edge.source for edge in graph.into(node)))


def _reach(
    starts: Iterable[str], neighbours: Callable[[str], Iterable[str]]
) -> set[str]:
    reached: set[str] = set()
    todo = list(starts)
    while todo:
        for node in neighbours(todo.pop()):
            if node not in reached:
                reached.add(node)
                todo.append(node)
    return reached


def first_free_input(
    graph: Graph, catalog: Catalog, source: str, output: int, target: str
) -> str | None:
    """Return the first input of `target` that is unconnected and fits, else the first that fits, else None.

    A number connects to a parameter if no input accepts it.
    """
    spec = catalog.spec_of(graph, graph.nodes[target])
    ports = {edge.port for edge in graph.into(target)}
    fitting = [
        p
        for p in spec.inputs
        if can_connect(graph, catalog, source, output, target, p.name)
    ]
    if not fitting:
        more = wirable(graph, catalog, target)
        fitting = [
            p
            for p in more
            if can_connect(graph, catalog, source, output, target, p.name)
        ]
    free = [p for p in fitting if p.variadic or p.name not in ports]
    return (free or fitting)[0].name if fitting else None
