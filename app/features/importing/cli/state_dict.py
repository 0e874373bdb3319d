"""`tapedeck import FILE.pt`: show a state_dict as a table, compare it with a project by key, and load it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from app.cli import console, files, nets
from app.project import file
from app.project.weights import start_weights, state_dict_diff, state_dicts
from app.project.weights.state_dict_diff import KINDS

if TYPE_CHECKING:
    from app.project.weights.state_dict_diff import Diff
    from app.project.weights.state_dicts import StateDict

MARKS = {"same": "=", "dtype": "~", "shape": "!", "missing": "-", "unexpected": "+"}


def run(options: argparse.Namespace) -> int:
    """Print the table; with --into also the comparison, and load the requested tensors."""
    if (
        options.out
        or options.args != "{}"
        or options.input
        or options.keep_weights
        or options.pretrained
    ):
        raise console.CommandError(
            f"{options.source} contains weights but no network, so no project can be "
            "created from it; --into P compares them with the project P, and with "
            "--strict or --partial P starts from them"
        )
    if (options.strict or options.partial) and options.into is None:
        raise console.CommandError(
            "pass --into P, the project that the weights are for"
        )
    state = state_dicts.read(Path(options.source))
    for note in state.notes:
        print(console.printable(note))
    if options.into is None:
        print(
            *map(console.printable, state_dict_diff.table(state.infos).splitlines()),
            sep="\n",
        )
        return 0
    return _into(options, state)


def _into(options: argparse.Namespace, state: StateDict) -> int:
    path: Path = options.into
    digest = files.digest(path)
    project = nets.read(argparse.Namespace(project=path, trust=options.trust))
    analysis = nets.sound(file.with_start(project, None), alone=True)
    ours = state_dicts.net_infos(analysis.source)
    comparison = state_dict_diff.diff(state.infos, ours)
    offers = state_dict_diff.suggestions(state.infos, ours)
    if turned := state_dict_diff.transposed(state.infos, ours):
        print(console.printable(turned))
    if options.suggested and offers:
        comparison = state_dict_diff.diff(state.infos, ours, offers[-1].names)
    _print(comparison)
    for offer in offers:
        remark = (
            "followed"
            if options.suggested
            else "a suggestion; apply it with --suggested"
        )
        print(console.printable(f"{offer.text} ({remark})"))
    print(f"{path}: {comparison.counts_text()}")
    if not (options.strict or options.partial):
        return 0 if comparison.strict else 1
    if options.strict and not comparison.strict:
        raise console.CommandError(
            f"{path} was not changed: not every key matches; --partial loads those that do",
            1,
        )
    if not comparison.fitting:
        raise console.CommandError(
            f"{path} was not changed: no key of {state.path.name} matches", 1
        )
    start = start_weights.chosen(state, comparison)
    with console.writing(path):
        backup = file.write(file.with_start(project, start), path, digest)
    files.note_backup(path, backup)
    files.note_open(path)
    print(
        f"{path} starts from {len(comparison.fitting):,} of {len(ours):,} tensors of {state.path.name}"
    )
    return 0


def _print(comparison: Diff) -> None:
    """Print one line per key: a mark, the key, its tensor in the file and in the net."""
    wide = max(len(row.key) for row in comparison.rows) if comparison.rows else 0
    for row in comparison.rows:
        both = (
            f"{row.theirs}  ->  {row.ours}"
            if row.theirs and row.ours and row.theirs != row.ours
            else ""
        )
        tensor_text = both or str(row.ours or row.theirs)
        other = f"  (as {row.source})" if row.source not in ("", row.key) else ""
        print(
            console.printable(
                f"{MARKS[row.kind]} {row.key:<{wide}}  {tensor_text}{other}"
            )
        )
    print("  ".join(f"{mark} {KINDS[kind]}" for kind, mark in MARKS.items()))
