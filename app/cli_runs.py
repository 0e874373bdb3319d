"""`tapedeck runs`: the runs that are kept beside a project, or in a folder of runs."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from app.runs.store import Kept

HEAD = ("run", "began", "state", "epochs", "steps", "loss", "best", "accuracy", "best", "time")


def add(commands: Any) -> None:
    """Add the command to the parser."""
    runs = commands.add_parser("runs", help="list the runs that are kept beside a project")
    runs.add_argument("project", type=Path, help="a project, or a folder of runs")
    runs.add_argument("--json", action="store_true", help="a JSON line a run")
    runs.add_argument("--run", metavar="NAME", help="the run to export, by its number or name; the newest by default")
    runs.add_argument("--tensorboard", type=Path, metavar="DIR", help="write a run as TensorBoard event files")
    runs.add_argument("--data", type=Path, help="folder of downloaded data sets")
    runs.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Print a line a run, the newest first."""
    from app.runs import store

    found = store.listed(folder_of(options.project))
    if options.tensorboard:
        print(_exported(options, found))
        return 0
    if options.json:
        for kept in found:
            print(json.dumps(_plain(kept), ensure_ascii=False))
        return 0
    if not found:
        print(f"{options.project}: no runs are kept")
        return 0
    from app.cli import printable

    rows = [HEAD, *(tuple(map(printable, _row(kept))) for kept in found)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD))]
    for row in rows:
        left, right = row[:3], row[3:]
        cells = [f"{text:<{width}}" for text, width in zip(left, widths, strict=False)]
        cells += [f"{text:>{width}}" for text, width in zip(right, widths[3:], strict=True)]
        print("  ".join(cells).rstrip())
    return 0


def _exported(options: argparse.Namespace, found: list[Kept]) -> Path:
    """Write the run that was asked for as event files; returns their folder."""
    from app import cli, own_layers, preflight
    from app.data.sources import DataError
    from app.runs import store, tensorboard
    from app.runs.record import RunError

    try:
        if not found:
            raise RunError(f"{options.project}: no runs are kept")
        kept = store.find(found[0].folder.parent, options.run) if options.run else found[0]
        project = store.project_of(kept)
        own_layers.admit(project, False)
        job = preflight.job(project, cli.sound(project), str(options.data) if options.data else None)
        with cli.writing(options.tensorboard):
            return tensorboard.export(kept, job, options.tensorboard)
    except (RunError, DataError) as error:
        raise cli.Refused(str(error)) from error


def folder_of(project: Path) -> Path:
    """The folder of the runs of a project. Raises Refused if there is no such project."""
    from app import cli
    from app.runs import store

    if project.is_dir():
        inside = project / "runs"
        return inside if inside.is_dir() else project
    if not project.is_file():
        raise cli.Refused(f"{project}: there is no such project and no such folder")
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
