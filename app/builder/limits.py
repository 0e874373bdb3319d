"""How large a drawing may be: bounds far above any net, so that no file and no slip can stop the program.

The largest drawings of real models are a fraction of them: of torchvision's models the one with most calls has 1,633
when it is drawn flat, transformers nest some ten modules deep, and the largest open mixture-of-experts nets have 50,000
to 75,000 modules with every expert counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from app.builder.blocks import Block, block_of
from app.builder.graph import Graph, Node
from app.util.errors import CodedError

MOST_NODES = 5_500  # of one sheet
MOST_EDGES = 20_000  # wires of one sheet
MOST_NODES_IN_ALL = 20_000  # of all sheets together
MOST_BLOCKS = 1_000
DEEPEST = 64  # blocks in one another
MOST_CALLS = (
    200_000  # with the inside of every instance of a block and every repetition counted
)


class TooLargeError(CodedError, ValueError):
    """A drawing beyond the limits; the text says by how much. `block` is the one concerned, "" for the network."""

    def __init__(self, text: str, block: str = "") -> None:
        super().__init__(text)
        self.block = block


class Extent(Struct, frozen=True):
    """Nesting depth of the blocks of a sheet, and its number of calls including those inside them."""

    depth: int
    calls: int


def _extent(
    nodes: Iterable[Node],
    blocks: Mapping[str, Block],
    extents: dict[str, Extent],
    above: int,
) -> Extent:
    depth = calls = 0
    for node in nodes:
        name = block_of(node.op)
        inside = Extent(0, 0)
        if name in blocks:
            if name not in extents:
                if above >= DEEPEST:
                    raise TooLargeError(
                        f"blocks are nested more than {DEEPEST} deep", name
                    )
                extents[name] = _extent(
                    blocks[name].graph.nodes.values(), blocks, extents, above + 1
                )
            inside = extents[name]
            depth = max(depth, inside.depth + 1)
        calls += node.repeat * (1 + inside.calls)
    return Extent(depth, calls)


def check(graph: Graph, blocks: Mapping[str, Block]) -> None:
    """Raise TooLargeError if a network with these blocks is beyond the bounds. No block may contain itself."""
    sheets = {"": graph, **{name: block.graph for name, block in blocks.items()}}
    if len(blocks) > MOST_BLOCKS:
        raise TooLargeError(
            f"there are {len(blocks):,} blocks, and a project may have at most {MOST_BLOCKS:,}"
        )
    for name, sheet in sheets.items():
        where = f"the block {name:.60}" if name else "the network"
        if len(sheet.nodes) > MOST_NODES:
            raise TooLargeError(
                f"{where} has {len(sheet.nodes):,} nodes, and a sheet may have at most {MOST_NODES:,}",
                name,
            )
        if len(sheet.edges) > MOST_EDGES:
            raise TooLargeError(
                f"{where} has {len(sheet.edges):,} wires, and a sheet may have at most {MOST_EDGES:,}",
                name,
            )
    total = sum(len(sheet.nodes) for sheet in sheets.values())
    if total > MOST_NODES_IN_ALL:
        raise TooLargeError(
            f"there are {total:,} nodes on all sheets together, and at most {MOST_NODES_IN_ALL:,}"
        )
    check_nesting(graph.nodes.values(), blocks)


def check_nesting(nodes: Iterable[Node], blocks: Mapping[str, Block]) -> None:
    """Raise TooLargeError if blocks are nested too deep or expand to too many calls. No block may contain itself."""
    extents: dict[str, Extent] = {}
    for name, block in blocks.items():
        if name not in extents:
            extents[name] = _extent(block.graph.nodes.values(), blocks, extents, 1)
    for name, extent in extents.items():
        if extent.depth >= DEEPEST:
            raise TooLargeError(f"blocks are nested more than {DEEPEST} deep", name)
        if extent.calls > MOST_CALLS:
            raise TooLargeError(_too_many(f"the block {name:.60}", extent.calls), name)
    total = _extent(nodes, blocks, extents, 0)
    if total.calls > MOST_CALLS:
        raise TooLargeError(_too_many("the network", total.calls))


def _too_many(where: str, calls: int) -> str:
    count = f"{calls:,}" if calls < 10**15 else "more than 10^15"
    return f"{where} makes {count} calls with all blocks and repetitions, and at most {MOST_CALLS:,} are allowed"
