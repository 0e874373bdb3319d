"""Edits of a project as a person makes them on the canvas, for tests of surgeries, short and slow."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from app.builder.analysis import analyse
from app.builder.edits import edits
from app.builder.graph import Graph
from app.project import file
from app.project.custom_layers import ops_of
from app.project.project import Project
from app.project.surgery import surgery_between
from app.training.surgery.values import Surgery
from app.util.frozen import FrozenMap
from app.util.resources import path as resource
from tests.support.taken_device import DEVICE


def example(name: str, **training: Any) -> Project:
    """A bundled project, with other settings."""
    project = file.read(resource("examples", f"{name}.tape"))
    return replace(
        project, training=replace(project.training, device=DEVICE, **training)
    )


def by_name(project: Project, name: str) -> str:
    """The id of a node."""
    return next(key for key, node in project.graph.nodes.items() if node.name == name)


def changed(project: Project, name: str, /, **params: Any) -> Project:
    """Set parameters of a node; None takes one away."""
    node = project.graph.nodes[by_name(project, name)]
    merged = {
        key: value
        for key, value in {**node.params, **params}.items()
        if value is not None
    }
    return _with(project, project.graph, replace(node, params=FrozenMap(merged)))


def frozen(project: Project, *names: str, on: bool = True) -> Project:
    """Freeze nodes, or let them learn again."""
    for name in names:
        project = _with(
            project,
            project.graph,
            replace(project.graph.nodes[by_name(project, name)], frozen=on),
        )
    return project


def inserted(project: Project, op: str, before: str, /, **params: Any) -> Project:
    """Put a node on the first wire into another one."""
    target = by_name(project, before)
    wire = next(edge for edge in project.graph.edges if edge.target == target)
    project, made = edits.insert(project, ops_of(project), op, wire, (0.0, 0.0))
    return (
        changed(project, project.graph.nodes[made].name, **params)
        if params
        else project
    )


def renewed(project: Project, name: str, /, **params: Any) -> Project:
    """Put another node of the same op in the place of a node."""
    op = project.graph.nodes[by_name(project, name)].op
    return removed(inserted(project, op, name, **params), name)


def removed(project: Project, name: str) -> Project:
    """Take a node off its wire."""
    return edits.delete_and_reconnect(
        project, ops_of(project), [by_name(project, name)]
    )


def surgery(before: Project, after: Project) -> Surgery:
    """What it takes to go on with another net."""
    known, found = (analyse(one.graph, ops_of(one)) for one in (before, after))
    assert found.runnable, [problem.message for problem in found.problems]
    return surgery_between(before, after, known, found)


def _with(project: Project, graph: Graph, node: Any) -> Project:
    return replace(project, graph=replace(graph, nodes=graph.nodes.set(node.id, node)))
