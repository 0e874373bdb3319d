"""The cost of a network, as it is asked of an engine."""

from __future__ import annotations

from typing import ClassVar

from app.builder.catalog.catalog import Catalog
from app.builder.graph import Graph
from app.builder.shapes.network_cost import NetworkCost
from app.engine.protocol import Request


class Cost(Request[NetworkCost], frozen=True):
    """Return the cost of a graph's nodes for one sample."""

    lane: ClassVar[str] = "shapes"
    graph: Graph
    catalog: Catalog
