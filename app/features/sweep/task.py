"""Checks the runs of a sweep before the first begins."""

from __future__ import annotations

from app.data.own_files import cache
from app.engine.server import Context, handles
from app.features.sweep.compute import runs
from app.features.sweep.values import PlanSweep, SweepError, SweepPlan


@handles(PlanSweep)
def plan_sweep(request: PlanSweep, _context: Context) -> SweepPlan:
    cache.learn(request.fact)
    params = runs.params_for(request.project.training, request.settings)
    if not request.settings:
        return SweepPlan(params)
    try:
        planned = runs.plan(
            request.project,
            request.analysis,
            request.settings,
            request.count,
            request.seed,
        )
    except SweepError as error:
        return SweepPlan(params, problem=str(error), blamed=error.setting)
    return SweepPlan(params, planned)
