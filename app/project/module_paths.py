"""Which modules of a project's net there are by their paths, and which are frozen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec import Struct

from app.builder.blocks import PREFIX, Block, innermost_first, used
from app.builder.graph import Graph
from app.project.project import Project
from app.source.generated import ClassText, Source

if TYPE_CHECKING:
    from app.builder.results import Analysis


class NetModule(Struct, frozen=True):
    """A module of the net. `path` leads to it; `modules` are those with a forward: several of a repeated node.

    `parameters` is None where they were not counted, which is inside blocks. `op` is that of its node, "" where code
    made it.
    """

    path: str
    modules: tuple[str, ...]
    label: str
    parameters: int | None = None
    frozen: bool = False
    trains: bool = True
    op: str = ""


class Layers:
    """The modules of a net in source order, those inside blocks after the block.

    They are generated lazily: a net of a few repeated blocks may have hundreds of thousands.
    """

    def __init__(self, project: Project, analysis: Analysis) -> None:
        self._blocks, self._graph = project.blocks, analysis.graph
        self._source, self._counts = analysis.source, analysis.parameters
        self._opened = (
            project.opened.interface.modules if project.opened is not None else ()
        )

    def __iter__(self) -> Iterator[NetModule]:
        return self._walk(self._blocks)

    def has(self, path: str) -> bool:
        """Return whether a path is that of a module of the net, leads into one, or is a prefix of such a path."""
        outer, above = self._outer
        return path in above or not outer.isdisjoint(_beginnings(path))

    @cached_property
    def _outer(self) -> tuple[set[str], set[str]]:
        """The paths on the network's own sheet, with which those of all that is inside begin, and their beginnings."""
        layers = self._walk({})
        outer = {path for layer in layers for path in (layer.path, *layer.modules)}
        return outer, {prefix for path in outer for prefix in _beginnings(path)}

    def frozen(self) -> Iterator[str]:
        """Yield the paths of frozen modules with parameters, outermost only; of an opened model its code decides."""
        frozen_blocks = {
            name
            for name, block in self._blocks.items()
            if any(n.frozen for n in block.graph.nodes.values())
        }
        for name in innermost_first(self._blocks):
            if not frozen_blocks.isdisjoint(used(self._blocks[name].graph)):
                frozen_blocks.add(name)
        if not frozen_blocks and not any(
            node.frozen for node in self._graph.nodes.values()
        ):
            return iter(())
        holding = {name: self._blocks[name] for name in frozen_blocks}
        return (
            layer.path
            for layer in self._walk(holding, frozen_ones=False)
            if layer.frozen and layer.trains
        )

    def _walk(
        self, blocks: Mapping[str, Block], frozen_ones: bool = True
    ) -> Iterator[NetModule]:
        source = self._source
        if self._opened:
            return (NetModule(path, (path,), path) for path in self._opened)
        return _inside(
            blocks,
            source,
            self._graph,
            source.root_class,
            "",
            False,
            self._counts,
            frozen_ones,
        )


def _beginnings(path: str) -> Iterator[str]:
    """Yield the path and all its prefixes that end at a dot.

    >>> sorted(_beginnings("a.b.c"))
    ['a', 'a.b', 'a.b.c']
    """
    parts = path.split(".")
    return (".".join(parts[:end]) for end in range(1, len(parts) + 1))


def _inside(
    blocks: Mapping[str, Block],
    source: Source,
    graph: Graph,
    class_text: ClassText,
    prefix: str,
    frozen: bool,
    counts: Mapping[str, int] | None = None,
    frozen_ones: bool = True,
) -> Iterator[NetModule]:
    """Yield the modules of one sheet, whose class is `class_text`; `counts` are their parameter counts, if known.

    With `frozen_ones` it descends into frozen blocks.
    """
    for key, name in class_text.modules.items():
        node, path = graph.nodes.get(key), prefix + name
        if node is None:
            continue
        still, spread = frozen or node.frozen, class_text.spread.get(key, 1)
        count = counts.get(key) if counts is not None else None
        listed = node.repeat > 1 and spread == 1
        modules = (
            tuple(f"{path}.{i}" for i in range(node.repeat)) if listed else (path,)
        )
        yield NetModule(path, modules, node.name, count, still, count != 0, node.op)
        for number in range(1, spread):
            other = prefix + class_text.module(key, number)
            yield NetModule(
                other, (other,), node.name, None, still, count != 0, node.op
            )
        block = (
            blocks.get(node.op.removeprefix(PREFIX))
            if node.op.startswith(PREFIX)
            else None
        )
        if still and not frozen_ones:
            continue
        inner = source.inside(class_text, key, 0) if block is not None else None
        if block is not None and inner is not None:
            name = f"{prefix}{class_text.module(key, 0)}."
            yield from _inside(
                blocks, source, block.graph, inner, name, still, frozen_ones=frozen_ones
            )
