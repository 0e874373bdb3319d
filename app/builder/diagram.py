"""A sheet as a neutral picture: nodes as boxes, blocks as groups with their inside, shapes on the wires."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, Protocol

from msgspec import Struct

from app.builder.arrange import complete
from app.builder.blocks import Block
from app.builder.catalog.catalog import Catalog
from app.builder.edits.comments import framed
from app.builder.graph import Edge, Graph, Node
from app.builder.results import Analysis, known
from app.builder.sheet import Comments, Positions
from app.builder.summary import compact, detail_line, summary_line
from app.diagram.diagram import Arrow, Box, Drawing, Frame, Group
from app.util.frozen import FrozenMap

# Which instances of blocks are shown expanded: those that are unfolded on their sheets, all, or none.
Unfolded = Literal["as drawn", "all", "none"]
# Limit on expanded instances, since nested blocks multiply; further ones stay closed.
MOST = 5000


def node_paths(
    graph: Graph, node: Node, prefixes: tuple[str, ...] = ("",)
) -> tuple[str, ...]:
    """Return the paths of a node on a sheet whose own paths are `prefixes`: its name, and of one that is repeated also
    the name of each repetition."""
    repeat = graph.owner(node.id).repeat
    names = [node.name]
    if 1 < repeat <= MOST // len(prefixes):
        names += [f"{node.name}.{turn}" for turn in range(repeat)]
    return tuple(f"{prefix}{name}" for prefix in prefixes for name in names)


class DrawnSheet(Protocol):
    """A sheet to draw: a project or a block."""

    @property
    def graph(self) -> Graph: ...

    @property
    def positions(self) -> Positions: ...

    @property
    def comments(self) -> Comments: ...

    @property
    def unfolded(self) -> frozenset[str]: ...


class _Sheet(Struct):
    """A visible sheet: the network (`key` ""), or the inside of an open instance on `parent`."""

    key: str
    graph: Graph
    unfolded: frozenset[str]
    analysis: Analysis | None
    parent: _Sheet | None = None
    instance: str = ""
    block: Block | None = None
    inside: dict[str, _Sheet] = {}
    prefixes: tuple[str, ...] = ("",)  # of the paths of its nodes

    def id_of(self, node: str) -> str:
        return f"{self.key}/{node}" if self.key else node


def to_drawing(
    sheet: DrawnSheet,
    catalog: Catalog,
    analysis: Analysis | None = None,
    unfolded: Unfolded = "as drawn",
    title: str = "",
) -> Drawing:
    """Return the drawing of a sheet; `analysis` is that of this sheet and provides shapes and counts.

    An open instance is a group without the block's input and output nodes: wires pass through. `link` is the node of
    the top sheet that a part belongs to.
    """
    sheets = _sheets(
        _Sheet("", sheet.graph, sheet.unfolded, analysis), catalog, unfolded
    )
    boxes: list[Box] = []
    groups: list[Group] = []
    for visible_sheet in sheets:
        if visible_sheet.parent is not None:
            groups.append(_group(visible_sheet))
        for node in _shown(visible_sheet):
            boxes.append(_box(visible_sheet, node, catalog))
    arrows = [arrow for source_sheet in sheets for arrow in _arrows(source_sheet)]
    return Drawing(
        tuple(boxes),
        tuple(arrows),
        tuple(groups),
        "LR",
        title,
        *_arranged(sheet, groups),
    )


def drawn_paths(sheet: DrawnSheet, catalog: Catalog) -> frozenset[str]:
    """Return the paths of all that can be drawn of a sheet, inside its blocks too."""
    drawing = to_drawing(sheet, catalog, unfolded="all")
    return frozenset(
        path
        for parts in (drawing.boxes, drawing.groups)
        for part in parts
        for path in part.paths
    )


def _arranged(
    sheet: DrawnSheet, groups: list[Group]
) -> tuple[FrozenMap[str, tuple[float, float]], tuple[Frame, ...]]:
    """Return positions and frames of the canvas; none where blocks are open, whose nodes have their own positions."""
    return (FrozenMap(), ()) if groups else (_places(sheet), _frames(sheet))


def _frames(sheet: DrawnSheet) -> tuple[Frame, ...]:
    """Return the frames of a sheet that have nodes in them."""
    nodes_by_frame = framed(sheet.comments, sheet.positions, {})
    notes = {
        key: (sheet.comments[key], frozenset(nodes))
        for key, nodes in nodes_by_frame.items()
        if nodes
    }
    return tuple(Frame(note.text, nodes, note.color) for note, nodes in notes.values())


def _places(sheet: DrawnSheet) -> FrozenMap[str, tuple[float, float]]:
    """Return where the nodes are on the canvas; those without a position are placed beside others."""
    return (
        complete(sheet.graph, sheet.positions, {}) if sheet.positions else FrozenMap()
    )


def _sheets(first: _Sheet, catalog: Catalog, unfolded: Unfolded) -> list[_Sheet]:
    """Return the sheet and those of its open instances, outer ones first."""
    sheets = [first]
    for sheet in sheets:
        for node in sheet.graph.nodes.values():
            spec = catalog.spec_of(sheet.graph, node)
            is_open = unfolded == "all" or (
                unfolded == "as drawn" and node.id in sheet.unfolded
            )
            if (
                not is_open
                or spec.kind != "block"
                or spec.definition is None
                or node.muted
                or len(sheets) > MOST
            ):
                continue
            block = spec.definition
            inside = _inside(sheet, node.id, block)
            inner = _Sheet(
                sheet.id_of(node.id),
                block.graph,
                block.unfolded,
                inside,
                sheet,
                node.id,
                block,
                prefixes=tuple(
                    f"{path}." for path in node_paths(sheet.graph, node, sheet.prefixes)
                ),
            )
            sheet.inside[node.id] = inner
            sheets.append(inner)
    return sheets


def _inside(sheet: _Sheet, node: str, block: Block) -> Analysis | None:
    """Return the analysis inside an instance; of the first repetition if it is repeated."""
    result = sheet.analysis.results.get(node) if sheet.analysis is not None else None
    inside = result.turns[0].inside if result is not None and result.turns else None
    if inside is None:
        return None
    return known(block.graph, inside.plan, inside.results)


def _shown(sheet: _Sheet) -> Iterator[Node]:
    for node in sheet.graph.nodes.values():
        passes = sheet.parent is not None and node.op in ("input", "output")
        if node.id not in sheet.inside and not passes:
            yield node


def _outermost(sheet: _Sheet, node: str) -> str:
    """Return the node of the top sheet that contains a node."""
    while sheet.parent is not None:
        sheet, node = sheet.parent, sheet.instance
    return node


def _count(sheet: _Sheet, node: str) -> int | None:
    return sheet.analysis.parameters.get(node) if sheet.analysis is not None else None


def _group(sheet: _Sheet) -> Group:
    assert sheet.parent is not None and sheet.block is not None
    node = sheet.parent.graph.nodes[sheet.instance]
    repeat = sheet.parent.graph.owner(node.id).repeat
    count = _count(sheet.parent, node.id)
    title = f"{node.name} ×{repeat}" if repeat > 1 else node.name
    caption = " · ".join(
        [sheet.block.name, *([f"{compact(count)} parameters"] if count else [])]
    )
    return Group(
        sheet.key,
        title,
        "block",
        sheet.parent.key or None,
        caption,
        _outermost(sheet.parent, node.id),
        paths=node_paths(sheet.parent.graph, node, sheet.parent.prefixes),
    )


def _box(sheet: _Sheet, node: Node, catalog: Catalog) -> Box:
    spec = catalog.spec_of(sheet.graph, node)
    resolved = (
        sheet.analysis.resolved.get(node.id, FrozenMap())
        if sheet.analysis is not None
        else FrozenMap()
    )
    repeat = sheet.graph.owner(node.id).repeat
    lines = [detail_line(spec, node, _count(sheet, node.id))]
    lines += [
        word
        for word, holds in (("frozen", node.frozen), ("muted", node.muted))
        if holds
    ]
    return Box(
        sheet.id_of(node.id),
        f"{node.name} ×{repeat}" if repeat > 1 else node.name,
        summary_line(spec, node, resolved),
        tuple(line for line in lines if line),
        spec.category,
        "folded" if spec.kind == "block" else "call",
        sheet.key or None,
        link=_outermost(sheet, node.id),
        paths=node_paths(sheet.graph, node, sheet.prefixes),
    )


def _arrows(sheet: _Sheet) -> Iterator[Arrow]:
    """Yield the wires that end on a sheet, each from its real source."""
    shown = {node.id for node in _shown(sheet)}
    for edge in sheet.graph.edges:
        if edge.target in shown:
            for source in _sources(sheet, edge):
                yield Arrow(source, sheet.id_of(edge.target), _carried(sheet, edge))


def _carried(sheet: _Sheet, edge: Edge) -> str:
    value = (
        sheet.analysis.values.get((edge.source, edge.output))
        if sheet.analysis is not None
        else None
    )
    return "" if value is None else str(value)


def _sources(sheet: _Sheet, edge: Edge) -> list[str]:
    """Find the boxes where a wire begins: past the inputs of an open block to the outside, past its outputs to the
    inside."""
    sources: dict[str, None] = {}
    waiting: list[tuple[_Sheet, str, int]] = [(sheet, edge.source, edge.output)]
    visited: set[tuple[int, str, int]] = set()
    while waiting:
        at, node, output = waiting.pop()
        if (id(at), node, output) in visited:
            continue
        visited.add((id(at), node, output))
        inner = at.inside.get(node)
        if inner is not None and inner.block is not None:
            outputs = inner.block.outputs
            ends = inner.graph.into(outputs[output].id) if output < len(outputs) else ()
            waiting += [(inner, end.source, end.output) for end in ends]
        elif at.parent is not None and at.graph.nodes[node].op == "input":
            port = at.graph.nodes[node].name
            waiting += [
                (at.parent, end.source, end.output)
                for end in at.parent.graph.into(at.instance)
                if end.port == port
            ]
        else:
            sources[at.id_of(node)] = None
    return list(sources)
