"""Carries out what is tried before a run."""

from __future__ import annotations

from app.data.own_files import cache
from app.engine.server import Context, handles
from app.engine.tasks.pace import Pace
from app.features.trials.compute.trials import dry_run, rate_test, timed
from app.features.trials.values import (
    DryRun,
    LayerTimes,
    RangeTest,
    RateTest,
    TimeLayers,
    TryOnSyntheticData,
)
from app.training.events import Failed


@handles(TryOnSyntheticData)
def try_on_synthetic_data(
    request: TryOnSyntheticData, _context: Context
) -> DryRun | Failed:
    cache.learn(request.fact)
    return dry_run(request.job)


@handles(TimeLayers)
def time_layers(request: TimeLayers, context: Context) -> LayerTimes | Failed:
    cache.learn(request.fact)
    return timed(request.job, context.cancelled)


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
