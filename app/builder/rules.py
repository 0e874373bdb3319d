"""Which wires may be drawn. Each refusal is an exception of its own, whose text a person can act upon."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from app.builder.catalog import Catalog, Port
from app.builder.graph import Edge, Graph


class ConnectError(ValueError):
    """A wire that may not be drawn."""


class NoSuchPort(ConnectError):
    """The node or the port is not there."""


class WouldLoop(ConnectError):
    """The wire would lead a value back into the node that it came from."""


class AlreadyConnected(ConnectError):
    """The very wire is there already."""


class WrongKind(ConnectError):
    """A tuple where a tensor is wanted, or the other way round."""


def check_connect(graph: Graph, catalog: Catalog, source: str, output: int, target: str, port: str) -> None:
    """Raise a ConnectError unless the wire may be drawn. A wire that holds the port already is no obstacle."""
    for node in (source, target):
        if node not in graph.nodes:
            names = f"{_name(graph, source)} and {_name(graph, target)}"
            raise NoSuchPort(f"{names} cannot be joined: {node} is no longer there")
    give, take = graph.nodes[source], graph.nodes[target]
    outputs = catalog.of(graph, give).outputs
    if not 0 <= output < len(outputs):
        what = f"output number {output}" if outputs else "output"
        raise NoSuchPort(f"{give.name} has no {what} to connect to {take.name}")
    wanted = catalog.of(graph, take).input(port)
    if wanted is None:
        what = f"input {port}" if catalog.of(graph, take).inputs else "input"
        raise NoSuchPort(f"{take.name} has no {what} for {give.name}")
    if any((e.source, e.output, e.target, e.port) == (source, output, target, port) for e in graph.into(target)):
        if not wanted.variadic:
            raise AlreadyConnected(f"{give.name} is connected to {take.name} already")
    if source == target or source in downstream(graph, (target,)):
        raise WouldLoop(f"{take.name} leads to {give.name}; a wire back would make a loop")
    _check_kind(outputs[output], wanted, give.name, take.name)


def _name(graph: Graph, node: str) -> str:
    return graph.nodes[node].name if node in graph.nodes else node


def kinds_fit(given: str, wanted: str) -> bool:
    """Whether an output of one kind may be wired to a port of another; what a block takes is shown by its inside."""
    return given == wanted or "any" in (given, wanted)


def _check_kind(given: Port, wanted: Port, source: str, target: str) -> None:
    if not kinds_fit(given.kind, wanted.kind):
        raise WrongKind(f"{source} gives a {given.kind}, {target} wants a {wanted.kind} as {wanted.name}")


def can_connect(graph: Graph, catalog: Catalog, source: str, output: int, target: str, port: str) -> bool:
    """Whether `check_connect` has nothing against the wire."""
    try:
        check_connect(graph, catalog, source, output, target, port)
    except ConnectError:
        return False
    return True


def connect(graph: Graph, catalog: Catalog, source: str, output: int, target: str, port: str) -> Graph:
    """Draw the wire; on a port for one wire it takes the place of the old one. Raises ConnectError."""
    check_connect(graph, catalog, source, output, target, port)
    wanted = catalog.of(graph, graph.nodes[target]).input(port)
    taken = [edge for edge in graph.into(target) if edge.port == port]
    index = 0
    if wanted is not None and wanted.variadic:
        index = max((edge.index + 1 for edge in taken), default=0)
    else:
        for edge in taken:
            graph = graph.without_edge(edge)
    return graph.with_edge(Edge(source, output, target, port, index))


def downstream(graph: Graph, starts: Iterable[str]) -> set[str]:
    """Every node that a value of `starts` reaches, without the starts themselves (unless a loop leads back)."""
    return _reach(starts, lambda node: (edge.target for edge in graph.out_of(node)))


def upstream(graph: Graph, starts: Iterable[str]) -> set[str]:
    """Every node whose value reaches `starts`."""
    return _reach(starts, lambda node: (edge.source for edge in graph.into(node)))


def _reach(starts: Iterable[str], neighbours: Callable[[str], Iterable[str]]) -> set[str]:
    seen: set[str] = set()
    todo = list(starts)
    while todo:
        for node in neighbours(todo.pop()):
            if node not in seen:
                seen.add(node)
                todo.append(node)
    return seen


def first_free_input(graph: Graph, catalog: Catalog, source: str, output: int, target: str) -> str | None:
    """The first input of `target` that is unconnected and fits, else the first that fits, else None."""
    spec = catalog.of(graph, graph.nodes[target])
    taken = {edge.port for edge in graph.into(target)}
    fitting = [p for p in spec.inputs if can_connect(graph, catalog, source, output, target, p.name)]
    free = [p for p in fitting if p.variadic or p.name not in taken]
    return (free or fitting)[0].name if fitting else None
