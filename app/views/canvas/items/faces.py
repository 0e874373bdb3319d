"""View model of a node: an item is repainted only when its face differs. Qt-free."""

from __future__ import annotations

from collections import defaultdict
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct

from app.builder.blocks import Block, block_of
from app.builder.catalog.catalog import Catalog, OpSpec
from app.builder.diagnostics.problems import Problem
from app.builder.graph import Edge, Graph
from app.builder.results import known
from app.builder.summary import compact, detail_line, has_detail, summary_line
from app.util.frozen import FrozenMap
from app.util.lru import LruCache, Same
from app.views.canvas.difference import differing

if TYPE_CHECKING:
    from app.builder.results import Analysis

K = TypeVar("K")
T = TypeVar("T")


class Pin(Struct, frozen=True):
    """One place for a wire. A variadic port has a pin for each of its wires and a free one; `index` counts them."""

    port: str
    kind: str
    index: int = 0
    wired: bool = False
    error: bool = False
    idle: bool = False  # its output shape is unknown


class Face(Struct, frozen=True, dict=True):
    """Everything that is painted of a node but for selection, hover and gradients."""

    name: str
    category: str
    line: str
    detail: str
    tall: bool
    inputs: tuple[Pin, ...]
    outputs: tuple[Pin, ...]
    state: str = ""  # "", "error", "warning", "unknown"
    count: str = ""  # the parameter count in few letters, for the gradients overlay
    muted: bool = False
    frozen: bool = False
    shared: bool = False  # its module is called by another node too
    block: bool = False
    badge: str = ""  # its number of repetitions
    inside: Inner | None = None  # of a block that is unfolded

    @property
    def signed(self) -> bool:
        """Return whether an icon is shown right of the name."""
        return bool(self.state) or self.muted or self.frozen or self.shared

    def number_of(self, port: str, index: int = 0) -> int:
        """Return the index of the pin for a wire into `port`."""
        numbers = self._numbers
        return numbers.get((port, index), numbers.get((port, -1), 0))

    @cached_property
    def _numbers(self) -> dict[tuple[str, int], int]:
        """Numbers of pins by port and index, and under -1 of the first of each port."""
        numbers: dict[tuple[str, int], int] = {}
        for number, pin in enumerate(self.inputs):
            numbers.setdefault((pin.port, -1), number)
            numbers.setdefault((pin.port, pin.index), number)
        return numbers


class Drawn(Struct, frozen=True):
    """A block as its sheet is drawn: the faces of all its nodes as long as nothing is known of shapes."""

    block: Block
    faces: FrozenMap[str, Face]


class Inner(Struct, frozen=True):
    """The visible inside of an instance: its faces, and the shapes at its outputs as text.

    Positions depend on `drawn` alone, so that nothing moves when shapes become known.
    """

    drawn: Drawn
    faces: FrozenMap[str, Face]
    carried: FrozenMap[tuple[str, int], str] = FrozenMap()


Problems = dict[str, tuple[Problem, ...]]
_drawn: LruCache[tuple[tuple[object, ...], Drawn]] = LruCache(512)
_ops: LruCache[tuple[str, ...]] = LruCache(512)
_inner: LruCache[Inner] = LruCache(512)


def problems_by_node(analysis: Analysis | None) -> Problems:
    """Group problems by node, errors first."""
    grouped: dict[str, list[Problem]] = defaultdict(list)
    for problem in analysis.problems if analysis else ():
        if problem.node is not None and problem.severity != "info":
            grouped[problem.node].append(problem)
    return {
        node: tuple(sorted(group, key=lambda p: p.rank) if len(group) > 1 else group)
        for node, group in grouped.items()
    }


def learnt_of(before: Analysis | None, after: Analysis) -> set[str]:
    """Return the nodes whose analysis differs from the previous one."""
    if before is None:
        return set(after.graph.nodes) | {node for node, _ in after.values}
    if (
        before.results
        and before.results.keys() == after.results.keys()
        and not (_passed(before) or _passed(after))
    ):
        then = before.results  # all that is known of a node is in its result
        return {
            node for node, result in after.results.items() if then[node] is not result
        }
    values = {node for node, _ in differing(before.values, after.values)}
    analysed = differing(before.resolved, after.resolved) | differing(
        before.parameters, after.parameters
    )
    return values | analysed | (before.graph.nodes.keys() ^ after.graph.nodes.keys())


def _passed(analysis: Analysis) -> bool:
    """Return whether something is known of muted nodes, which have no result."""
    return analysis.walk is None or bool(analysis.walk.passed)


