"""`tapedeck runs`: list the stored runs of a project or a folder."""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from app.cli import console, nets
from app.preflight import preflight
from app.project import custom_layers
from app.runs import list_columns, store, tensorboard
from app.runs.list_columns import ALL, COLUMNS, ListedRun
from app.runs.record import RunError
from app.training.monitoring.gradient_health import lost_over

if TYPE_CHECKING:
    from app.runs.store import Kept

SHOWN = 6  # of the steps that were measured, evenly spread, where they are printed
OMITTED = (
    "note",
    "loss",
)  # columns that are not in the table: notes have lines of their own


def run(options: argparse.Namespace) -> int:
    """List the runs, or edit or export one of them."""
    folder = folder_of(options.project)
    found = store.listed(folder)
    if options.tensorboard:
        print(_exported(options, found))
        return 0
    if options.gains:
        _gains(options, found)
        return 0
    if any(
        given is not None for given in (options.new_name, options.note, options.tags)
    ):
        _annotate(options, found)
        found = store.listed(folder)
    if not found:
        if not options.json:
            print(f"{options.project}: no runs are stored")
        return 0
    shown = _chosen(options, found)
    if options.json:
        for kept in shown:
            print(json.dumps(plain(kept), ensure_ascii=False))
        return 0
    if not shown:
        print(f"{options.project}: none of {len(found)} runs has {options.filter}")
        return 0
    print_table(shown)
    return 0


def _annotate(options: argparse.Namespace, found: list[Kept]) -> None:
    """Change the name, the note or the tags of the requested run."""
    tags = None if options.tags is None else options.tags.split(",")
    kept = _requested_run(options, found)
    with console.writing(kept.folder):
        store.annotate(kept, name=options.new_name, note=options.note, tags=tags)


def _chosen(options: argparse.Namespace, found: list[Kept]) -> list[Kept]:
    """Return the runs that the filter takes, sorted as requested."""
    takes = list_columns.matcher(options.filter)
    chosen = [kept for kept in found if takes(listed(kept))]
    if options.sort:
        column = list_columns.named(options.sort)
        chosen = list_columns.ordered(chosen, column, options.descending, listed)
    return chosen


def print_table(shown: list[Kept]) -> None:
    """Print a line per run; columns that no run has a value for are left out."""
    runs = [listed(kept) for kept in shown]
    columns = [
        column
        for column in COLUMNS
        if column.key not in OMITTED
        and any(column.value(run) is not None for run in runs)
    ]
    rows = [[column.title.lower() for column in columns]]
    rows += [
        [console.printable(column.shown(run)) for column in columns] for run in runs
    ]
    widths = [max(len(row[at]) for row in rows) for at in range(len(columns))]
    for at, row in enumerate(rows):
        cells = zip(row, widths, columns, strict=True)
        print(
            "  ".join(
                f"{t:>{w}}" if column.number else f"{t:<{w}}" for t, w, column in cells
            ).rstrip()
        )
        if not at:
            continue
        kept = shown[at - 1]
        ending = kept.record.ending
        note, why = (
            kept.record.note,
            (ending.message or ending.note) if ending is not None else "",
        )
        for line in (
            *(part for part in note.splitlines() if part.strip()),
            why,
            *_surgeries(kept),
        ):
            if line:
                print(console.printable(f"    {line}"))


def listed(kept: Kept) -> ListedRun:
    return ListedRun(kept.record, kept.record.summary, kept.state)


def _surgeries(kept: Kept) -> list[str]:
    """Describe where the net of a run was edited."""
    return [f"after step {cut.step:,}: {cut.description}" for cut in kept.record.cuts]


def _exported(options: argparse.Namespace, found: list[Kept]) -> Path:
    """Export the requested run as event files; return their folder."""
    kept = _requested_run(options, found)
    project = store.project_of(kept)
    custom_layers.admit(project, options.trust)
    job = preflight.job(
        project, nets.sound(project), str(options.data) if options.data else None
    )
    with console.writing(options.tensorboard):
        return tensorboard.export(kept, job, options.tensorboard)


def _requested_run(options: argparse.Namespace, found: list[Kept]) -> Kept:
    """Return the requested run. Raises RunError."""
    if not found:
        raise RunError(f"{options.project}: no runs are stored")
    return store.find(found[0].folder.parent, options.run) if options.run else found[0]


def _gains(options: argparse.Namespace, found: list[Kept]) -> None:
    """Print the relative gradient norm of each layer, last layer first: one column per step."""
    kept = _requested_run(options, found)
    tables = store.history_of(kept).seen.tables
    reach, steps = tables["reach"], [int(step) for step in tables["reach"].steps]
    if not steps:
        raise console.CommandError(
            f"{kept.record.title}: no gains were measured in this run", 1
        )
    lost = lost_over(reach)
    if options.json:
        print(
            json.dumps(
                {
                    "run": kept.record.title,
                    "steps": steps,
                    "layers": list(reach.layers),
                    **{
                        name: [
                            [_plain_number(value) for value in row]
                            for row in tables[name].columns.matrix().tolist()
                        ]
                        for name in ("gain", "reach")
                    },
                    "lost": [
                        {
                            "kind": one.kind,
                            "layer": one.layer,
                            "first": one.first,
                            "last": one.last,
                            "times": one.times,
                        }
                        for one in lost
                    ],
                },
                ensure_ascii=False,
            )
        )
        return
    places = sorted(
        {round(place * (len(steps) - 1) / max(SHOWN - 1, 1)) for place in range(SHOWN)}
    )
    rows = [
        ["relative gradient norm at step", *(f"{steps[place]}" for place in places)]
    ]
    for layer, values in zip(
        reversed(reach.layers), reversed(reach.columns.matrix().tolist()), strict=True
    ):
        rows.append(
            [
                console.printable(layer),
                *(_ratio_text(values[place]) for place in places),
            ]
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for name, *cells in rows:
        told = [
            f"{cell:>{width}}" for cell, width in zip(cells, widths[1:], strict=True)
        ]
        print("  ".join([f"{name:<{widths[0]}}", *told]))
    for one in lost:
        print(console.printable(one.text))
    if not lost:
        at = (
            "the one measured step"
            if len(steps) == 1
            else f"any of {len(steps)} measured steps"
        )
        print(f"No layer vanishes or explodes at {at}.")


def _ratio_text(value: float) -> str:
    return (
        "-"
        if math.isnan(value)
        else "not finite"
        if math.isinf(value)
        else f"{value:.2g}"
    )


def _plain_number(value: float) -> float | str | None:
    return None if math.isnan(value) else "inf" if math.isinf(value) else value


def folder_of(project: Path) -> Path:
    """Return the run folder of a project. Raises CommandError if there is no such project."""
    if project.is_dir():
        inside = project / "runs"
        return inside if inside.is_dir() else project
    if not project.is_file():
        raise console.CommandError(f"{project}: no such project or folder")
    return store.runs_beside(project)


def plain(kept: Kept) -> dict[str, Any]:
    told: dict[str, Any] = msgspec.to_builtins(kept.record)
    run = listed(kept)
    columns = {column.key: column.value(run) for column in ALL}
    return {"folder": str(kept.folder), **told, "state": kept.state, "columns": columns}
