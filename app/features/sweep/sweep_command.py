"""`tapedeck sweep`: a search over settings and numbers of the drawing, trial after trial or several at once."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from app.cli import arguments
from app.features.sweep.values import PRUNERS, SAMPLERS, Search

WORDS = """
Each combination of the values becomes a run of the project, stored beside it with the tag sweep-N and its settings as
its name: the page Runs of the window and `tapedeck runs P --filter tags:sweep-N` compare them. What varies is
optimizer, a setting of the run (epochs, batch_size, seed, ...), a parameter of the optimizer (lr, momentum, ...) or a
number of the drawing, by the node's name (conv2.out_channels). Values are listed, or lie between bounds:
lr=1e-4..1e-1:log, conv2.out_channels=16..64:16. With --trials N Optuna chooses N of them; with --random N they are
drawn. Ctrl+C ends the runs in progress; --resume goes on, also after a kill. Needs Optuna: pip install
tapedeck-torch[sweeps].
"""


def add(commands: Any) -> argparse.ArgumentParser:
    """Add the command to the parser."""

    sweep: argparse.ArgumentParser = commands.add_parser(
        "sweep",
        help="search for the best settings of a project",
        description=WORDS,
    )
    arguments.add_project(sweep)
    sweep.add_argument(
        "--space",
        "--set",
        action="append",
        default=[],
        dest="settings",
        metavar="NAME=A,B,...|A..B[:log|:STEP]",
        help="values of a setting, or bounds; may be repeated",
    )
    count = sweep.add_mutually_exclusive_group()
    count.add_argument(
        "--trials", type=arguments.positive, metavar="N", help="N trials"
    )
    count.add_argument(
        "--random",
        type=arguments.positive,
        metavar="N",
        help="N trials with drawn values: --trials N --sampler random",
    )
    sweep.add_argument(
        "--sampler",
        choices=SAMPLERS,
        help="what chooses the values (with --trials tpe, else grid)",
    )
    sweep.add_argument(
        "--pruner", choices=PRUNERS, help="what ends bad trials early (none)"
    )
    sweep.add_argument(
        "--seeds",
        type=arguments.positive,
        metavar="N",
        help="train each trial with N seeds; its loss is their mean",
    )
    sweep.add_argument(
        "--jobs",
        type=arguments.positive,
        default=1,
        metavar="N",
        help="N trials at once, each in a process of its own (%(default)s)",
    )
    sweep.add_argument(
        "--resume",
        nargs="?",
        const="",
        metavar="sweep-N",
        help="go on with a sweep, the newest by default",
    )
    sweep.add_argument(
        "--script",
        type=Path,
        metavar="OUT.py",
        help="train nothing: write the search as a script that needs torch and Optuna alone",
    )
    arguments.add(sweep, "--seed", help="seed of the sampler (0)")
    arguments.add(sweep, "--device", "--data")
    sweep.add_argument(
        "--own-process", action="store_true", help="each run in a separate process"
    )
    arguments.add(sweep, "--json", "--trust", "--at", *arguments.DATA, *arguments.MODEL)
    sweep.set_defaults(command=run)
    return sweep


def run(options: argparse.Namespace) -> int:
    """Carry the command out. Raises SweepError without Optuna."""
    Search(()).check()
    from app.features.sweep import cli

    return cli.run(options)
