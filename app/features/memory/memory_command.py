"""`tapedeck memory`: what a snapshot of torch's allocator says."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from app.cli import arguments

WORDS = """
Reads a file that torch.cuda.memory._dump_snapshot wrote, and names the lines that allocated the memory of each device:
in use when it was taken, and at the most that was in use since the recording began. Failed allocations are named too.
Nothing of the file is run: one that holds anything but plain values is refused.
"""


def add(commands: Any) -> argparse.ArgumentParser:
    """Add the command to the parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "memory",
        help="the memory of a device by line of code, from a snapshot of torch's allocator",
        description=WORDS,
    )
    parser.add_argument("file", type=Path, metavar="FILE.pickle", help="the snapshot")
    arguments.add(parser, "--json")
    parser.set_defaults(command=run)
    return parser


def run(options: argparse.Namespace) -> int:
    """Carry the command out."""
    from app.features.memory import cli

    return cli.run(options)
