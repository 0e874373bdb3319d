"""Sheets with blocks for tests, written as rows and wires."""

from __future__ import annotations

from typing import Any

from app.builder.analysis import analyse
from app.builder.blocks import Block, with_blocks
from app.builder.catalog.catalog import catalog
from app.builder.graph import Edge, Graph, Node
from app.builder.results import Analysis
from app.util.frozen import FrozenMap

Row = tuple[Any, ...]


def sheet(rows: list[Row], wires: str) -> Graph:
    """Nodes from rows (id, op, name, params, further fields), wires from "a>b" or "a>b.port"; blocks take `x`."""
    nodes = {}
    for node_id, op, name, *rest in rows:
        params, more = [*rest, {}, {}][:2]
        nodes[node_id] = Node(node_id, op, name, FrozenMap(params), **more)
    edges: list[Edge] = []
    used: dict[tuple[str, str], int] = {}
    for wire in wires.split():
        source, _, target = wire.partition(">")
        target, _, port = target.partition(".")
        port = port or ("x" if nodes[target].op.startswith("block.") else "input")
        index = used[target, port] = used.get((target, port), -1) + 1
        edges.append(Edge(source, 0, target, port, index))
    return Graph(FrozenMap(nodes), tuple(edges))


def row_of(rows: list[Row], shape: tuple[int, ...] | None = None) -> Graph:
    """A chain of them between an input x and an output y."""
    ids = ["x", *(row[0] for row in rows), "y"]
    ends: list[Row] = [
        ("x", "input", "x", {"shape": shape} if shape else {}),
        ("y", "output", "y"),
    ]
    wires = " ".join(f"{a}>{b}" for a, b in zip(ids, ids[1:], strict=False))
    return sheet([ends[0], *rows, ends[1]], wires)


def analysed(graph: Graph, *blocks: Block) -> Analysis:
    """The answer to a graph that nothing is wrong with."""
    answer = analyse(
        graph,
        with_blocks(catalog(), FrozenMap({block.name: block for block in blocks})),
    )
    assert not answer.errors, [problem.message for problem in answer.errors]
    return answer
