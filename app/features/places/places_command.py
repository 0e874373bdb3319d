"""`tapedeck places`: machines behind ssh, and queues, on which scripts run."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from app.cli import arguments

WORDS = """
A place is a machine that ssh reaches without a question, and a command that gives a Python with torch there. Then
`tapedeck run --on NAME train.py` runs a script there, and `tapedeck NAME:path/frames.jsonl` watches one. ssh is the
system's, with your ~/.ssh/config. What watches a script is sent there, into ~/.cache/tapedeck; nothing is installed.
With --slurm, scripts are jobs of the SLURM queue there, or of that of this machine without --ssh.
"""


def add(commands: Any) -> argparse.ArgumentParser:
    """Add the command to the parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "places", help="the machines that scripts run on", description=WORDS
    )
    parser.add_argument(
        "action",
        nargs="?",
        default="list",
        choices=("list", "add", "check", "remove"),
        help="what to do (list)",
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="a place")
    parser.add_argument(
        "--ssh", metavar="ALIAS", help="add: a Host of ~/.ssh/config, or user@host"
    )
    parser.add_argument(
        "--slurm",
        type=Path,
        metavar="TEMPLATE",
        help="add: the sbatch script of its jobs, whose @COMMAND@ is what they run; a file that is not there is "
        "written, to be edited",
    )
    parser.add_argument(
        "--python",
        metavar="COMMAND",
        help="add: what gives a Python there, for its shell: ~/env/bin/python, or 'conda run -n x --live-stream "
        "python' (python3)",
    )
    arguments.add(parser, "--json")
    parser.set_defaults(command=run, anywhere=True)
    return parser


def run(options: argparse.Namespace) -> int:
    """Carry the command out."""
    from app.features.places.cli import places

    return places.run(options)
