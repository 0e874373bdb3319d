"""Expand an instance of a block into its nodes."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any, TypeVar, cast

from msgspec.structs import replace

from app.builder.blocks import Block, BlockError, block_of
from app.builder.catalog.catalog import Catalog, OpSpec
from app.builder.edits import edits
from app.builder.edits.blocks import Whole, sheet_named, with_sheet
from app.builder.edits.make_block import COLUMN, NODE, grid
from app.builder.expressions import Expr, ExpressionError, expressions, mapped
from app.builder.graph import Edge, Graph, Node, merged
from app.builder.params import ParamError, check_param
from app.builder.plan import sequence, with_sequence
from app.builder.sheet import Comment, Sheet, changed
from app.util.frozen import FrozenMap

W = TypeVar("W", bound=Whole)


def expand(
    project: W, sheet: str, catalog: Catalog, instance: str
) -> tuple[W, frozenset[str]]:
    """Replace an instance by its inside, with expressions evaluated; return the project and the new node ids. The block
    stays.

    A repeated instance yields every repetition. Raises BlockError.
    """
    drawn = sheet_named(project, sheet)
    graph = drawn.graph
    node = graph.nodes[instance]
    block = project.blocks.get(block_of(node.op))
    if block is None:
        raise BlockError(f"{node.name} is not an instance of a block")
    if len(graph.sharing(instance)) > 1:
        raise BlockError(
            f"{node.name} shares its module with other nodes; it cannot be expanded"
        )
    if node.muted:
        raise BlockError(f"{node.name} is muted; unmute it before you expand it")
    piece = _inside(block, node, catalog)
    copies = [_Copy(block, piece) for _ in range(node.repeat)]
    result = graph.without_nodes([instance])
    for copy in copies:
        result, copy.ids = merged(result, piece.graph)
    edges = [*result.edges, *_joined(graph, instance, block, copies)]
    order = _in_place(
        graph, instance, [new for copy in copies for new in copy.ids.values()]
    )
    nodes = FrozenMap({key: result.nodes[key] for key in order})
    registered = _registered(
        Graph(nodes, tuple(edges)), graph, block, instance, copies, catalog
    )
    after = _with_places(drawn, registered, instance, block, copies)
    unfolded = {
        copy.ids[inner]
        for copy in copies
        for inner in block.unfolded
        if inner in copy.ids
    }
    after = replace(cast(Any, after), unfolded=after.unfolded | unfolded)
    new_ids = frozenset(new for copy in copies for new in copy.ids.values())
    return with_sheet(project, sheet, after), new_ids


def _registered(
    expanded: Graph,
    before: Graph,
    block: Block,
    instance: str,
    copies: list[_Copy],
    catalog: Catalog,
) -> Graph:
    """Restore registration order after expanding, if either sheet has one."""
    if not any(
        node.order for graph in (before, block.graph) for node in graph.nodes.values()
    ):
        return expanded
    inner, order = sequence(block.graph, catalog), list[str]()
    for node in sequence(before, catalog):
        order += (
            [copy.ids[inner_node] for copy in copies for inner_node in inner]
            if node == instance
            else [node]
        )
    return with_sequence(expanded, catalog, order)


class _Copy:
    """One copy of a block on the outer sheet: `ids` maps old ids to new ones."""

    def __init__(self, block: Block, piece: edits.Fragment) -> None:
        self.block, self.piece = block, piece
        self.ids: dict[str, str] = {}

    def takers(self, port: str) -> list[Edge]:
        """Return the wires inside from an input."""
        node = next((node.id for node in self.block.inputs if node.name == port), "")
        return list(self.block.graph.out_of(node))

    def giver(self, number: int) -> Edge | None:
        """Return the wire inside into an output."""
        outputs = self.block.outputs
        edges = (
            self.block.graph.into(outputs[number].id) if number < len(outputs) else ()
        )
        return edges[0] if edges else None


Given = tuple[str, int] | None


def _joined(
    graph: Graph, instance: str, block: Block, copies: list[_Copy]
) -> list[Edge]:
    """Return the wires between nodes around the instance and nodes inside it, copy by copy."""
    fed: dict[str, Given] = {
        edge.port: (edge.source, edge.output) for edge in graph.into(instance)
    }
    ports = [node.name for node in block.inputs]
    edges: list[Edge] = []
    gives: list[Given] = []
    for copy in copies:
        if gives and ports:
            fed[ports[0]] = gives[0]
        for port in ports:
            source = fed.get(port)
            inside = (edge for edge in copy.takers(port) if edge.target in copy.ids)
            edges += [
                Edge(*source, copy.ids[edge.target], edge.port, edge.index)
                for edge in inside
                if source
            ]
        gives = [
            _output_source(copy, number, fed) for number in range(len(block.outputs))
        ]
    for edge in graph.out_of(instance):
        giver = gives[edge.output] if edge.output < len(gives) else None
        if giver is not None:
            edges.append(replace(edge, source=giver[0], output=giver[1]))
    return edges


def _output_source(copy: _Copy, number: int, fed: Mapping[str, Given]) -> Given:
    """Return the source of an output: a node inside, or an input."""
    edge = copy.giver(number)
    if edge is None:
        return None
    if edge.source in copy.ids:
        return copy.ids[edge.source], edge.output
    name = next((node.name for node in copy.block.inputs if node.id == edge.source), "")
    return fed.get(name)


def _inside(block: Block, node: Node, catalog: Catalog) -> edits.Fragment:
    """Return the nodes between inputs and outputs of a block, with the instance's parameters."""
    values = {
        param.name: node.params.get(param.name, param.default) for param in block.params
    }
    piece = edits.copy(
        block,
        [n.id for n in block.graph.nodes.values() if n.op not in ("input", "output")],
    )
    nodes = {}
    for key, inner in piece.graph.nodes.items():
        spec = catalog.spec_of(block.graph, inner)
        params = {
            name: filled(value, values, spec, name)
            for name, value in inner.params.items()
        }
        frozen = inner.frozen or (
            node.frozen and spec.kind in ("module", "block", "parameter")
        )
        nodes[key] = replace(inner, params=FrozenMap(params), frozen=frozen)
    return edits.Fragment(Graph(FrozenMap(nodes), piece.graph.edges), piece.positions)


