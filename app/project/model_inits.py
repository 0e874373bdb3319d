"""The initialisation of a source model that its drawing does not have: which layers lose it, and taking it over."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from app.builder.blocks import PREFIX, Block
from app.builder.catalog.inits import is_name
from app.builder.graph import Graph, Init
from app.builder.importer.origin import ModelInit
from app.project.project import Project
from app.source.generated import ClassText, Source
from app.util.frozen import FrozenMap

Inits = Mapping[str, Init | None]
NAMED = 3  # parameters in a sentence
LOSES = "Starting from random weights loses the model's own initialisation of"


class LostInits(Struct, frozen=True):
    """Initialisations that a start from random weights loses: `inits` can be taken over, `others` are unknown to
    torch.nn.init, or are of parameters that no setting of a node names."""

    inits: tuple[ModelInit, ...] = ()
    keys: tuple[str, ...] = ()
    others: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Describe the differences in a sentence, "" if nothing is lost."""
        found = []
        if self.keys:
            names = ", ".join(dict.fromkeys(one.init.name for one in self.inits))
            found.append(f"{_named(self.keys)} ({names}), which can be taken over")
        if self.others:
            found.append(
                f"{_named(self.others)}, which no setting of a node can express"
            )
        return f"{LOSES} {'; and of '.join(found)}." if found else ""


def missing(project: Project, inits: tuple[ModelInit, ...]) -> tuple[ModelInit, ...]:
    """Keep those that layers of the drawing do not have yet."""

    def lacks(one: ModelInit) -> bool:
        block = project.blocks.get(one.block)
        graph = (
            block.graph if block is not None else None if one.block else project.graph
        )
        node = graph.nodes.get(one.node) if graph is not None else None
        return (
            node is not None
            and not node.shares
            and node.inits.get(one.parameter) != one.init
        )

    return tuple(one for one in inits if lacks(one))


def _named(keys: tuple[str, ...]) -> str:
    more = f" and {len(keys) - NAMED:,} more" if len(keys) > NAMED else ""
    return f"{', '.join(keys[:NAMED])}{more}"


def lost_inits(
    project: Project, source: Source, theirs: Inits, ours: Inits
) -> LostInits:
    """Compare the drawing's initialisation (`ours`) with the model's, both by keys of the state_dict.

    A layer of a block is initialised alike in all its instances, so it takes over only what they all share.
    """
    wanted: dict[tuple[str, str, str], dict[str, Init | None]] = {}
    for key, place in _nodes_of_keys(project, source, theirs):
        wanted.setdefault(place, {})[key] = theirs[key]
    inits, keys, others = list[ModelInit](), list[str](), list[str]()
    for (block, node, parameter), found in wanted.items():
        different = [
            key for key, init in found.items() if init is None or init != ours.get(key)
        ]
        several = set(found.values())
        (first,) = several if len(several) == 1 else (None,)
        if not different:
            continue
        if first is None or not all(
            map(is_name, parameter.split(".")) if parameter else ()
        ):
            others += different
        else:
            inits.append(ModelInit(block, node, parameter, first))
            keys += different
    return LostInits(tuple(inits), tuple(keys), tuple(others))


def taken_over(project: Project, inits: tuple[ModelInit, ...]) -> Project:
    """Set the initialisations of layers; deleted layers are skipped."""
    wanted = missing(project, inits)
    graph, blocks = project.graph, dict(project.blocks)
    for one in wanted:
        if one.block:
            block = blocks[one.block]
            blocks[one.block] = replace(block, graph=_with_init(block.graph, one))
        else:
            graph = _with_init(graph, one)
    return (
        replace(project, graph=graph, blocks=FrozenMap(blocks)) if wanted else project
    )


def _with_init(graph: Graph, one: ModelInit) -> Graph:
    node = graph.nodes[one.node]
    return graph.with_node(replace(node, inits=node.inits.set(one.parameter, one.init)))


def _nodes_of_keys(
    project: Project, source: Source, keys: Inits
) -> Iterator[tuple[str, tuple[str, str, str]]]:
    """Yield for each key its block, node and parameter."""
    rows = _modules(project.blocks, source, project.graph, source.root_class, "", "")
    modules = sorted(rows, key=lambda row: -len(row[0]))
    for key in keys:
        found = next(
            (row for row in modules if key == row[0] or key.startswith(f"{row[0]}.")),
            None,
        )
        if found is not None:
            path, block, node = found
            yield key, (block, node, key.removeprefix(path).removeprefix("."))


def _modules(
    blocks: Mapping[str, Block],
    source: Source,
    graph: Graph,
    part: ClassText,
    prefix: str,
    sheet: str,
) -> Iterator[tuple[str, str, str]]:
    """Path, block and node of every module, those inside blocks too."""
    for key in part.modules:
        node = graph.nodes.get(key)
        if node is None:
            continue
        block = (
            blocks.get(node.op.removeprefix(PREFIX))
            if node.op.startswith(PREFIX)
            else None
        )
        for number in range(node.repeat):
            path = prefix + part.module(key, number)
            inner = source.inside(part, key, number) if block is not None else None
            if block is not None and inner is not None:
                yield from _modules(
                    blocks, source, block.graph, inner, f"{path}.", block.name
                )
            else:
                yield path, sheet, key
