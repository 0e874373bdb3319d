"""`tapedeck sweep`: run after run over a grid, or a random draw, of settings."""

from __future__ import annotations

import argparse
from typing import Any

from app.cli import arguments

WORDS = """
Each combination of the values becomes a run of the project, one after the other, stored beside it with the tag
sweep-N and its settings as its name: the page Runs of the window and `tapedeck runs P --filter tags:sweep-N` compare
them. A setting is optimizer, a setting of the run (epochs, batch_size, seed, ...) or a parameter of the optimizer (lr,
momentum, ...). With --random N each run draws a value of each setting, also between bounds: lr=1e-4:1e-1. Ctrl+C ends
the run in progress and the sweep.
"""


def add(commands: Any) -> argparse.ArgumentParser:
    """Add the command to the parser."""

    sweep: argparse.ArgumentParser = commands.add_parser(
        "sweep",
        help="train a project over a grid or a random draw of settings",
        description=WORDS,
    )
    arguments.add_project(sweep)
    sweep.add_argument(
        "--set",
        action="append",
        required=True,
        dest="settings",
        metavar="NAME=A,B,...",
        help="values of a setting; may be repeated",
    )
    sweep.add_argument(
        "--random",
        type=arguments.positive,
        metavar="N",
        help="N runs with drawn values, not the whole grid",
    )
    arguments.add(sweep, "--seed", help="seed of the draws of --random (0)")
    arguments.add(sweep, "--device", "--data")
    sweep.add_argument(
        "--own-process", action="store_true", help="each run in a separate process"
    )
    arguments.add(sweep, "--json", "--trust", *arguments.DATA, *arguments.MODEL)
    sweep.set_defaults(command=run)
    return sweep


def run(options: argparse.Namespace) -> int:
    """Carry the command out."""
    from app.features.sweep import cli

    return cli.run(options)
