"""Find the first step of a run at which a condition held: from its records where they suffice, else by re-living
the run with a check at every step.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from app.features.revisit.compute.nondeterminism import parted_at
from app.features.revisit.values import (
    Condition,
    ConditionError,
    FirstStep,
    Hit,
    Parted,
)
from app.runs import layer_tables, step_hashes, store, tables
from app.runs.record import RunError
from app.runs.step_hashes import as_recorded, check_step
from app.runs.store import Kept
from app.training.job import Job
from app.training.recomputing.recompute_steps import (
    Probe,
    RecomputeWatcher,
    StepFigures,
    leave_recomputing,
    recompute_steps,
)
from app.training.recomputing.recorded import Recorded

Series = dict[int, dict[str, float]]


def first_step(
    stored_run: Kept,
    job: Job,
    condition: Condition,
    tell: Callable[[int, int], None] = lambda _done, _of: None,
    cancelled: Callable[[], bool] = lambda: False,
) -> FirstStep:
    """Return the first step at which a condition held. Raises RunError, RecomputeError, and ConditionError for a layer
    that the run has not."""
    recorded = step_hashes.recorded_of(stored_run)
    series = _recorded(stored_run, condition.figure, recorded, job.training.leave_out)
    _check_layer(
        condition,
        tuple(dict.fromkeys(layer for row in series.values() for layer in row)),
    )
    hit, missing = _first_recorded(series, recorded, condition)
    if not missing or condition.figure == "loss":
        return FirstStep(
            hit.step if hit else None,
            hit.layer if hit else "",
            hit.value if hit else None,
            True,
        )
    last = hit.step if hit is not None else recorded.last
    check_step(stored_run, job, min(recorded.losses, default=last), recorded)
    if (
        stored_run.record.environment is not None
        and stored_run.record.environment.processes > 1
    ):
        raise RunError(
            f"{stored_run.record.title} ran on several processes, of which only the losses are recorded at every step."
        )
    job = as_recorded(stored_run, job)
    probe = _ConditionProbe(condition)

    def at_end(watcher: RecomputeWatcher, figures: StepFigures) -> Parted | None:
        if watcher.parting is None:
            return None
        now = job.at_stage(job.stage_at(figures.step))
        return parted_at(watcher.parting, leave_recomputing(watcher), watcher, now)

    recomputed = recompute_steps(
        job, recorded, last, at_end, tell=tell, cancelled=cancelled, probe=probe
    )
    if probe.hit is None:
        _check_layer(condition, probe.known)
        return FirstStep(None, "", None, False, recomputed.found)
    return FirstStep(
        probe.hit.step, probe.hit.layer, probe.hit.value, False, recomputed.found
    )


def _check_layer(condition: Condition, layers: tuple[str, ...]) -> None:
    if condition.layer and layers and condition.layer not in layers:
        has = ", ".join(layers)
        raise ConditionError(
            f"The run has no “{condition.layer}” for {condition.figure}; it has {has}"
        )


def _recorded(
    stored_run: Kept, figure: str, recorded: Recorded, left_out: tuple[int, ...]
) -> Series:
    """Return a figure at the steps where it was measured, by layer; the loss is NaN at those that were not trained on,
    unless they were to be `left_out`. Raises RunError."""
    if figure == "loss":
        steps = (recorded.skipped | {recorded.failed}) - {0, *left_out}
        untrained = {step: {"": math.nan} for step in steps}
        return {step: {"": loss} for step, loss in recorded.losses.items()} | untrained
    file = {"norm": store.GRADIENTS, "dead": layer_tables.FIGURES}.get(figure)
    if file is None:
        return {}
    series: Series = {}
    for folder in store.measured(stored_run):
        try:
            names, columns = tables.read(folder / file)
        except (OSError, tables.TableError) as error:
            raise RunError(
                f"The measurements of {stored_run.record.title} cannot be read: {error}"
            ) from error
        columns_by_layer = {name: column for column, name in enumerate(names) if column}
        if figure == "dead":
            columns_by_layer = {
                name.removeprefix("dead/"): dead_column
                for name, dead_column in columns_by_layer.items()
                if name.startswith("dead/")
            }
        series |= {
            int(row[0]): {
                name: row[layer_column]
                for name, layer_column in columns_by_layer.items()
            }
            for row in columns.T.tolist()
        }
    return series


def _first_recorded(
    series: Series, recorded: Recorded, condition: Condition
) -> tuple[Hit | None, bool]:
    """Return the first measured step at which a condition held, and whether an earlier step was not measured."""
    for step in sorted(recorded.losses.keys() | series.keys()):
        if step in series and (hit := condition.first(series[step])):
            earlier = {
                recorded_step
                for recorded_step in recorded.losses
                if recorded_step < step
            }
            return Hit(step, *hit), not earlier <= series.keys()
    return None, not recorded.losses.keys() <= series.keys()


class _ConditionProbe(Probe):
    """Checks a condition at every step that is recomputed; `hit` is the first step at which it held."""

    def __init__(self, condition: Condition) -> None:
        self._condition = condition
        self.looks = condition.figure == "dead"
        self.hit: Hit | None = None
        self.known: tuple[str, ...] = ()  # the layers that have the figure

    def holds(self, watcher: RecomputeWatcher, step: int, updated: bool) -> bool:
        values = self._values(watcher, updated)
        self.known = tuple(values) or self.known
        if self._condition.layer and values and self._condition.layer not in values:
            return True
        if hit := self._condition.first(values):
            self.hit = Hit(step, *hit)
        return self.hit is not None

    def _values(self, watcher: RecomputeWatcher, updated: bool) -> dict[str, float]:
        if self._condition.figure == "norm":
            return watcher.layer_norms()
        if self._condition.figure == "weight":
            return watcher.largest_weights()
        if not (updated and watcher.look.open):
            return {}
        watcher.look.end()
        return watcher.look.fetch().dead
