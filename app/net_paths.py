"""Which modules of a project's net there are by their paths, and which are frozen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from app.builder.blocks import PREFIX
from app.builder.graph import Graph
from app.project import Project
from app.source import Path

if TYPE_CHECKING:
    from app.builder.analysis import Analysis


@dataclass(frozen=True)
class Layer:
    """A module of the net. `path` leads to it; `modules` are those with a forward: several of a repeated node.

    `parameters` is None where they were not counted, which is inside blocks.
    """

    path: str
    modules: tuple[str, ...]
    label: str
    parameters: int | None = None
    frozen: bool = False
    trains: bool = True


def layers_of(project: Project, analysis: Analysis) -> tuple[Layer, ...]:
    """The modules of the net in the order of its text, those inside blocks behind the block."""
    return tuple(_layers(project, analysis, analysis.graph, (), False))


def _layers(project: Project, analysis: Analysis, graph: Graph, way: Path, frozen: bool) -> Iterator[Layer]:
    source = analysis.source
    within = source.within(way) if way else source
    for key, path in within.modules.items():
        node = graph.nodes.get(key)
        if node is None:
            continue
        still = frozen or node.frozen
        count = analysis.parameters.get(key) if not way else None
        listed = node.repeat > 1 and not within.further.get(key)
        modules = tuple(f"{path}.{i}" for i in range(node.repeat)) if listed else (path,)
        yield Layer(path, modules, node.name, count, still, count != 0)
        for other in within.further.get(key, ()):
            yield Layer(other, (other,), node.name, None, still, count != 0)
        block = project.blocks.get(node.op.removeprefix(PREFIX)) if node.op.startswith(PREFIX) else None
        if block is not None:
            yield from _layers(project, analysis, block.graph, (*way, (key, 0)), still)


def is_known(path: str, layers: tuple[Layer, ...]) -> bool:
    """Whether a path leads to a module of the net, into one of them, or is the beginning of such a path."""
    return any(
        f"{path}.".startswith(f"{known}.") or known.startswith(f"{path}.")
        for layer in layers
        for known in (layer.path, *layer.modules)
    )
