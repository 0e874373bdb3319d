"""Explain a size inside a block: the call that determines it, and the input that it depends on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.builder.catalog.catalog import Catalog, OpSpec
from app.builder.dimensions.calls import DimensionSource, SizeNote
from app.builder.dimensions.formula import Formula, Symbol
from app.builder.graph import Graph, Node
from app.builder.value_types import Size, TensorType
from app.util.frozen import FrozenMap
from app.util.late_dataclass import dataclass

if TYPE_CHECKING:
    from app.builder.blocks import Block
    from app.builder.results import Analysis, Inside


MOST = 4096  # cached derivations


@dataclass(frozen=True)
class FollowedSize:
    """A dimension followed through the inside of a block: the last call that changes it, None if none does; then the
    input node that it goes back to and the dimension there, None if a parameter sets it."""

    told: SizeNote | None
    entered: tuple[Node, int] | None


# Cache shared by repetitions and equal instances; the values keep the ids in the keys alive.
_FOLLOWED: dict[tuple[int, int, int, int], tuple[Block, Inside, FollowedSize | None]] = {}


def through(
    graph: Graph, catalog: Catalog, analysis: Analysis, node: str, output: int, dimension: int, size: Size
) -> SizeNote | None:
    """Derive a dimension of a block's output; None if its inside does not determine it."""
    spec = catalog.spec_of(graph, graph.nodes[node])
    result, block = analysis.results.get(node), spec.definition
    if result is None or block is None or not result.turns:
        return None
    told, ports = None, [port.name for port in spec.inputs]
    for number in range(len(result.turns) - 1, -1, -1):
        inside = result.turns[number].inside
        way = _followed(block, catalog, inside, output, dimension) if inside is not None else None
        if way is None:
            return None
        told = told or way.told
        if way.entered is None:
            return _note(told, spec, None, size, "")
        port, dimension = way.entered[0].name, way.entered[1]
        if number == 0 or port != ports[0]:
            wire = next((edge for edge in graph.into(node) if edge.port == port), None)
            source = DimensionSource(wire.source, wire.output, dimension) if wire is not None else None
            return _note(told, spec, source, size, graph.nodes[wire.source].name if wire else "")
        output = 0  # what arrives is the first output of the repetition before
    return None


def _note(
    told: SizeNote | None, spec: OpSpec, source: DimensionSource | None, size: Size, giver: str
) -> SizeNote | None:
    if told is not None:
        return SizeNote(told.formula, told.words, source)
    if source is None:
        return None
    symbol = Symbol("x", f"dim {source.dimension} of {giver}", size)
    return SizeNote(Formula("x", (symbol,)), f"Unchanged by {spec.label}.", source)


def _followed(block: Block, catalog: Catalog, inside: Inside, output: int, dimension: int) -> FollowedSize | None:
    """Trace one output dimension of a block back to an input of it, or to the parameter that sets it; cached."""
    key = (id(block), id(inside), output, dimension)
    kept = _FOLLOWED.get(key)
    if kept is None:
        if len(_FOLLOWED) >= MOST:
            _FOLLOWED.clear()
        kept = _FOLLOWED[key] = (block, inside, _follow(block, catalog, inside, output, dimension))
    return kept[2]


def _follow(block: Block, catalog: Catalog, inside: Inside, output: int, dimension: int) -> FollowedSize | None:
    from app.builder.dimensions.dimensions import explain_dimension

    graph, known = block.graph, _known(block, inside)
    ends = block.outputs
    if output >= len(ends):
        return None
    told: SizeNote | None = None
    spot = DimensionSource(ends[output].id, 0, dimension)
    seen: set[DimensionSource] = set()
    while spot not in seen:
        seen.add(spot)
        here = graph.nodes[spot.node]
        if here.op == "input":
            return FollowedSize(told, (here, spot.dimension))
        story = explain_dimension(graph, catalog, known, spot.node, spot.output, spot.dimension)
        if story is None or story.formula is None:
            return None
        if told is None and _size(known, story.source) != story.result:
            told = SizeNote(story.formula, f"{here.name} in {block.name}: {story.words}")
        if story.source is None:
            return FollowedSize(told, None)
        spot = story.source
    return None


def _size(known: Analysis, spot: DimensionSource | None) -> Size | None:
    """Return a dimension's size one call upstream, None if a parameter sets it."""
    value = known.values.get((spot.node, spot.output)) if spot is not None else None
    if spot is None or not isinstance(value, TensorType) or spot.dimension >= len(value.shape):
        return None
    return value.shape[spot.dimension]


def _known(block: Block, inside: Inside) -> Analysis:
    """Return the results of the calls inside as an analysis of the block's graph."""
    from app.builder.results import Analysis, Ran
    from app.source.generated import Source

    values = {
        (node, number): value
        for node, result in inside.results.items()
        if isinstance(result.outcome, Ran)
        for number, value in enumerate(result.outcome.outputs)
    }
    values |= {(node, 0): values[ref.node, ref.output] for node, ref in inside.plan.passed.items()
               if ref is not None and (ref.node, ref.output) in values}  # fmt: skip
    resolved = FrozenMap({node: result.resolved for node, result in inside.results.items()})
    return Analysis(block.graph, Source(""), FrozenMap(values), resolved, results=inside.results)
