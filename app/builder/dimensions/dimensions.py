"""Explanations of dimensions: the formula of a size, with letters and with numbers, and its source.

`explain_output` explains every dimension of an output, `chain` follows one of them upstream, `aligned` shows how input
shapes broadcast. A formula is shown only if its result is the size that torch computed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from app.builder.catalog.catalog import Catalog, OpSpec
from app.builder.dimensions import conv as windows
from app.builder.dimensions.calls import (
    DimensionSource,
    InputTensor,
    Rule,
    SizeCall,
    SizeNote,
    unchanged,
)
from app.builder.dimensions.formula import Formula, Symbol
from app.builder.dimensions.rules import broadcasts, passed_by, rule_of
from app.builder.graph import Graph, Node
from app.builder.params import with_part
from app.builder.results import Analysis, Inside, Ran
from app.builder.value_types import (
    Dim,
    NumberType,
    Size,
    TensorType,
    TupleType,
    ValueType,
)
from app.source.generated import Source
from app.util.frozen import FrozenMap
from app.util.language import tr

if TYPE_CHECKING:
    from app.builder.blocks import Block


__all__ = [
    "Aligned",
    "ChainStep",
    "DimensionStory",
    "DimensionSource",
    "aligned",
    "chain",
    "explain_output",
    "upstream",
]

# Kinds without inputs that have a shape.
VALUES = ("parameter", "buffer")
MOST = 4096  # cached derivations inside blocks
_WINDOWS = re.compile(r"(nn|F)\.\w*([Cc]onv|[Pp]ool)\w*[123]d$")


class DimensionStory(Struct, frozen=True):
    """One dimension of an output.

    `name` is its letter in PyTorch's documentation (N, C, H, W), else its number. `formula` is None where torch's word
    is all there is. `source` is the dimension upstream that it is made from, None where a parameter sets it.
    """

    dimension: int
    name: str
    result: Size
    words: str
    formula: Formula | None = None
    source: DimensionSource | None = None

    @property
    def passes(self) -> bool:
        """Return whether it is unchanged from one call upstream."""
        symbols = self.formula.symbols if self.formula else ()
        return (
            self.source is not None
            and len(symbols) == 1
            and symbols[0].value == self.result
        )

    @property
    def numbers(self) -> str:
        """The formula with the real numbers: `⌊(28 + 2·0 − 1·(3−1) − 1)/1⌋ + 1 = 26`."""
        return f"{self.formula.numbers} = {self.result}" if self.formula else ""


class ChainStep(Struct, frozen=True):
    """One step of a dimension's derivation: the node, a short form of its effect, and its full formula or text."""

    node: str
    output: int
    dimension: int
    size: Size
    words: str
    full: str


def explain_output(
    graph: Graph, catalog: Catalog, analysis: Analysis, node: str, output: int = 0
) -> tuple[DimensionStory, ...]:
    """Explain each dimension of an output; () if it is no tensor or unknown. An Output explains its input.

    `analysis` may be of an older graph: nodes that it lacks are left out.
    """
    return tuple(
        story
        for story in _stories(graph, catalog, analysis, node, output, None)
        if story is not None
    )


def explain_dimension(
    graph: Graph,
    catalog: Catalog,
    analysis: Analysis,
    node: str,
    output: int,
    dimension: int,
) -> DimensionStory | None:
    """Explain one dimension of an output, None if unknown. Much faster than all of them inside blocks."""
    stories = _stories(graph, catalog, analysis, node, output, dimension)
    return stories[dimension] if dimension < len(stories) else None