def filled(
    value: Any, values: Mapping[str, Any], spec: OpSpec | None = None, name: str = ""
) -> Any:
    """Substitute `values` in a parameter's expressions: a number, or an expression over theirs.

    Raises BlockError for what cannot be computed, or is no value of the parameter of `spec`.
    """
    if not any(expressions(value)):
        return value
    try:
        result = mapped(value, lambda expression: _filled(expression, values))
        param = spec.param(name) if spec is not None else None
        if param is not None:
            if (
                param.kind in ("int", "ints")
                and isinstance(result, float)
                and result.is_integer()
            ):
                result = int(result)
            check_param(param, result)
    except (ExpressionError, ParamError) as error:
        raise BlockError(
            f"{name or 'A parameter'} cannot be computed: {error}"
        ) from None
    return result


def _filled(expression: Expr, values: Mapping[str, Any]) -> Any:
    substitutes = {name: values[name] for name in expression.names if name in values}
    if len(substitutes) == len(expression.names) and not any(
        isinstance(v, Expr) for v in substitutes.values()
    ):
        alone = expression.text.strip()
        return (
            substitutes[alone]
            if alone in substitutes
            else expression.evaluate(substitutes)
        )

    class Inline(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.expr:
            if node.id not in substitutes:
                return node
            value = substitutes[node.id]
            text = value.text if isinstance(value, Expr) else repr(value)
            return ast.parse(text.strip(), mode="eval").body

    return Expr(
        ast.unparse(
            Inline().visit(ast.parse(expression.text.strip(), mode="eval").body)
        )
    )


def _in_place(graph: Graph, instance: str, new: list[str]) -> list[str]:
    """Return the ids of all nodes, with the new ones in place of the instance."""
    order: list[str] = []
    for key in graph.nodes:
        order += new if key == instance else [key]
    return order


def _with_places(
    drawn: Sheet, graph: Graph, instance: str, block: Block, copies: list[_Copy]
) -> Sheet:
    """Place the copies at the instance's position; nodes behind it in its row are shifted."""
    at = drawn.positions.get(instance)
    inside = copies[0].piece.positions
    positions = drawn.positions.without(instance)
    if at is None or not inside:
        return changed(drawn, graph=graph, positions=positions)
    left, top = min(x for x, _ in inside.values()), min(y for _, y in inside.values())
    width = max(x for x, _ in inside.values()) - left
    height = max(y for _, y in inside.values()) - top
    step = width + COLUMN
    dy = at[1] - top - grid(height / 2)
    more = width + step * (len(copies) - 1)
    moved = {
        key: (x + more, y)
        if x > at[0] and abs(y - at[1]) <= height / 2 + NODE[1]
        else (x, y)
        for key, (x, y) in positions.items()
    }
    comments, bends = dict(drawn.comments), dict(drawn.bends)
    for number, copy in enumerate(copies):
        dx = at[0] - left + step * number
        moved |= {copy.ids[key]: (x + dx, y + dy) for key, (x, y) in inside.items()}
        bends |= {
            replace(
                edge, source=copy.ids[edge.source], target=copy.ids[edge.target]
            ): tuple((x + dx, y + dy) for x, y in points)
            for edge, points in block.bends.items()
            if edge.source in copy.ids and edge.target in copy.ids
        }
        for comment in block.comments.values():
            comments[_fresh_comment(comments)] = replace(
                comment, x=comment.x + dx, y=comment.y + dy
            )
    return changed(
        drawn,
        graph=graph,
        positions=FrozenMap(moved),
        comments=FrozenMap(comments),
        bends=FrozenMap(bends),
    )


def _fresh_comment(comments: Mapping[str, Comment]) -> str:
    number = len(comments) + 1
    while f"c{number}" in comments:
        number += 1
    return f"c{number}"
