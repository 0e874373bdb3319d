"""Precomputed positions for large sheets without any, since laying them out on the canvas would block the window."""

from __future__ import annotations

from typing import Any, TypeVar, cast

from msgspec.structs import replace

from app.builder.blocks import Blocks
from app.builder.graph import Graph, Node
from app.builder.layout.arrange import (
    DEFAULT,
    ROW_GAP,
    ROW_WIDTH,
    Size,
    arrange,
    snapped,
)
from app.builder.sheet import Positions, Sheet
from app.util.frozen import FrozenMap

MANY = 200  # unplaced nodes; fewer are laid out by the canvas, with their real sizes
LETTER, BESIDE = (
    8,
    56,
)  # px per letter of a node's title, and px of the padding and icons next to it
WIDEST = 240  # px
COLUMN = 190  # approximate px per column, for a drawing about as wide as high

S = TypeVar("S", bound=Sheet)


def with_places(project: S) -> S:
    """Return the project with a position for every node of its large sheets."""
    blocks = cast(Blocks, getattr(project, "blocks", FrozenMap()))
    blocks_with_positions = {
        name: _with_positions(block) for name, block in blocks.items()
    }
    if any(blocks_with_positions[name] is not block for name, block in blocks.items()):
        project = cast(
            S, replace(cast(Any, project), blocks=FrozenMap(blocks_with_positions))
        )
    return _with_positions(project)


def _with_positions(sheet: S) -> S:
    missing = [node for node in sheet.graph.nodes if node not in sheet.positions]
    if len(missing) <= MANY:
        return sheet
    return cast(
        S,
        replace(
            cast(Any, sheet),
            positions=_positions(sheet.graph, sheet.positions, missing),
        ),
    )


def _positions(graph: Graph, positions: Positions, missing: list[str]) -> Positions:
    """Return the known positions, with the missing nodes laid out below them."""
    width = max(ROW_WIDTH, COLUMN * len(missing) ** 0.5)
    subgraph = graph if len(missing) == len(graph.nodes) else graph.part(missing)
    arranged = arrange(
        subgraph, {node: _size(graph.nodes[node]) for node in missing}, width
    )
    there = {node: positions[node] for node in graph.nodes if node in positions}
    if not there:
        return arranged
    left = min(x for x, _ in there.values())
    below = max(y for _, y in there.values()) + DEFAULT.height + ROW_GAP
    left, below = snapped(left), snapped(below)
    return FrozenMap(
        {**there, **{node: (x + left, y + below) for node, (x, y) in arranged.items()}}
    )


def _size(node: Node) -> Size:
    """About how large it will be drawn."""
    return replace(
        DEFAULT, width=min(max(DEFAULT.width, len(node.name) * LETTER + BESIDE), WIDEST)
    )
