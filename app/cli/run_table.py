"""Stored runs as commands print them: a table, or plain data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from app.cli import console
from app.runs import store
from app.runs.list_columns import ALL, COLUMNS, ListedRun
from app.runs.store import Kept

OMITTED = (
    "note",
    "loss",
)  # columns that are not in the table: notes have lines of their own


def print_table(shown: list[Kept]) -> None:
    """Print a line per run; columns that no run has a value for are left out."""
    runs = [listed(shown_run) for shown_run in shown]
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
        stored_run = shown[at - 1]
        ending = stored_run.record.ending
        note, why = (
            stored_run.record.note,
            (ending.message or ending.note) if ending is not None else "",
        )
        for line in (
            *(note_line for note_line in note.splitlines() if note_line.strip()),
            why,
            *_surgeries(stored_run),
        ):
            if line:
                print(console.printable(f"    {line}"))


def listed(stored_run: Kept) -> ListedRun:
    return ListedRun(stored_run.record, stored_run.record.summary, stored_run.state)


def _surgeries(stored_run: Kept) -> list[str]:
    """Describe where the net of a run was edited."""
    return [
        f"after step {cut.step:,}: {cut.description}" for cut in stored_run.record.cuts
    ]


def plain(stored_run: Kept) -> dict[str, Any]:
    record: dict[str, Any] = msgspec.to_builtins(stored_run.record)
    run = listed(stored_run)
    columns = {column.key: column.value(run) for column in ALL}
    return {
        "folder": str(stored_run.folder),
        **record,
        "state": stored_run.state,
        "columns": columns,
    }


def folder_of(project: Path) -> Path:
    """Return the run folder of a project. Raises CommandError if there is no such project."""
    if project.is_dir():
        inside = project / "runs"
        return inside if inside.is_dir() else project
    if not project.is_file():
        raise console.CommandError(f"{project}: no such project or folder")
    return store.runs_beside(project)
