"""The initialisation of a source model that its drawing does not have: which layers lose it, and taking it over."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from app.builder.blocks import PREFIX, Block
from app.builder.catalog.inits import is_name
from app.builder.graph import Graph, Init
from app.builder.origin import ModelInit
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
        phrases = []
        if self.keys:
            names = ", ".join(
                dict.fromkeys(model_init.init.name for model_init in self.inits)
            )
            phrases.append(f"{_named(self.keys)} ({names}), which can be taken over")
        if self.others:
            phrases.append(
                f"{_named(self.others)}, which no setting of a node can express"
            )
        return f"{LOSES} {'; and of '.join(phrases)}." if phrases else ""


def missing(project: Project, inits: tuple[ModelInit, ...]) -> tuple[ModelInit, ...]:
    """Keep those that layers of the drawing do not have yet."""

    def lacks(model_init: ModelInit) -> bool:
        block = project.blocks.get(model_init.block)
        graph = (
            block.graph
            if block is not None
            else None
            if model_init.block
            else project.graph
        )
        node = graph.nodes.get(model_init.node) if graph is not None else None
        return (
            node is not None
            and not node.shares
            and node.inits.get(model_init.parameter) != model_init.init
        )

    return tuple(model_init for model_init in inits if lacks(model_init))


def _named(keys: tuple[str, ...]) -> str:
    more = f" and {len(keys) - NAMED:,} more" if len(keys) > NAMED else ""
    return f"{', '.join(keys[:NAMED])}{more}"


def lost_inits(
    project: Project, source: Source, theirs: Inits, ours: Inits
) -> LostInits:
    """Compare the drawing's initialisation (`ours`) with the model's, both by keys of the state_dict.

    A layer of a block is initialised alike in all its instances, so it takes over only what they all share.
    """
    inits_by_parameter: dict[tuple[str, str, str], dict[str, Init | None]] = {}
    for key, location in _nodes_of_keys(project, source, theirs):
        inits_by_parameter.setdefault(location, {})[key] = theirs[key]
    inits, keys, others = list[ModelInit](), list[str](), list[str]()
    for (block, node, parameter), key_inits in inits_by_parameter.items():
        different = [
            key
            for key, init in key_inits.items()
            if init is None or init != ours.get(key)
        ]
        several = set(key_inits.values())
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
    lacking = missing(project, inits)
    graph, blocks = project.graph, dict(project.blocks)
    for model_init in lacking:
        if model_init.block:
            block = blocks[model_init.block]
            blocks[model_init.block] = replace(
                block, graph=_with_init(block.graph, model_init)
            )
        else:
            graph = _with_init(graph, model_init)
    return (
        replace(project, graph=graph, blocks=FrozenMap(blocks)) if lacking else project
    )


def _with_init(graph: Graph, model_init: ModelInit) -> Graph:
    node = graph.nodes[model_init.node]
    return graph.with_node(
        replace(node, inits=node.inits.set(model_init.parameter, model_init.init))
    )


def _nodes_of_keys(
    project: Project, source: Source, keys: Inits
) -> Iterator[tuple[str, tuple[str, str, str]]]:
    """Yield for each key its block, node and parameter."""
    rows = _modules(project.blocks, source, project.graph, source.root_class, "", "")
    modules = sorted(rows, key=lambda row: -len(row[0]))
    for key in keys:
        module = next(
            (row for row in modules if key == row[0] or key.startswith(f"{row[0]}.")),
            None,
        )
        if module is not None:
            path, block, node = module
            yield key, (block, node, key.removeprefix(path).removeprefix("."))


def _modules(
    blocks: Mapping[str, Block],
    source: Source,
    graph: Graph,
    class_text: ClassText,
    prefix: str,
    sheet: str,
) -> Iterator[tuple[str, str, str]]:
    """Path, block and node of every module, those inside blocks too."""
    for key in class_text.modules:
        node = graph.nodes.get(key)
        if node is None:
            continue
        block = (
            blocks.get(node.op.removeprefix(PREFIX))
            if node.op.startswith(PREFIX)
            else None
        )
        for number in range(node.repeat):
            path = prefix + class_text.module(key, number)
            inner = (
                source.inside(class_text, key, number) if block is not None else None
            )
            if block is not None and inner is not None:
                yield from _modules(
                    blocks, source, block.graph, inner, f"{path}.", block.name
                )
            else:
                yield path, sheet, key
