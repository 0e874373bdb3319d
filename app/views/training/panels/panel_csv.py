"""What a panel shows as CSV, in full precision: a row per stored value of each run, or per bin of its histogram."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from typing import Any

from app.views.shown_run import ComparedRun
from app.views.training.charts.metrics import Choice, Metric, newest_histogram


def to_csv(metric: Metric, choice: Choice, runs: Sequence[ComparedRun]) -> str:
    """Return the table: run, layer, step and value, or step, ends and count of a bin."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    named = ("run", "layer", "step")
    writer.writerow(
        (*named, "low", "high", "count") if metric.histogram else (*named, metric.title)
    )
    rows = _bins if metric.histogram else _values
    for run in runs:
        writer.writerows(
            (run.label, choice.layer, *row) for row in rows(metric, choice, run)
        )
    return out.getvalue()


def _values(
    metric: Metric, choice: Choice, run: ComparedRun
) -> Iterator[tuple[Any, ...]]:
    reading = metric.read(run.history, choice.layer)
    for step, value in zip(
        reading.steps.tolist(), reading.values.tolist(), strict=True
    ):
        yield int(step), "" if value != value else repr(value)


def _bins(
    metric: Metric, choice: Choice, run: ComparedRun
) -> Iterator[tuple[Any, ...]]:
    newest = newest_histogram(metric.histogram, run.history, choice.layer)
    if newest is None:
        return
    step, values = newest
    wide = (values.high - values.low) / len(values.counts)
    for at, count in enumerate(values.counts):
        yield (
            step,
            repr(values.low + at * wide),
            repr(values.low + (at + 1) * wide),
            count,
        )