def _stories(
    graph: Graph,
    catalog: Catalog,
    analysis: Analysis,
    node: str,
    output: int,
    only: int | None,
) -> tuple[DimensionStory | None, ...]:
    here, spec = graph.nodes[node], catalog.spec_of(graph, graph.nodes[node])
    call = _call(graph, analysis, here, spec, output)
    if call is None:
        return ()
    notes = _notes(call, spec)
    names = _names(call, spec)
    stories: list[DimensionStory | None] = []
    for i, size in enumerate(call.shape):
        if only is not None and i != only:
            stories.append(None)
            continue
        note = notes[i]
        if spec.kind == "block" and not here.muted:
            note = _through(graph, catalog, analysis, node, output, i, size)
        if note is None or note.formula.result != size:
            stories.append(DimensionStory(i, names[i], size, _without_formula(spec)))
        else:
            stories.append(
                DimensionStory(i, names[i], size, note.words, note.formula, note.source)
            )
    return tuple(stories)


def _without_formula(spec: OpSpec) -> str:
    """Say how a size was computed that no formula explains."""
    if spec.kind == "block":
        return tr(
            "Computed inside {block}; open it to see each step.", block=spec.label
        )
    return tr(
        "torch computed this size: {layer} was run on tensors without values.",
        layer=spec.label,
    )


def chain(
    graph: Graph,
    catalog: Catalog,
    analysis: Analysis,
    node: str,
    output: int,
    dimension: int,
) -> tuple[ChainStep, ...]:
    """Trace a dimension upstream, this node first: to the input, or to the parameter that sets it."""
    return tuple(
        upstream(graph, catalog, analysis, DimensionSource(node, output, dimension))
    )


def upstream(
    graph: Graph, catalog: Catalog, analysis: Analysis, start: DimensionSource
) -> Iterator[ChainStep]:
    """Yield the steps of `chain` lazily."""
    spot: DimensionSource | None = start
    visited: set[DimensionSource] = set()
    while spot is not None and spot not in visited:
        visited.add(spot)
        story = explain_dimension(
            graph, catalog, analysis, spot.node, spot.output, spot.dimension
        )
        if story is None:
            return
        yield ChainStep(
            spot.node,
            spot.output,
            spot.dimension,
            story.result,
            _in_short(story),
            _in_full(story),
        )
        spot = story.source


def aligned(
    graph: Graph, catalog: Catalog, analysis: Analysis, node: str
) -> tuple[Aligned, ...]:
    """Align the input shapes of a broadcasting op, even if they clash; () for other ops and for a single tensor."""
    here, spec = graph.nodes[node], catalog.spec_of(graph, graph.nodes[node])
    if here.muted or spec.category != "merge" or not broadcasts(here.op):
        return ()
    tensors = []
    for port in spec.inputs:
        for edge in graph.into(node):
            value = (
                analysis.values.get((edge.source, edge.output))
                if edge.port == port.name
                else None
            )
            if isinstance(value, TensorType):
                tensors.append(
                    (graph.nodes[edge.source].name, edge.source, value.shape)
                )
    return line_up(tensors)


def _in_short(story: DimensionStory) -> str:
    """Abbreviate a step of the chain: `⌊25/1⌋ + 1`, or the parameter that sets it."""
    formula = story.formula
    if formula is None or not formula.symbols:
        return (
            tr("as computed by torch") if formula is None else tr("one value remains")
        )
    if len(formula.symbols) > 1:
        return formula.short
    return tr("passes through") if story.passes else formula.symbolic


def _in_full(story: DimensionStory) -> str:
    several = story.formula is not None and len(story.formula.symbols) > 1
    return f"{story.numbers}. {story.words}" if several else story.words


# --- Inside a block: the call that determines a size, and the input that it depends on


class _FollowedSize(Struct, frozen=True):
    """A dimension followed through the inside of a block: the last call that changes it, None if none does; then the
    input node that it goes back to and the dimension there, None if a parameter sets it."""

    told: SizeNote | None
    entered: tuple[Node, int] | None


# Cache shared by repetitions and equal instances; the values keep the ids in the keys alive.
_FOLLOWED: dict[
    tuple[int, int, int, int], tuple[Block, Inside, _FollowedSize | None]
] = {}


