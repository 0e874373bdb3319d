"""Aligning and distributing nodes: pure functions over positions, in canvas pixels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from app.builder.arrange import Size
from app.builder.edits.edits import P, move_nodes

EDGES = ("left", "centre", "right", "top", "middle", "bottom")
AXES = ("horizontal", "vertical")


def align(project: P, nodes: Iterable[str], sizes: Mapping[str, Size], edge: str) -> P:
    """Put an edge of the nodes on one line: the outermost of them for a side, the mean for "centre" and "middle".

    "middle" is the line of the ports, so that wires between nodes of different heights run straight. Fewer than two
    nodes that have a place stay where they are. Raises KeyError for an edge that is none of `EDGES`.
    """
    upright = {
        "left": False,
        "centre": False,
        "right": False,
        "top": True,
        "middle": True,
        "bottom": True,
    }[edge]
    placed = [node for node in nodes if node in project.positions and node in sizes]
    if len(placed) < 2:
        return project
    offset = {node: _offset(sizes[node], edge) for node in placed}
    lines = {node: project.positions[node][upright] + offset[node] for node in placed}
    if edge in ("left", "top"):
        line = min(lines.values())
    elif edge in ("right", "bottom"):
        line = max(lines.values())
    else:
        line = round(sum(lines.values()) / len(lines))
    moved = {}
    for node in placed:
        x, y = project.positions[node]
        at = line - offset[node]
        moved[node] = (x, at) if upright else (at, y)
    return move_nodes(project, moved)


def distribute(
    project: P, nodes: Iterable[str], sizes: Mapping[str, Size], axis: str
) -> P:
    """Make the gaps between the nodes equal along an axis; the outermost two stay. It takes three nodes at least.

    Raises KeyError for an axis that is none of `AXES`.
    """
    along = {"horizontal": 0, "vertical": 1}[axis]
    placed = [node for node in nodes if node in project.positions and node in sizes]
    if len(placed) < 3:
        return project
    placed.sort(key=lambda node: project.positions[node][along])
    extent = {
        node: sizes[node].height if along else sizes[node].width for node in placed
    }
    first, last = placed[0], placed[-1]
    room = (
        project.positions[last][along] - project.positions[first][along] - extent[first]
    )
    gap = (room - sum(extent[node] for node in placed[1:-1])) / (len(placed) - 1)
    at = project.positions[first][along]
    moved = {}
    for node in placed[:-1]:
        point = list(project.positions[node])
        point[along] = at
        moved[node] = (point[0], point[1])
        at += extent[node] + gap
    return move_nodes(project, moved)


def _offset(size: Size, edge: str) -> float:
    """From the top left corner to the line that is aligned."""
    return {
        "left": 0.0,
        "centre": size.width / 2,
        "right": size.width,
        "top": 0.0,
        "middle": size.anchor,
        "bottom": size.height,
    }[edge]
