"""Handlers of `app.engine.requests.trials`: dry run, range test, the plan of a surgery."""

from __future__ import annotations

from app.data.own_files import cache
from app.engine.requests.trials import (
    PlanSurgery,
    RangeTest,
    SurgeryPlan,
    TryOnSyntheticData,
)
from app.engine.server import Context, handles
from app.engine.tasks.pace import Pace
from app.preflight import surgery_plan
from app.training.events import Failed
from app.training.trials.dry_run import dry_run
from app.training.trials.lr_range_test import rate_test
from app.training.trials.results import DryRun, RateTest


@handles(TryOnSyntheticData)
def try_on_synthetic_data(
    request: TryOnSyntheticData, _context: Context
) -> DryRun | Failed:
    cache.learn(request.fact)
    return dry_run(request.job)


@handles(RangeTest)
def range_test(request: RangeTest, context: Context) -> RateTest:
    pace = Pace()

    def report(done: int, _total: int) -> None:
        if pace.due():
            context.progress(done)

    return rate_test(
        request.job,
        request.lowest,
        request.highest,
        request.batches,
        report,
        context.cancelled,
    )


@handles(PlanSurgery)
def plan_surgery(request: PlanSurgery, _context: Context) -> SurgeryPlan:
    return SurgeryPlan(*surgery_plan.plan(request.before, request.after))