def _through(
    graph: Graph,
    catalog: Catalog,
    analysis: Analysis,
    node: str,
    output: int,
    dimension: int,
    size: Size,
) -> SizeNote | None:
    """Derive a dimension of a block's output; None if its inside does not determine it."""
    spec = catalog.spec_of(graph, graph.nodes[node])
    result, block = analysis.results.get(node), spec.definition
    if result is None or block is None or not result.turns:
        return None
    note, ports = None, [port.name for port in spec.inputs]
    for number in range(len(result.turns) - 1, -1, -1):
        inside = result.turns[number].inside
        way = (
            _followed(block, catalog, inside, output, dimension)
            if inside is not None
            else None
        )
        if way is None:
            return None
        note = note or way.told
        if way.entered is None:
            return _note(note, spec, None, size, "")
        port, dimension = way.entered[0].name, way.entered[1]
        if number == 0 or port != ports[0]:
            wire = next((edge for edge in graph.into(node) if edge.port == port), None)
            source = (
                DimensionSource(wire.source, wire.output, dimension)
                if wire is not None
                else None
            )
            return _note(
                note, spec, source, size, graph.nodes[wire.source].name if wire else ""
            )
        output = 0  # what arrives is the first output of the repetition before
    return None


def _note(
    inner_note: SizeNote | None,
    spec: OpSpec,
    source: DimensionSource | None,
    size: Size,
    giver: str,
) -> SizeNote | None:
    if inner_note is not None:
        return SizeNote(inner_note.formula, inner_note.words, source)
    if source is None:
        return None
    meaning = tr("dim {dim} of {layer}", dim=source.dimension, layer=giver)
    symbol = Symbol("x", meaning, size)
    explanation = tr("Unchanged by {block}.", block=spec.label)
    return SizeNote(Formula("x", (symbol,)), explanation, source)


def _followed(
    block: Block, catalog: Catalog, inside: Inside, output: int, dimension: int
) -> _FollowedSize | None:
    """Trace one output dimension of a block back to an input of it, or to the parameter that sets it; cached."""
    key = (id(block), id(inside), output, dimension)
    cached = _FOLLOWED.get(key)
    if cached is None:
        if len(_FOLLOWED) >= MOST:
            _FOLLOWED.clear()
        cached = _FOLLOWED[key] = (
            block,
            inside,
            _follow(block, catalog, inside, output, dimension),
        )
    return cached[2]


def _follow(
    block: Block, catalog: Catalog, inside: Inside, output: int, dimension: int
) -> _FollowedSize | None:
    graph, analysis = block.graph, _known(block, inside)
    ends = block.outputs
    if output >= len(ends):
        return None
    note: SizeNote | None = None
    spot = DimensionSource(ends[output].id, 0, dimension)
    visited: set[DimensionSource] = set()
    while spot not in visited:
        visited.add(spot)
        here = graph.nodes[spot.node]
        if here.op == "input":
            return _FollowedSize(note, (here, spot.dimension))
        story = explain_dimension(
            graph, catalog, analysis, spot.node, spot.output, spot.dimension
        )
        if story is None or story.formula is None:
            return None
        if note is None and _size(analysis, story.source) != story.result:
            explanation = tr(
                "{layer} in {block}: {explanation}",
                layer=here.name,
                block=block.name,
                explanation=story.words,
            )
            note = SizeNote(story.formula, explanation)
        if story.source is None:
            return _FollowedSize(note, None)
        spot = story.source
    return None


def _size(analysis: Analysis, spot: DimensionSource | None) -> Size | None:
    """Return a dimension's size one call upstream, None if a parameter sets it."""
    value = analysis.values.get((spot.node, spot.output)) if spot is not None else None
    if (
        spot is None
        or not isinstance(value, TensorType)
        or spot.dimension >= len(value.shape)
    ):
        return None
    return value.shape[spot.dimension]


