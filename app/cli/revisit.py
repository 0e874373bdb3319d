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
from app.cli.revisit_report import parted_text, plain_parted, plain_step, print_step
from app.cli.runs import folder_of
from app.cli.train.run_output import CLEARED
from app.engine.tasks.past.bisect import first_step
from app.engine.tasks.past.revisit import labels_of, revisited
from app.preflight import preflight
from app.project import custom_layers
from app.runs import record, stages, store
from app.runs.record import RunError
from app.training.revisit.conditions import parse_condition

if TYPE_CHECKING:
    from app.engine.tasks.past.revisit import HeldRevisit
    from app.project.project import Project
    from app.runs.store import Kept
    from app.training.job import Job


def run(options: argparse.Namespace) -> int:
    """Recompute the step, print it and write its graph; return 1 where the hashes part."""
    if options.first is not None and options.out is not None:
        raise console.CommandError("--out writes the graph of one step: pass --step")
    console.check_graph_output(options)
    kept = run_of(options.project, options.run)
    try:
        job, labels = _job(kept, options)
        if options.first is not None:
            return _first(kept, job, options)
        found, held = revisited(kept, job, options.step, labels, _progress(options))
    finally:
        _clear()
    for note in found.notes:
        console.warn(note)
    print(
        json.dumps(plain_step(kept, found), ensure_ascii=False)
    ) if options.json else print_step(found)
    if held is not None and options.out is not None:
        _write(held, options)
    elif options.out is not None and found.parted is None:
        raise console.CommandError(
            f"{options.out} was not written: there is no graph of this step"
        )
    return int(found.parted is not None or found.captured is False)


def _first(kept: Kept, job: Job, options: argparse.Namespace) -> int:
    """Print the first step at which a condition held; return 1 if the recomputed run differed before."""
    found = first_step(kept, job, parse_condition(options.first), _progress(options))
    _clear()
    if options.json:
        value = (
            found.value
            if found.value is not None and math.isfinite(found.value)
            else None
        )
        parted = plain_parted(found.parted)
        print(
            json.dumps(
                {
                    "run": kept.record.title,
                    "condition": options.first,
                    "step": found.step,
                    "layer": found.layer or None,
                    "value": value,
                    "recorded": found.recorded,
                    "parted": parted,
                },
                ensure_ascii=False,
            )
        )
        return int(found.parted is not None)
    how = "as recorded" if found.recorded else "found by recomputing every step"
    if found.step is not None:
        layer = f" in {found.layer}" if found.layer else ""
        print(
            console.printable(
                f"{options.first}: first at step {found.step:,}{layer}, {found.value:.6g} ({how})"
            )
        )
    elif found.parted is None:
        print(console.printable(f"{options.first}: at no step ({how})"))
    if found.parted is not None:
        print(console.printable(parted_text(found.parted)))
    return int(found.parted is not None)


def _job(kept: Kept, options: argparse.Namespace) -> tuple[Job, Any]:
    """Return the job of a run, and the labels of its nodes. Raises RunError and CommandError."""

    def job_of(each: Project) -> Job:
        return preflight.job(
            each, nets.sound(each), str(options.data) if options.data else None
        )

    project = store.project_of(kept)
    custom_layers.admit(project, options.trust)
    job = stages.whole_job(kept, stages.projects_of(kept, project), job_of)
    return job, labels_of(kept, project, job, options.step or 1)


def run_of(given: Path, name: str | None) -> Kept:
    """Return the run that a command names. Raises CommandError."""
    if (given / record.FILE).is_file():
        return store.Kept(given, record.read(given))
    if given.exists():
        folder = folder_of(given)
        found = store.listed(folder)
        if not found:
            raise RunError(f"{given}: no runs are stored")
        return store.find(folder, name) if name else found[0]
    return _named(str(given))


def _named(name: str) -> Kept:
    """Return the run of that name beside a project of the current folder. Raises RunError."""
    here = Path()
    folders = [
        *map(store.runs_beside, sorted(here.glob("*.tape"))),
        here / "runs",
        here,
    ]
    kept = [one for folder in dict.fromkeys(folders) for one in store.listed(folder)]
    found = [
        one
        for one in kept
        if name in (one.record.name, str(one.record.number), one.folder.name)
    ]
    if len(found) == 1:
        return found[0]
    if found:
        which = ", ".join(str(one.folder) for one in found)
        raise RunError(
            f"{len(found)} runs here are called “{name}”: {which}. Pass the folder of one."
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


def _write(held: HeldRevisit, options: argparse.Namespace) -> None:
    played, stopped = None, ""
    if graph_output.plays(options):
        played, stopped = play_through(held.hold())
    graph_output.write(held.tape, options, None, played, stopped)
