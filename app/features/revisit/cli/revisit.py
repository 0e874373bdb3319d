"""`tapedeck revisit`: recompute a step of a stored run, verify it, and write its graph."""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.autograd.playback.full_backward import play_through
from app.cli import console, nets
from app.cli.autograd import graph_output
from app.cli.runs import folder_of
from app.cli.train.run_output import CLEARED
from app.features.revisit.cli.report import (
    parted_text,
    plain_parted,
    plain_step,
    print_step,
)
from app.features.revisit.compute.bisect import first_step
from app.features.revisit.compute.revisit import labels_of, revisited
from app.features.revisit.values import parse_condition
from app.preflight import preflight
from app.project import custom_layers
from app.runs import record, stages, store
from app.runs.record import RunError

if TYPE_CHECKING:
    from app.features.revisit.compute.revisit import HeldRevisit
    from app.project.project import Project
    from app.runs.store import Kept
    from app.training.job import Job


def run(options: argparse.Namespace) -> int:
    """Recompute the step, print it and write its graph; return 1 where the hashes part."""
    if options.first is not None and options.out is not None:
        raise console.CommandError("--out writes the graph of one step: pass --step")
    console.check_graph_output(options)
    stored_run = run_of(options.project, options.run)
    try:
        job, labels = _job(stored_run, options)
        if options.first is not None:
            return _first(stored_run, job, options)
        step, revisit = revisited(
            stored_run, job, options.step, labels, _progress(options)
        )
    finally:
        _clear()
    for note in step.notes:
        console.warn(note)
    print(
        json.dumps(plain_step(stored_run, step), ensure_ascii=False)
    ) if options.json else print_step(step)
    if revisit is not None and options.out is not None:
        _write(revisit, options)
    elif options.out is not None and step.parted is None:
        raise console.CommandError(
            f"{options.out} was not written: there is no graph of this step"
        )
    return int(step.parted is not None or step.captured is False)


def _first(stored_run: Kept, job: Job, options: argparse.Namespace) -> int:
    """Print the first step at which a condition held; return 1 if the recomputed run differed before."""
    hit = first_step(
        stored_run, job, parse_condition(options.first), _progress(options)
    )
    _clear()
    if options.json:
        value = (
            hit.value if hit.value is not None and math.isfinite(hit.value) else None
        )
        parted = plain_parted(hit.parted)
        print(
            json.dumps(
                {
                    "run": stored_run.record.title,
                    "condition": options.first,
                    "step": hit.step,
                    "layer": hit.layer or None,
                    "value": value,
                    "recorded": hit.recorded,
                    "parted": parted,
                },
                ensure_ascii=False,
            )
        )
        return int(hit.parted is not None)
    how = "as recorded" if hit.recorded else "found by recomputing every step"
    if hit.step is not None:
        layer = f" in {hit.layer}" if hit.layer else ""
        print(
            console.printable(
                f"{options.first}: first at step {hit.step:,}{layer}, {hit.value:.6g} ({how})"
            )
        )
    elif hit.parted is None:
        print(console.printable(f"{options.first}: at no step ({how})"))
    if hit.parted is not None:
        print(console.printable(parted_text(hit.parted)))
    return int(hit.parted is not None)


def _job(stored_run: Kept, options: argparse.Namespace) -> tuple[Job, Any]:
    """Return the job of a run, and the labels of its nodes. Raises RunError and CommandError."""

    def job_of(stage_project: Project) -> Job:
        return preflight.job(
            stage_project,
            nets.sound(stage_project),
            str(options.data) if options.data else None,
        )

    project = store.project_of(stored_run)
    custom_layers.admit(project, options.trust)
    job = stages.whole_job(stored_run, stages.projects_of(stored_run, project), job_of)
    return job, labels_of(stored_run, project, job, options.step or 1)


def run_of(path: Path, name: str | None) -> Kept:
    """Return the run that a command names. Raises CommandError."""
    if (path / record.FILE).is_file():
        return store.Kept(path, record.read(path))
    if path.exists():
        folder = folder_of(path)
        runs = store.listed(folder)
        if not runs:
            raise RunError(f"{path}: no runs are stored")
        return store.find(folder, name) if name else runs[0]
    return _named(str(path))


def _named(name: str) -> Kept:
    """Return the run of that name beside a project of the current folder. Raises RunError."""
    here = Path()
    folders = [
        *map(store.runs_beside, sorted(here.glob("*.tape"))),
        here / "runs",
        here,
    ]
    runs = [
        stored_run
        for folder in dict.fromkeys(folders)
        for stored_run in store.listed(folder)
    ]
    matches = [
        stored_run
        for stored_run in runs
        if name
        in (
            stored_run.record.name,
            str(stored_run.record.number),
            stored_run.folder.name,
        )
    ]
    if len(matches) == 1:
        return matches[0]
    if matches:
        which = ", ".join(str(stored_run.folder) for stored_run in matches)
        raise RunError(
            f"{len(matches)} runs here are called “{name}”: {which}. Pass the folder of one."
        )
    raise RunError(
        f"There is no run, project or folder “{name}”. Pass a project and --run NAME, or a run's folder."
    )


def _progress(options: argparse.Namespace) -> Any:
    """Return a progress callback for a terminal."""
    if options.json or not sys.stderr.isatty():
        return lambda _done, _of: None

    def tell(done: int, of: int) -> None:
        print(
            f"\rrecomputing step {done} of {of} ", end="", file=sys.stderr, flush=True
        )

    return tell


def _clear() -> None:
    if sys.stderr.isatty():
        print(CLEARED, end="", file=sys.stderr)


def _write(revisit: HeldRevisit, options: argparse.Namespace) -> None:
    played, stopped = None, ""
    if graph_output.plays(options):
        played, stopped = play_through(revisit.hold())
    graph_output.write(revisit.tape, options, None, played, stopped)