def _known(block: Block, inside: Inside) -> Analysis:
    """Return the results of the calls inside as an analysis of the block's graph."""
    values = {
        (node, number): value
        for node, result in inside.results.items()
        if isinstance(result.outcome, Ran)
        for number, value in enumerate(result.outcome.outputs)
    }
    values |= {
        (node, 0): values[ref.node, ref.output]
        for node, ref in inside.plan.passed.items()
        if ref is not None and (ref.node, ref.output) in values
    }
    resolved = FrozenMap(
        {node: result.resolved for node, result in inside.results.items()}
    )
    return Analysis(
        block.graph, Source(""), FrozenMap(values), resolved, results=inside.results
    )


# --- The call


def _call(
    graph: Graph, analysis: Analysis, node: Node, spec: OpSpec, output: int
) -> SizeCall | None:
    """Build the call of a node; None if an input type is unknown."""
    inputs: dict[str, tuple[InputTensor, ...]] = {}
    for port in spec.inputs:
        arriving = []
        for edge in graph.into(node.id):
            if edge.port == port.name:
                value = analysis.values.get((edge.source, edge.output))
                if isinstance(value, NumberType):
                    continue
                if isinstance(value, TupleType):
                    value = _picked(value, node, output)
                if not isinstance(value, TensorType):
                    if port.required:
                        return None
                    continue
                name = graph.nodes[edge.source].name
                arriving.append(InputTensor(edge.source, edge.output, name, value))
        if arriving:
            inputs[port.name] = tuple(arriving)
    result: Any = analysis.values.get((node.id, output))
    if spec.kind == "output" and inputs:
        result = next(iter(inputs.values()))[0].type
    if not isinstance(result, TensorType) or (
        not inputs and spec.kind not in ("input", *VALUES)
    ):
        return None
    owner = graph.owner(node.id)
    params = {param.name: spec.value(owner, param.name) for param in spec.params}
    params.update(analysis.resolved.get(node.id, {}))
    wired = _with_wires(graph, analysis, node, spec, params)
    if wired is None:
        return None
    return SizeCall(
        node.op,
        spec.label,
        node.name,
        wired,
        inputs,
        output,
        result.shape,
        spec.category,
        node.muted,
        owner.repeat,
    )


def _picked(value: TupleType, node: Node, output: int) -> ValueType | None:
    """Return the tuple item that a call selects."""
    at = (
        output
        if node.op == "unpack"
        else node.params.get("index")
        if node.op == "operator.getitem"
        else None
    )
    return (
        value.items[at]
        if type(at) is int and -len(value.items) <= at < len(value.items)
        else None
    )


def _with_wires(
    graph: Graph, analysis: Analysis, node: Node, spec: OpSpec, params: dict[str, Any]
) -> dict[str, Any] | None:
    """Insert wired values into the parameters; None if one is no size."""
    wires = {
        edge.port: analysis.values.get((edge.source, edge.output))
        for edge in graph.into(node.id)
    }
    for port in spec.inputs:
        if not port.wired:
            continue
        value = wires.get(port.name)
        items = value.items if isinstance(value, TupleType) else (value,)
        sizes = tuple(
            item.size if isinstance(item, NumberType) else None for item in items
        )
        if None in sizes:
            return None
        try:
            wired = with_part(
                params.get(port.param),
                port,
                sizes if isinstance(value, TupleType) else sizes[0],
            )
        except ValueError:
            return None
        params = {**params, port.param: wired}
    return params


def _notes(call: SizeCall, spec: OpSpec) -> tuple[SizeNote | None, ...]:
    """Note how each size follows, None where no rule says it."""
    rule = passed_by if call.muted else rule_of(call, spec)
    if rule is not None:
        repeated = call.repeat > 1 and not call.muted
        # an error: arguments that the rule does not cover
        with suppress(IndexError, KeyError, TypeError, ZeroDivisionError):
            notes = _repeated(call, rule) if repeated else rule(call)
            if notes is not None and len(notes) == len(call.shape):
                return notes
    return _batch_alone(call)


