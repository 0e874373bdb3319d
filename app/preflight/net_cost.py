"""Cost of a small net, by which the CPU threads of its run are chosen."""

from __future__ import annotations

from msgspec.structs import replace

from app.builder.catalog.catalog import Catalog
from app.builder.results import Analysis
from app.builder.shapes.cost import cost

FEW = 64  # nodes; larger nets are not measured


def with_cost(analysis: Analysis, ops: Catalog) -> Analysis:
    """Return the analysis with the cost of its net, where that runs and has few nodes."""
    if not analysis.runnable or len(analysis.graph.nodes) > FEW:
        return analysis
    return replace(analysis, cost=cost(analysis.graph, ops))
