"""`tapedeck runs`: list the stored runs of a project or a folder."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.cli import arguments

if TYPE_CHECKING:
    pass


def add(commands: Any) -> None:
    """Add the command to the parser."""
    runs = commands.add_parser("runs", help="list the runs stored beside a project")
    runs.add_argument("project", type=Path, help="a project, or a folder of runs")
    arguments.add(runs, "--json", "--at")
    runs.add_argument(
        "--filter",
        default="",
        metavar="WORDS",
        help='list only runs that contain the words, or compare: "lr>0.001 tags:baseline best_accuracy>=95%%"',
    )
    runs.add_argument(
        "--sort", metavar="COLUMN", help="sort by a column (default: newest first)"
    )
    runs.add_argument(
        "--descending", action="store_true", help="sort the largest value first"
    )
    runs.add_argument(
        "--run",
        metavar="NAME",
        help="run for --name, --note, --tags, --tensorboard and --gains, by number or name (default: the newest)",
    )
    runs.add_argument(
        "--name",
        dest="new_name",
        metavar="TEXT",
        help='name a run; "" restores its number',
    )
    runs.add_argument("--note", metavar="TEXT", help="write a note on a run")
    runs.add_argument(
        "--tags", metavar="A,B", help="set the tags of a run, separated by commas"
    )
    runs.add_argument(
        "--tensorboard",
        type=Path,
        metavar="DIR",
        help="write a run as TensorBoard event files",
    )
    runs.add_argument(
        "--gains",
        action="store_true",
        help=(
            "relative gradient norm of each layer over the steps of a run, and the first layer whose gradient "
            "vanishes or explodes"
        ),
    )
    arguments.add(runs, "--data", "--trust")
    runs.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Carry the command out."""
    from app.features.runs import cli

    return cli.run(options)
