"""`tapedeck revisit`: recompute a step of a stored run, verify it, and write its graph."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.cli import arguments

if TYPE_CHECKING:
    pass


WORDS = """
RUN is the folder of a run, or a project, or a folder of runs, with --run its name or number (else the newest); or that
name or number only, of a run beside a project of this folder. The run continues from its nearest checkpoint before the
step, or from its start; every step on the way is verified by the recorded hashes. Exit code 1 if they differ,
2 if the step cannot be recomputed.
"""


def add(commands: Any) -> argparse.ArgumentParser:
    """Add the command to the parser."""

    summary = "recompute a step of a stored run, verify it by its hashes, and write the step's autograd graph"
    parser: argparse.ArgumentParser = commands.add_parser(
        "revisit", help=summary, description=WORDS
    )
    parser.add_argument("project", metavar="RUN", type=Path)
    parser.add_argument(
        "--run",
        metavar="NAME",
        help="the run of a project, by number or name (default: the newest)",
    )
    choice = parser.add_mutually_exclusive_group(required=True)
    choice.add_argument(
        "--step", type=arguments.positive, metavar="N", help="the step to recompute"
    )
    choice.add_argument(
        "--first",
        metavar="CONDITION",
        help="find the first step at which this held: norm(LAYER) > 10, dead(LAYER) >= 0.9, weight(LAYER) > 3, loss > "
        "5; without (LAYER) of any layer",
    )
    arguments.add(parser, "--json", "--at")
    arguments.add_graph_output(parser, carries=False)
    arguments.add(parser, "--data", "--trust")
    parser.set_defaults(command=run)
    return parser


def run(options: argparse.Namespace) -> int:
    """Carry the command out."""
    from app.features.revisit import cli

    return cli.run(options)
