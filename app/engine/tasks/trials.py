"""Handlers of `app.engine.requests.trials`: dry run and range test."""

from __future__ import annotations

from app.data.own_files import cache
from app.engine.requests.trials import (
    RangeTest,
    TryOnSyntheticData,
)
from app.engine.server import Context, handles
from app.engine.tasks.pace import Pace
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
