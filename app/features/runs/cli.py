"""`tapedeck runs`: list the stored runs of a project or a folder, annotate and export them."""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING

from app.cli import console
from app.cli.run_table import folder_of, listed, plain, print_table
from app.project import custom_layers
from app.runs import list_columns, store
from app.runs.record import RunError
from app.training.monitoring.gradient_health import lost_over

if TYPE_CHECKING:
    from app.runs.store import Kept

SHOWN = 6  # of the steps that were measured, evenly spread, where they are printed


def run(options: argparse.Namespace) -> int:
    """List the runs, or edit or export one of them."""
    folder = folder_of(options.project)
    stored_runs = store.listed(folder)
    if options.tensorboard:
        print(_exported(options, stored_runs))
        return 0
    if options.gains:
        _gains(options, stored_runs)
        return 0
    if any(
        setting is not None
        for setting in (options.new_name, options.note, options.tags)
    ):
        _annotate(options, stored_runs)
        stored_runs = store.listed(folder)
    if not stored_runs:
        if not options.json:
            print(f"{options.project}: no runs are stored")
        return 0
    shown = _chosen(options, stored_runs)
    if options.json:
        for stored_run in shown:
            print(json.dumps(plain(stored_run), ensure_ascii=False))
        return 0
    if not shown:
        print(
            f"{options.project}: none of {len(stored_runs)} runs has {options.filter}"
        )
        return 0
    print_table(shown)
    return 0


def _annotate(options: argparse.Namespace, stored_runs: list[Kept]) -> None:
    """Change the name, the note or the tags of the requested run."""
    tags = None if options.tags is None else options.tags.split(",")
    stored_run = _requested_run(options, stored_runs)
    with console.writing(stored_run.folder):
        store.annotate(stored_run, name=options.new_name, note=options.note, tags=tags)


def _chosen(options: argparse.Namespace, stored_runs: list[Kept]) -> list[Kept]:
    """Return the runs that the filter takes, sorted as requested."""
    takes = list_columns.matcher(options.filter)
    chosen = [stored_run for stored_run in stored_runs if takes(listed(stored_run))]
    if options.sort:
        column = list_columns.named(options.sort)
        chosen = list_columns.ordered(chosen, column, options.descending, listed)
    return chosen


def _exported(options: argparse.Namespace, stored_runs: list[Kept]) -> Path:
    """Export the requested run as event files; return their folder."""
    # To list runs takes no torch, whose import is most of what a command takes.
    from app.cli import nets
    from app.preflight import preflight
    from app.runs import tensorboard

    stored_run = _requested_run(options, stored_runs)
    project = store.project_of(stored_run)
    custom_layers.admit(project, options.trust)
    job = preflight.job(
        project, nets.sound(project), str(options.data) if options.data else None
    )
    with console.writing(options.tensorboard):
        return tensorboard.export(stored_run, job, options.tensorboard)


def _requested_run(options: argparse.Namespace, stored_runs: list[Kept]) -> Kept:
    """Return the requested run. Raises RunError."""
    if not stored_runs:
        raise RunError(f"{options.project}: no runs are stored")
    return (
        store.find(stored_runs[0].folder.parent, options.run)
        if options.run
        else stored_runs[0]
    )


def _gains(options: argparse.Namespace, stored_runs: list[Kept]) -> None:
    """Print the relative gradient norm of each layer, last layer first: one column per step."""
    stored_run = _requested_run(options, stored_runs)
    tables = store.history_of(stored_run).seen.tables
    reach, steps = tables["reach"], [int(step) for step in tables["reach"].steps]
    if not steps:
        raise console.CommandError(
            f"{stored_run.record.title}: no gains were measured in this run", 1
        )
    lost = lost_over(reach)
    if options.json:
        print(
            json.dumps(
                {
                    "run": stored_run.record.title,
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
                            "kind": entry.kind,
                            "layer": entry.layer,
                            "first": entry.first,
                            "last": entry.last,
                            "times": entry.times,
                        }
                        for entry in lost
                    ],
                },
                ensure_ascii=False,
            )
        )
        return
    indices = sorted(
        {
            round(number * (len(steps) - 1) / max(SHOWN - 1, 1))
            for number in range(SHOWN)
        }
    )
    rows = [
        ["relative gradient norm at step", *(f"{steps[index]}" for index in indices)]
    ]
    for layer, values in zip(
        reversed(reach.layers), reversed(reach.columns.matrix().tolist()), strict=True
    ):
        rows.append(
            [
                console.printable(layer),
                *(_ratio_text(values[index]) for index in indices),
            ]
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for name, *cells in rows:
        padded = [
            f"{cell:>{width}}" for cell, width in zip(cells, widths[1:], strict=True)
        ]
        print("  ".join([f"{name:<{widths[0]}}", *padded]))
    for finding in lost:
        print(console.printable(finding.text))
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
