"""Plans a surgery."""

from __future__ import annotations

from app.engine.server import Context, handles
from app.features.surgery.compute import plan
from app.features.surgery.values import PlanSurgery, SurgeryPlan


@handles(PlanSurgery)
def plan_surgery(request: PlanSurgery, _context: Context) -> SurgeryPlan:
    return SurgeryPlan(*plan(request.before, request.after))
