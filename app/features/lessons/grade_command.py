"""`tapedeck grade`: the verdicts on a folder of hand-ins, by the goals of a lesson."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from app.cli import arguments

WORDS = """
Hand-ins are .tape files and pictures that carry one, anywhere in the folder, also in .zip files and under any name.
Each is graded in a process of its own, with limits of time and memory; code of a hand-in never runs. Goals of the net
are measured, those of a run and of how it ends are trained with the settings of the hand-in, those of the tape and of
findings are measured on a batch that is captured for it, the memory of a step is estimated. What was done in the window
(the tape was played, gradcheck or a snippet ran, runs were counted or split between processes), and what a goal marked
"once" asks of an earlier state, is taken from the record in the hand-in, which somebody could have written by hand:
"evidence" says of each goal "measured" or "from the record". A record that the net contradicts does not count. Ends
with 0, or with 2 if something could not be read.
"""


def add(commands: Any) -> argparse.ArgumentParser:
    """Add the command to the parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "grade", help="grade a folder of hand-ins by a lesson", description=WORDS
    )
    parser.add_argument(
        "lesson", metavar="LESSON", help="a lesson of the program, or the folder of one"
    )
    parser.add_argument("folder", metavar="FOLDER", type=Path)
    parser.add_argument(
        "--seconds",
        type=arguments.positive,
        default=120,
        metavar="N",
        help="of each hand-in, at most (%(default)s)",
    )
    parser.add_argument(
        "--memory",
        type=arguments.positive,
        default=4096,
        metavar="MIB",
        help="of each hand-in, at most (%(default)s MiB)",
    )
    form = parser.add_mutually_exclusive_group()
    arguments.add(form, "--json")
    form.add_argument("--csv", action="store_true", help="a row a hand-in")
    form.add_argument(
        "--gradescope",
        action="store_true",
        help="results.json of Gradescope; of one hand-in",
    )
    parser.set_defaults(command=run)
    return parser


def run(options: argparse.Namespace) -> int:
    """Carry the command out."""
    from app.features.lessons import cli

    return cli.run(options)
