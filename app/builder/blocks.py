"""Blocks: named graphs, each shown as one node on a canvas and generated as one class.

A block is an op like any other, `block.Residual`, in the catalog of the project that has it. Its input nodes are its
ports, its output nodes its outputs, and parameters that it exposes can be set on each instance.
"""

# A whole, which its parts import for type checkers alone: a block is an op, whose parameters are the catalog's.
from __future__ import annotations

from collections.abc import Iterable, Mapping

from app.builder.catalog.catalog import Catalog, OpSpec, Param, Port
from app.builder.graph import Graph, Node
from app.builder.sheet import Bends, Comments, Positions
from app.util.errors import CodedError
from app.util.frozen import FrozenMap, Shared

PREFIX = "block."
_KEPT = 8


class BlockError(CodedError, ValueError):
    """An invalid edit of blocks; the text says why and what to do."""


class Block(Shared, frozen=True):
    """A named graph. `name` is an identifier, the name of its class; `params` are what instances may set."""

    name: str
    graph: Graph = Graph()
    positions: Positions = FrozenMap()
    comments: Comments = FrozenMap()
    bends: Bends = FrozenMap()
    params: tuple[Param, ...] = ()
    note: str = ""
    unfolded: frozenset[str] = frozenset()  # unordered, so left out of the repr

    @property
    def key(self) -> str:
        return PREFIX + self.name

    @property
    def inputs(self) -> tuple[Node, ...]:
        """Its input nodes, in the order of the arguments of `forward`."""
        return tuple(node for node in self.graph.nodes.values() if node.op == "input")

    @property
    def outputs(self) -> tuple[Node, ...]:
        """Its output nodes, in the order in which `forward` returns them."""
        return tuple(node for node in self.graph.nodes.values() if node.op == "output")


Blocks = FrozenMap[str, Block]


def block_of(op: str) -> str:
    """Return the name of the block of an op, "" for other ops.

    >>> block_of("block.Residual"), block_of("nn.Linear")
    ('Residual', '')
    """
    return op.removeprefix(PREFIX) if op.startswith(PREFIX) else ""


def used(graph: Graph) -> tuple[str, ...]:
    """Return the names of the blocks that have instances in a graph, in order, without duplicates."""
    return tuple(name for op in graph.ops if (name := block_of(op)))


def contained(name: str, blocks: Mapping[str, Block]) -> tuple[str, ...]:
    """List the blocks nested in a block, at any depth, innermost first; a block that contains itself is listed too.

    Unknown names are left out.
    """
    order: dict[str, None] = {}
    path: list[tuple[str, list[str]]] = [
        (name, list(used(blocks[name].graph)) if name in blocks else [])
    ]
    visited: set[str] = set()
    while path:
        current, left = path[-1]
        if left:
            inner = left.pop(0)
            if inner in blocks and inner not in visited:
                visited.add(inner)
                path.append((inner, list(used(blocks[inner].graph))))
        else:
            path.pop()
            if path:
                order[current] = None
    return tuple(order)


def innermost_first(blocks: Mapping[str, Block]) -> tuple[str, ...]:
    """Sort block names so that each comes after those nested in it; blocks that contain a cycle are left out."""
    inside = {
        name: [inner for inner in used(block.graph) if inner in blocks]
        for name, block in blocks.items()
    }
    waiting = {name: len(inner) for name, inner in inside.items()}
    around: dict[str, list[str]] = {name: [] for name in blocks}
    for name, inner in inside.items():
        for nested in inner:
            around[nested].append(name)
    order = [name for name, count in waiting.items() if not count]
    for name in order:  # grows while it is walked
        for outer in around[name]:
            waiting[outer] -= 1
            if not waiting[outer]:
                order.append(outer)
    return tuple(order)


def circling(blocks: Mapping[str, Block]) -> str:
    """Return the first block that contains itself, at any depth, or ""."""
    stuck = blocks.keys() - set(innermost_first(blocks))
    return next(
        (name for name in blocks if name in stuck and name in contained(name, blocks)),
        "",
    )


def would_contain_itself(blocks: Mapping[str, Block], outer: str, inner: str) -> bool:
    """Return whether an instance of `inner` on the sheet of `outer` would make a block contain itself."""
    return inner == outer or outer in contained(inner, blocks)


def spec_of(
    block: Block, blocks: Mapping[str, Block], inside: tuple[str, ...] | None = None
) -> OpSpec:
    """Return the op of a block. Its inputs accept any kind: which one fits is known after shape inference.

    `inside` are the blocks that it contains, where the caller knows them.
    """
    inside = contained(block.name, blocks) if inside is None else inside
    if block.name in inside:  # no class could be; the file and the edits refuse it
        return OpSpec(
            key=block.key,
            kind="unknown",
            target="",
            label=block.name,
            category="block",
            stem="unknown",
        )
    stem = "".join(
        f"_{c.lower()}" if c.isupper() and i else c.lower()
        for i, c in enumerate(block.name)
    )
    return OpSpec(
        key=block.key,
        kind="block",
        target=block.name,
        label=block.name,
        category="block",
        stem=stem,
        inputs=tuple(Port(node.name, "any") for node in block.inputs),
        outputs=tuple(Port(node.name, "any") for node in block.outputs),
        params=block.params,
        definition=block,
        contains=tuple(blocks[name] for name in inside),
    )


_made: list[tuple[Catalog, Blocks, Catalog]] = []


def with_blocks(catalog: Catalog, blocks: Blocks) -> Catalog:
    """Return the catalog with an op for every block; cached for recent arguments."""
    if not blocks:
        return catalog
    for base, cached_blocks, extended in _made:
        if base is catalog and cached_blocks is blocks:
            return extended
    inside: dict[str, tuple[str, ...]] = {}
    for name in innermost_first(blocks):
        inner = (
            contained_name
            for nested in used(blocks[name].graph)
            if nested in blocks
            for contained_name in (*inside[nested], nested)
        )
        inside[name] = tuple(dict.fromkeys(inner))
    extended = catalog.plus(
        spec_of(block, blocks, inside.get(name)) for name, block in blocks.items()
    )
    _made[:] = [(catalog, blocks, extended), *_made[: _KEPT - 1]]
    return extended


def unused_name(blocks: Iterable[str], base_name: str) -> str:
    """Return `base_name`, or the first of `wanted2`, `wanted3`, ... that no block has."""
    used_names, number, name = set(blocks), 2, base_name
    while name in used_names:
        name, number = f"{base_name}{number}", number + 1
    return name