def face_of(
    graph: Graph,
    node_id: str,
    catalog: Catalog,
    analysis: Analysis | None,
    problems: Problems,
    unfolded: bool = False,
) -> Face:
    """Return the face of a node; of an instance of a block with its inside if it is `unfolded`."""
    node = graph.nodes[node_id]
    spec = catalog.spec_of(graph, node)
    parameters = analysis.parameters.get(node_id) if analysis else None
    resolved = analysis.resolved.get(node_id, FrozenMap()) if analysis else FrozenMap()
    wrong = problems.get(node_id, ())
    repeat = graph.owner(node_id).repeat
    line = summary_line(spec, node, resolved)
    if spec.kind == "input" and "shape" not in node.params:
        line = _arriving(node_id, analysis) or line
    return Face(
        name=node.name,
        category=spec.category,
        line=line,
        detail=detail_line(spec, node, parameters),
        tall=has_detail(spec, parameters),
        inputs=_inputs(graph, node_id, catalog, wrong),
        outputs=_outputs(graph, node_id, catalog, analysis),
        state=wrong[0].severity
        if wrong
        else "unknown"
        if spec.kind == "unknown"
        else "",
        count=compact(parameters) if parameters else "",
        muted=node.muted,
        frozen=node.frozen,
        shared=node_id in graph.shared or bool(node.tied),
        block=spec.kind == "block",
        badge=f"×{repeat}" if repeat > 1 else "",
        inside=_inner_of(spec, node_id, catalog, analysis)
        if unfolded and spec.definition
        else None,
    )


def _inner_of(
    spec: OpSpec, node: str, catalog: Catalog, analysis: Analysis | None
) -> Inner:
    """Return the visible inside of an instance of a block."""
    drawn = drawn_of(spec, catalog)
    block = drawn.block
    result = analysis.results.get(node) if analysis else None
    inside = result.turns[0].inside if result is not None and result.turns else None

    def inner_of_block() -> Inner:
        if inside is None:
            return Inner(drawn, drawn.faces)

        here = known(block.graph, inside.plan, inside.results)
        carried: FrozenMap[tuple[str, int], str] = FrozenMap(
            {end: str(value) for end, value in here.values.items()}
        )
        return Inner(drawn, _faces(block, catalog, here), carried)

    return _inner.get_or_compute(Same(drawn, inside), inner_of_block)


def drawn_of(spec: OpSpec, catalog: Catalog) -> Drawn:
    """Return the drawing of a block; cached."""
    block = spec.definition
    assert block is not None
    inside = (block, *spec.contains)
    ops = dict.fromkeys(op for contained in inside for op in _ops_in(contained))
    stands_on = (*inside, *(catalog.get(op) for op in ops))
    cached = _drawn.get(Same(block))
    if cached is None or cached[0] != stands_on:
        cached = stands_on, Drawn(block, _faces(block, catalog, None))
        _drawn.put(Same(block), cached)
    return cached[1]


def _ops_in(block: Block) -> tuple[str, ...]:
    """Return the ops in a block that are not blocks, without duplicates."""
    ops = (node.op for node in block.graph.nodes.values() if not block_of(node.op))
    return _ops.get_or_compute(Same(block), lambda: tuple(dict.fromkeys(ops)))


def _faces(
    block: Block, catalog: Catalog, analysis: Analysis | None
) -> FrozenMap[str, Face]:
    nodes = block.graph.nodes
    return FrozenMap(
        {
            node: face_of(
                block.graph, node, catalog, analysis, {}, node in block.unfolded
            )
            for node in nodes
        }
    )


def _arriving(node_id: str, analysis: Analysis | None) -> str:
    """Return the shape at an input node of a block; "" if unknown."""
    value = analysis.values.get((node_id, 0)) if analysis else None
    return f"Tensor {str(value).removeprefix('N×')}" if value is not None else ""


def _inputs(
    graph: Graph, node_id: str, catalog: Catalog, wrong: tuple[Problem, ...]
) -> tuple[Pin, ...]:
    spec = catalog.spec_of(graph, graph.nodes[node_id])
    wired: dict[str, list[Edge]] = defaultdict(list)
    for edge in graph.into(node_id):
        wired[edge.port].append(edge)
    errors = [problem.port for problem in wrong if problem.severity == "error"]
    pins: list[Pin] = []
    for port in spec.inputs:
        bad = port.name in errors or (None in errors and bool(wired[port.name]))
        if port.variadic:
            pins += [
                Pin(port.name, port.kind, edge.index, True, bad)
                for edge in wired[port.name]
            ]
            index = max((edge.index + 1 for edge in wired[port.name]), default=0)
            pins.append(
                Pin(port.name, port.kind, index, False, bad and not wired[port.name])
            )
        else:
            pins.append(Pin(port.name, port.kind, 0, bool(wired[port.name]), bad))
    return tuple(pins)


def _outputs(
    graph: Graph, node_id: str, catalog: Catalog, analysis: Analysis | None
) -> tuple[Pin, ...]:
    spec = catalog.spec_of(graph, graph.nodes[node_id])
    used = {edge.output for edge in graph.out_of(node_id)}
    analysed = analysis is not None and node_id in analysis.graph.nodes
    unknown = {
        i
        for i in range(len(spec.outputs))
        if analysed and analysis and (node_id, i) not in analysis.values
    }
    return tuple(
        Pin(port.name, port.kind, i, i in used, idle=i in unknown)
        for i, port in enumerate(spec.outputs)
    )
