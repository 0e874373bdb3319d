"""Handlers of `app.engine.requests.trials`: dry run, range test, the runs of a sweep, the plan of a surgery."""

from __future__ import annotations

from app.data.own_files import cache
from app.engine.requests.trials import (
    PlanSurgery,
    PlanSweep,
    RangeTest,
    SurgeryPlan,
    SweepPlan,
    TryOnSyntheticData,
)
from app.engine.server import Context, handles
from app.engine.tasks.pace import Pace
from app.preflight import surgery_plan, sweep_runs
from app.training.events import Failed
from app.training.trials.dry_run import dry_run
from app.training.trials.lr_range_test import rate_test
from app.training.trials.results import DryRun, RateTest
from app.training.trials.sweep import SweepError


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


@handles(PlanSweep)
def plan_sweep(request: PlanSweep, _context: Context) -> SweepPlan:
    cache.learn(request.fact)
    params = sweep_runs.params_for(request.project.training, request.settings)
    if not request.settings:
        return SweepPlan(params)
    try:
        runs = sweep_runs.plan(
            request.project,
            request.analysis,
            request.settings,
            request.count,
            request.seed,
        )
    except SweepError as error:
        return SweepPlan(params, problem=str(error), blamed=error.setting)
    return SweepPlan(params, runs)


@handles(PlanSurgery)
def plan_surgery(request: PlanSurgery, _context: Context) -> SurgeryPlan:
    return SurgeryPlan(*surgery_plan.plan(request.before, request.after))
