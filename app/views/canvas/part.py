"""A sheet of which there are some nodes, then more, up to all: each step costs what it adds. Qt-free."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import replace
from typing import Any, cast

from app.builder.graph import Edge, Graph
from app.builder.sheet import Positions, Sheet
from app.frozen import FrozenMap


class Part:
    """The nodes of a sheet that were `taken`, with the wires between them; `take` adds the next in their order."""

    def __init__(self, sheet: Sheet, taken: Collection[str]) -> None:
        self._sheet, graph = sheet, sheet.graph
        self._nodes = {key: node for key, node in graph.nodes.items() if key in taken}
        self._left = deque(key for key in graph.nodes if key not in taken)
        self._edges = [edge for edge in graph.edges if edge.source in self._nodes and edge.target in self._nodes]
        here = Graph(FrozenMap(self._nodes), tuple(self._edges))
        self._into, self._out_of = dict(here.incoming), dict(here.outgoing)
        self._places = {key: place for key, place in sheet.positions.items() if key in self._nodes}

    @property
    def left(self) -> int:
        """How many nodes are still to come."""
        return len(self._left)

    def take(self, count: int) -> Sheet:
        """The sheet with so many nodes more."""
        graph, nodes, positions = self._sheet.graph, self._nodes, self._sheet.positions
        new = [self._left.popleft() for _ in range(min(count, len(self._left)))]
        for key in new:
            nodes[key] = graph.nodes[key]
            if key in positions:
                self._places[key] = positions[key]
        edges = dict.fromkeys(edge for key in new for edge in self._between(key))
        self._edges += edges
        for target in dict.fromkeys(edge.target for edge in edges):
            self._into[target] = tuple(edge for edge in graph.into(target) if edge.source in nodes)
        for source in dict.fromkeys(edge.source for edge in edges):
            self._out_of[source] = tuple(edge for edge in graph.out_of(source) if edge.target in nodes)
        part = Graph(FrozenMap(nodes), tuple(self._edges))
        known = {"incoming": dict(self._into), "outgoing": dict(self._out_of), "shared": graph.shared & nodes.keys()}
        part.__dict__.update(known)  # what it would work out for all of it again
        places: Positions = FrozenMap(self._places)
        return cast(Sheet, replace(cast(Any, self._sheet), graph=part, positions=places))

    def _between(self, key: str) -> list[Edge]:
        """The wires between a node and those that are there."""
        graph, nodes = self._sheet.graph, self._nodes
        arriving = [edge for edge in graph.into(key) if edge.source in nodes]
        return arriving + [edge for edge in graph.out_of(key) if edge.target in nodes]
