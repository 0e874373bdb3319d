"""Count what each node of a network costs."""

from __future__ import annotations

from app.builder.shapes.cost import cost
from app.builder.shapes.network_cost import NetworkCost
from app.engine.server import Context, handles
from app.features.cost.values import Cost


@handles(Cost)
def network_cost(request: Cost, _context: Context) -> NetworkCost:
    return cost(request.graph, request.catalog)
