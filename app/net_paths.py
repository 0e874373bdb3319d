"""Which modules of a project's net there are by their paths, and which are frozen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from app.builder.blocks import PREFIX, Block
from app.builder.graph import Graph
from app.frozen import FrozenMap
from app.project import Project
from app.source import ClassText, Source

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


_last: tuple[FrozenMap[str, Block], Source, FrozenMap[str, int], tuple[Layer, ...]] | None = None


def layers_of(project: Project, analysis: Analysis) -> tuple[Layer, ...]:
    """The modules of the net in the order of its text, those inside blocks behind the block.

    Several ask for the same net, so the last answer is kept.
    """
    global _last
    blocks, source, counts = project.blocks, analysis.source, analysis.parameters
    known = _last
    if known is None or known[0] is not blocks or known[1] is not source or known[2] is not counts:
        found = _inside(project.blocks, source, analysis.graph, source.whole, "", False, counts)
        known = _last = (blocks, source, counts, tuple(found))
    return known[3]


def _inside(
    blocks: Mapping[str, Block], source: Source, graph: Graph, part: ClassText, prefix: str, frozen: bool,
    counts: Mapping[str, int] | None = None,
) -> Iterator[Layer]:  # fmt: skip
    """The modules of one sheet, whose class is `part`; `counts` are those of their parameters, where there are some."""
    for key, name in part.modules.items():
        node, path = graph.nodes.get(key), prefix + name
        if node is None:
            continue
        still, spread = frozen or node.frozen, part.spread.get(key, 1)
        count = counts.get(key) if counts is not None else None
        listed = node.repeat > 1 and spread == 1
        modules = tuple(f"{path}.{i}" for i in range(node.repeat)) if listed else (path,)
        yield Layer(path, modules, node.name, count, still, count != 0)
        for number in range(1, spread):
            other = prefix + part.module(key, number)
            yield Layer(other, (other,), node.name, None, still, count != 0)
        block = blocks.get(node.op.removeprefix(PREFIX)) if node.op.startswith(PREFIX) else None
        inner = source.inside(part, key, 0) if block is not None else None
        if block is not None and inner is not None:
            yield from _inside(blocks, source, block.graph, inner, f"{prefix}{part.module(key, 0)}.", still)


def is_known(path: str, layers: tuple[Layer, ...]) -> bool:
    """Whether a path leads to a module of the net, into one of them, or is the beginning of such a path."""
    return any(
        f"{path}.".startswith(f"{known}.") or known.startswith(f"{path}.")
        for layer in layers
        for known in (layer.path, *layer.modules)
    )
