"""Where the arrow keys lead from a node. Qt-free but for the points."""

from __future__ import annotations

from collections.abc import Mapping

from PySide6.QtCore import QRectF

from app.builder.graph import Graph

LEFT, RIGHT, UP, DOWN = (-1, 0), (1, 0), (0, -1), (0, 1)


def step(
    graph: Graph, bodies: Mapping[str, QRectF], node: str, direction: tuple[int, int]
) -> str | None:
    """Return the next node: left and right follow the wires; otherwise the nearest node in that direction."""
    if direction == LEFT and graph.into(node):
        return graph.into(node)[0].source
    if direction == RIGHT and graph.out_of(node):
        targets = [edge.target for edge in graph.out_of(node) if edge.target in bodies]
        here = bodies[node].center().y()
        return min(
            targets,
            key=lambda other: abs(bodies[other].center().y() - here),
            default=None,
        )
    return nearest(bodies, node, direction)


def nearest(
    bodies: Mapping[str, QRectF], node: str, direction: tuple[int, int]
) -> str | None:
    """Return the nearest node in a direction; sideways distance counts twice."""
    here = bodies[node].center()
    best, least = None, float("inf")
    for other, rect in bodies.items():
        dx, dy = rect.center().x() - here.x(), rect.center().y() - here.y()
        ahead = dx * direction[0] + dy * direction[1]
        aside = abs(dx * direction[1]) + abs(dy * direction[0])
        if other != node and ahead > 8 and ahead + 2 * aside < least:
            best, least = other, ahead + 2 * aside
    return best
