"""A sheet revealed in steps, up to all of its nodes and wires: each step costs what it adds. Qt-free."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from itertools import islice
from typing import Any, cast

from msgspec.structs import replace

from app.builder.graph import Edge, Graph
from app.builder.sheet import Positions, Sheet
from app.util.frozen import FrozenMap

WIRES = 8  # that take as long as a node


class SheetPart:
    """The nodes of a sheet that were `taken` with those `wires` of it; `take` adds the next in their order."""

    def __init__(
        self, sheet: Sheet, taken: Collection[str], wires: Collection[Edge] = ()
    ) -> None:
        self._sheet, graph = sheet, sheet.graph
        self._nodes = {key: node for key, node in graph.nodes.items() if key in taken}
        self._left = deque(key for key in graph.nodes if key not in taken)
        between = [
            edge
            for edge in graph.edges
            if edge.source in self._nodes and edge.target in self._nodes
        ]
        self._edges = [edge for edge in between if edge in wires]
        self._owed = dict.fromkeys(
            edge for edge in between if edge not in wires
        )  # wires whose nodes are present
        here = Graph(FrozenMap(self._nodes), tuple(self._edges))
        self._into, self._out_of = dict(here.incoming), dict(here.outgoing)
        self._places = {
            key: position
            for key, position in sheet.positions.items()
            if key in self._nodes
        }

    @property
    def remaining(self) -> int:
        """Return how much is still to come, in nodes."""
        return max(
            len(self._left), (len(self._sheet.graph.edges) - len(self._edges)) // WIRES
        )

    @property
    def nodes(self) -> int:
        """How many nodes there are."""
        return len(self._nodes)

    @property
    def peopled(self) -> bool:
        """Return whether only wires are still to come."""
        return not self._left

    def take(self, count: int) -> Sheet:
        """Return the sheet with this many nodes more; fewer if many wires come with them."""
        graph, nodes, positions, owed = (
            self._sheet.graph,
            self._nodes,
            self._sheet.positions,
            self._owed,
        )
        room = WIRES * count
        for _ in range(min(count, len(self._left))):
            if len(owed) >= room:
                break
            key = self._left.popleft()
            nodes[key] = graph.nodes[key]
            if key in positions:
                self._places[key] = positions[key]
            owed.update(dict.fromkeys(self._between(key)))
        edges = list(islice(owed, room))
        for edge in edges:
            del owed[edge]
        self._edges += edges
        for target in dict.fromkeys(edge.target for edge in edges):
            into = graph.into(target)
            self._into[target] = tuple(
                edge for edge in into if edge.source in nodes and edge not in owed
            )
        for source in dict.fromkeys(edge.source for edge in edges):
            out_of = graph.out_of(source)
            self._out_of[source] = tuple(
                edge for edge in out_of if edge.target in nodes and edge not in owed
            )
        partial_graph = Graph(FrozenMap(nodes), tuple(self._edges))
        cached = {
            "incoming": dict(self._into),
            "outgoing": dict(self._out_of),
            "shared": graph.shared & nodes.keys(),
        }
        partial_graph.__dict__.update(cached)  # cached properties of the whole sheet
        shown_positions: Positions = FrozenMap(self._places)
        return cast(
            Sheet,
            replace(
                cast(Any, self._sheet), graph=partial_graph, positions=shown_positions
            ),
        )

    def _between(self, key: str) -> list[Edge]:
        """Return the wires between a node and the present ones."""
        graph, nodes = self._sheet.graph, self._nodes
        arriving = [edge for edge in graph.into(key) if edge.source in nodes]
        return arriving + [edge for edge in graph.out_of(key) if edge.target in nodes]
