"""`tapedeck revisit`: recompute a step of a stored run, verify it, and write its graph."""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.autograd.playback.playback import play_through
from app.cli import console, nets
from app.cli.autograd import graph_output
from app.cli.run_table import folder_of
from app.cli.train.run_output import CLEARED
from app.features.revisit.compute.bisect import first_step
from app.features.revisit.compute.revisit import labels_of, revisited
from app.features.revisit.values import parse_condition
from app.preflight import preflight
from app.project import custom_layers
from app.runs import record, stages, store
from app.runs.record import RunError
from app.util.formatting import counted

if TYPE_CHECKING:
    from app.features.revisit.compute.revisit import HeldRevisit
    from app.features.revisit.values import Parted, Revisited
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


def print_step(step: Revisited) -> None:
    """Print a recomputed step: its losses, and each layer's hashes and norm."""

    start = (
        f"step {step.started_at:,} ({step.checkpoint})"
        if step.checkpoint
        else "the start of the run"
    )
    print(
        f"{console.printable(step.run)}, step {step.step:,}: batch {step.batch:,} of epoch {step.epoch:,}, "
        f"recomputed "
        f"from {start}; {step.verified:,} steps verified by their hashes, all by their losses"
    )
    same = {None: "not recorded", True: "equal", False: "not equal"}
    recorded = (
        "not recorded" if step.recorded_loss is None else repr(step.recorded_loss)
    )
    print(f"loss {step.loss!r}, recorded {recorded}; generators {same[step.generator]}")
    rows = [("layer", "recorded", "recomputed", "gradient norm")]
    for layer in step.layers:
        norm = "-" if layer.norm is None else f"{layer.norm:.6g}"
        mark = "" if layer.is_equal else "  differs"
        rows.append(
            (
                console.printable(layer.layer),
                layer.recorded or "-",
                layer.recomputed,
                norm + mark,
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for row in rows:
        print(
            "  ".join(
                [
                    *(
                        f"{cell:<{width}}"
                        for cell, width in zip(row, widths, strict=False)
                    ),
                    row[3],
                ]
            )
        )
    if step.captured:
        print("The gradients of the captured graph are those of the step, bit for bit.")
    if step.parted is not None:
        print(console.printable(parted_text(step.parted)))


def parted_text(parted: Parted) -> str:
    """Describe where a recomputed run parted from the recorded one."""
    difference = {
        "gradients": f"the gradients of {counted(len(parted.layers), 'layer')} differ, {parted.layer} first",
        "generator": "torch's generators are in another state",
        "position": "the batch is a different one",
        "loss": "the loss differs",
    }[parted.what]
    text = f"The run differs from its record at step {parted.step:,}: {difference}."
    if parted.operation is None:
        return f"{text} No operation was found: {parted.reason}."
    where = f", {parted.line}" if parted.line else ""
    return f"{text} {parted.operation}{where} is not deterministic: {parted.reason}."


def plain_step(stored_run: Kept, step: Revisited) -> dict[str, Any]:
    """Return the JSON object of a recomputed step."""
    return {
        "run": stored_run.record.title,
        "step": step.step,
        "checkpoint": step.checkpoint or None,
        "loss": step.loss if math.isfinite(step.loss) else None,
        "layers": [
            {
                "layer": layer.layer,
                "recorded": layer.recorded,
                "recomputed": layer.recomputed,
                "norm": layer.norm,
                "relived": layer.recomputed,
            }  # the name that scripts of earlier versions read
            for layer in step.layers
        ],
        "parted": plain_parted(step.parted),
        "verified": step.verified,
        "captured": step.captured,
    }


def plain_parted(parted: Parted | None) -> dict[str, Any] | None:
    """Return the JSON object of where a run parted; None if it did not."""
    if parted is None:
        return None
    return {
        "step": parted.step,
        "layer": parted.layer,
        "operation": parted.operation,
        "what": parted.what,
        "line": parted.line,
        "reason": parted.reason,
    }
