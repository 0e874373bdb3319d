"""Placement of modules that a class creates and never calls: below the drawing, in a labelled frame."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from app.builder.graph import Graph
from app.builder.layout.arrange import DEFAULT, GRID, Size
from app.builder.sheet import FRAME, Comment, Comments, Point, Positions
from app.util.frozen import FrozenMap

TITLE = "Not used by forward"
FRAME_ID = "c1"
GAP, BELOW, PAD, HEAD = 24.0, 104.0, 24.0, 48.0


def used_part(graph: Graph) -> Graph:
    """Return the graph without unconnected uncalled modules."""
    alone = {
        node.id
        for node in graph.nodes.values()
        if node.kept and not graph.into(node.id) and not graph.out_of(node.id)
    }
    if not alone:
        return graph
    return replace(
        graph,
        nodes=FrozenMap(
            {key: node for key, node in graph.nodes.items() if key not in alone}
        ),
    )


def with_uncalled(
    graph: Graph, positions: Mapping[str, Point], sizes: Mapping[str, Size]
) -> tuple[Positions, Comments]:
    """Add positions of uncalled modules, in rows below the drawing, and the frame around them if there are any."""
    left = [node for node in graph.nodes if node not in positions]
    if not left:
        return FrozenMap(positions), FrozenMap()
    size = {node: sizes.get(node, DEFAULT) for node in (*left, *positions)}
    begin = min((x for x, _ in positions.values()), default=0.0)
    end = max((x + size[node].width for node, (x, _) in positions.items()), default=0.0)
    top = (
        max(
            (y + size[node].height for node, (_, y) in positions.items()),
            default=-BELOW,
        )
        + BELOW
        + HEAD
    )
    top = -(-top // GRID) * GRID
    width = max(end - begin, 6 * (DEFAULT.width + GAP))
    extended, x, y, lowest = dict(positions), begin + PAD, top, 0.0
    widest = x
    for node in left:
        if x > begin + PAD and x + size[node].width > begin + width:
            x, y, lowest = begin + PAD, y + lowest + GAP, 0.0
        extended[node] = (x, y)
        widest = max(widest, x + size[node].width)
        x += -(-(size[node].width + GAP) // GRID) * GRID
        lowest = max(lowest, size[node].height)
    frame = Comment(
        TITLE,
        begin,
        top - HEAD,
        widest + PAD - begin,
        y + lowest + PAD - (top - HEAD),
        FRAME,
    )
    return FrozenMap({node: extended[node] for node in graph.nodes}), FrozenMap(
        {FRAME_ID: frame}
    )
