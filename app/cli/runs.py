"""`tapedeck runs`: list the stored runs of a project or a folder."""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from app.runs.store import Kept

SHOWN = 6  # of the steps that were measured, evenly spread, where they are printed
HEAD = ("run", "began", "state", "epochs", "steps", "loss", "best", "accuracy", "best", "time")


def add(commands: Any) -> None:
    """Add the command to the parser."""
    runs = commands.add_parser("runs", help="list the runs stored beside a project")
    runs.add_argument("project", type=Path, help="a project, or a folder of runs")
    runs.add_argument("--json", action="store_true", help="one line of JSON per run")
    runs.add_argument(
        "--run", metavar="NAME", help="run for --tensorboard and --gains, by number or name (default: the newest)"
    )
    runs.add_argument("--tensorboard", type=Path, metavar="DIR", help="write a run as TensorBoard event files")
    runs.add_argument(
        "--gains",
        action="store_true",
        help=(
            "relative gradient norm of each layer over the steps of a run, and the first layer whose gradient "
            "vanishes or explodes"
        ),
    )
    runs.add_argument("--data", type=Path, help="folder for downloaded datasets")
    runs.add_argument("--trust", action="store_true", help="run the code of the net for --tensorboard, this time only")
    runs.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Print one line per run, newest first."""
    from app.runs import store

    found = store.listed(folder_of(options.project))
    if options.tensorboard:
        print(_exported(options, found))
        return 0
    if options.gains:
        _gains(options, found)
        return 0
    if options.json:
        for kept in found:
            print(json.dumps(_plain(kept), ensure_ascii=False))
        return 0
    if not found:
        print(f"{options.project}: no runs are stored")
        return 0
    from app.cli import printable

    said = {at: _surgeries(kept) for at, kept in enumerate(found, 1)}
    rows = [HEAD, *(tuple(map(printable, _row(kept))) for kept in found)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD))]
    for at, row in enumerate(rows):
        left, right = row[:3], row[3:]
        cells = [f"{text:<{width}}" for text, width in zip(left, widths, strict=False)]
        cells += [f"{text:>{width}}" for text, width in zip(right, widths[3:], strict=True)]
        print("  ".join(cells).rstrip())
        for line in said.get(at, ()):
            print(printable(f"    {line}"))
    return 0


def _surgeries(kept: Kept) -> list[str]:
    """Describe where the net of a run was edited."""
    return [f"after step {cut.step:,}: {cut.description}" for cut in kept.record.cuts]


def _exported(options: argparse.Namespace, found: list[Kept]) -> Path:
    """Export the requested run as event files; return their folder."""
    from app import cli
    from app.data.sources import DataError
    from app.preflight import preflight
    from app.project import custom_layers
    from app.runs import store, tensorboard
    from app.runs.record import RunError

    try:
        kept = _requested_run(options, found)
        project = store.project_of(kept)
        custom_layers.admit(project, options.trust)
        job = preflight.job(project, cli.sound(project), str(options.data) if options.data else None)
        with cli.writing(options.tensorboard):
            return tensorboard.export(kept, job, options.tensorboard)
    except (RunError, DataError) as error:
        raise cli.CommandError(str(error)) from error


def _requested_run(options: argparse.Namespace, found: list[Kept]) -> Kept:
    """Return the requested run. Raises RunError."""
    from app.runs import store
    from app.runs.record import RunError

    if not found:
        raise RunError(f"{options.project}: no runs are stored")
    return store.find(found[0].folder.parent, options.run) if options.run else found[0]


def _gains(options: argparse.Namespace, found: list[Kept]) -> None:
    """Print the relative gradient norm of each layer, last layer first: one column per step."""
    from app import cli
    from app.runs import store
    from app.runs.record import RunError
    from app.training.monitoring.gradient_health import lost_over

    try:
        kept = _requested_run(options, found)
        tables = store.history_of(kept).seen.tables
    except RunError as error:
        raise cli.CommandError(str(error)) from error
    reach, steps = tables["reach"], [int(step) for step in tables["reach"].steps]
    if not steps:
        raise cli.CommandError(f"{kept.record.title}: no gains were measured in this run", 1)
    lost = lost_over(reach)
    if options.json:
        print(json.dumps({
            "run": kept.record.title, "steps": steps, "layers": list(reach.layers),
            **{name: [[_plain_number(value) for value in row] for row in tables[name].columns.matrix().tolist()]
               for name in ("gain", "reach")},
            "lost": [{"kind": one.kind, "layer": one.layer, "first": one.first, "last": one.last, "times": one.times}
                     for one in lost],
        }, ensure_ascii=False))  # fmt: skip
        return
    places = sorted({round(place * (len(steps) - 1) / max(SHOWN - 1, 1)) for place in range(SHOWN)})
    rows = [["relative gradient norm at step", *(f"{steps[place]}" for place in places)]]
    for layer, values in zip(reversed(reach.layers), reversed(reach.columns.matrix().tolist()), strict=True):
        rows.append([cli.printable(layer), *(_ratio_text(values[place]) for place in places)])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for name, *cells in rows:
        told = [f"{cell:>{width}}" for cell, width in zip(cells, widths[1:], strict=True)]
        print("  ".join([f"{name:<{widths[0]}}", *told]))
    for one in lost:
        print(cli.printable(one.text))
    if not lost:
        print(f"No layer vanishes or explodes at any of {len(steps)} measured steps.")


def _ratio_text(value: float) -> str:
    return "-" if math.isnan(value) else "not finite" if math.isinf(value) else f"{value:.2g}"


def _plain_number(value: float) -> float | str | None:
    return None if math.isnan(value) else "inf" if math.isinf(value) else value


def folder_of(project: Path) -> Path:
    """Return the run folder of a project. Raises CommandError if there is no such project."""
    from app import cli
    from app.runs import store

    if project.is_dir():
        inside = project / "runs"
        return inside if inside.is_dir() else project
    if not project.is_file():
        raise cli.CommandError(f"{project}: no such project or folder")
    return store.runs_beside(project)


def _row(kept: Kept) -> tuple[str, ...]:
    record = kept.record
    figures = record.summary
    return (
        record.title, record.began[:16].replace("T", " "), kept.state,
        f"{figures.epochs}/{record.epochs}", f"{figures.steps}",
        _loss(figures.val_loss), _loss(figures.best_loss), _share(figures.val_accuracy), _share(figures.best_accuracy),
        f"{figures.seconds:.1f} s",
    )  # fmt: skip


def _loss(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.2%}"


def _plain(kept: Kept) -> dict[str, Any]:
    import msgspec

    told: dict[str, Any] = msgspec.to_builtins(kept.record)
    return {"folder": str(kept.folder), **told, "state": kept.state}