def _batch_alone(call: SizeCall) -> tuple[SizeNote | None, ...]:
    """Note the batch where it stays at its dimension of the first input: torch's sizes follow it."""
    before = call.first.shape if call.inputs else ()
    return tuple(
        unchanged(call.first, i)
        if size == Dim(1) and before[i : i + 1] == (size,)
        else None
        for i, size in enumerate(call.shape)
    )


def _repeated(call: SizeCall, rule: Rule) -> tuple[SizeNote, ...] | None:
    """Apply the rule once per repetition; the last one's formula is returned."""
    notes = rule(call)
    for number in range(2, call.repeat + 1):
        sizes = tuple(note.formula.result for note in notes)
        if None in sizes:
            return None
        before = call.first
        shape = TensorType(
            tuple(size for size in sizes if size is not None), before.type.dtype
        )
        port = next(iter(call.inputs))
        arrived = replace(before, name=f"repetition {number - 1}", type=shape)
        call = replace(
            call, inputs={**call.inputs, port: (arrived, *call.inputs[port][1:])}
        )
        notes = rule(call)
    sentence = tr("This is the last of {count} in sequence.", count=call.repeat)
    last = f" {sentence}"
    changed = tuple(
        size != was for size, was in zip(call.shape, call.first.shape, strict=False)
    )
    return tuple(
        replace(note, words=note.words + last)
        if i < len(changed) and changed[i]
        else note
        for i, note in enumerate(notes)
    )


def _names(call: SizeCall, spec: OpSpec) -> tuple[str, ...]:
    """Name the dimensions by the letters of PyTorch's documentation, or by number."""
    rank = len(call.shape)
    count = (
        windows.axes(call.op)
        if _WINDOWS.match(call.op)
        else {3: 1, 4: 2, 5: 3}.get(rank, 0)
    )
    picture = (
        spec.category in ("conv", "io") or "ool" in call.op or "BatchNorm" in call.op
    )
    letters = {1: "CL", 2: "CHW", 3: "CDHW"}.get(count, "") if picture else ""
    first = ["N"] if rank and call.shape[0] == Dim(1) else []
    if len(first) + len(letters) == rank:
        return (*first, *letters)
    return (*first, *(f"dim {i}" for i in range(len(first), rank)))


# --- Broadcasting


SAME, STRETCHED, MISSING, CLASH = "same", "stretched", "missing", "clash"


class Aligned(Struct, frozen=True):
    """One shape above another: (size, SAME | STRETCHED | MISSING | CLASH) a dimension."""

    name: str
    node: str
    cells: tuple[tuple[str, str], ...]


def line_up(
    tensors: Sequence[tuple[str, str, tuple[Size, ...]]],
) -> tuple[Aligned, ...]:
    """Align the (name, node, shape) of tensors, one row each; () for fewer than two.

    >>> [row.cells for row in line_up((("a", "a", (4, 1)), ("b", "b", (3,))))]
    [(('4', 'same'), ('1', 'stretched')), (('', 'missing'), ('3', 'same'))]
    >>> [row.cells for row in line_up((("a", "a", (4,)), ("b", "b", (3,))))]
    [(('4', 'clash'),), (('3', 'clash'),)]
    """
    if len(tensors) < 2:
        return ()
    rank = max(len(shape) for _, _, shape in tensors)
    padded = [(*(None,) * (rank - len(shape)), *shape) for _, _, shape in tensors]
    sizes_by_column = [
        {size for size in sizes if size not in (None, 1)}
        for sizes in zip(*padded, strict=True)
    ]
    return tuple(
        Aligned(
            name,
            node,
            tuple(
                _cell(size, others)
                for size, others in zip(row, sizes_by_column, strict=True)
            ),
        )
        for (name, node, _), row in zip(tensors, padded, strict=True)
    )


def _cell(size: Size | None, others: set[Size | None]) -> tuple[str, str]:
    """Classify a dimension of a shape; `others` are the sizes other than 1 in that column."""
    if size is None:
        return "", MISSING
    if size == 1:
        return "1", STRETCHED if others else SAME
    return str(size), CLASH if len(others) > 1 else SAME
