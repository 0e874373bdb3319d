"""Answers of the window's sweeps: whether settings work, the next trial, and all trials. It needs Optuna for most."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from app.data.own_files import cache
from app.engine.server import Context, handles
from app.features.sweep.compute import runs
from app.features.sweep.values import (
    BeginSweep,
    InSweep,
    NextTrial,
    PlanSweep,
    ReadSweep,
    Search,
    SteerSweep,
    SweepError,
    SweepPlan,
    SweepTable,
    TellTrial,
    Trial,
)

if TYPE_CHECKING:
    from app.features.sweep.compute.study import Study

_held: dict[Path, Study] = {}  # sweeps that this engine makes the trials of


@handles(PlanSweep)
def plan_sweep(request: PlanSweep, _context: Context) -> SweepPlan:
    cache.learn(request.fact)
    search = request.search
    params = runs.params_for(request.project, search.settings)
    if not search.settings:
        return SweepPlan(params)
    try:
        runs.check(request.project, request.analysis, search)
    except SweepError as error:
        return SweepPlan(params, problem=str(error), blamed=error.setting)
    return SweepPlan(params, search.count)


@handles(BeginSweep)
def begin_sweep(request: BeginSweep, _context: Context) -> str:
    from app.features.sweep.compute.study import Study

    study = Study.begin(request.runs, request.project, request.search)
    _held[study.folder] = study
    return study.tag


@handles(NextTrial)
def next_trial(request: NextTrial, _context: Context) -> Trial | None:
    cache.learn(request.fact)
    return _study(request).next()


@handles(TellTrial)
def tell_trial(request: TellTrial, _context: Context) -> bool:
    study = _study(request)
    if request.run:
        study.note_run(request.number, request.seed, request.run)
    if request.state != "running":
        study.end(request.number, request.state, request.losses, request.note)
    return request.step >= 0 and study.report(
        request.number, request.step, request.loss
    )


@handles(SteerSweep)
def steer_sweep(request: SteerSweep, _context: Context) -> SweepTable | None:
    from app.features.sweep.compute.study import Study, table

    folder = request.runs / request.tag
    if request.search is None and not request.values:
        if folder in _held:
            _held.pop(folder).close()
        return None
    study = _held.get(folder) or Study(folder)
    if request.values:
        study.add(request.values)
    if request.search is not None:
        study.change(request.search)
    return table(request.runs, request.tag)


@handles(ReadSweep)
def read_sweep(request: ReadSweep, _context: Context) -> SweepTable | None:
    Search(()).check()
    from app.features.sweep.compute.study import table, tags_in

    tags = tags_in(request.runs) if request.runs.is_dir() else ()
    return table(request.runs, request.tag or tags[0], tags) if tags else None


def _study(request: InSweep) -> Study:
    """Return the study whose trials this engine makes from now on."""
    from app.features.sweep.compute.study import Study

    folder = request.runs / request.tag
    if folder not in _held:
        _held[folder] = Study(folder, hold=True)
    return _held[folder]
