"""`tapedeck fit`: whether a training step fits into a limit of memory, and the settings with which it does."""

from __future__ import annotations

import argparse
import os
from typing import Any

from app.cli import arguments
from app.features.fit.values import memory_limit

WORDS = """
Measures a step on synthetic data: its peak by kind, and the layer whose operation makes it. Then settings that take
less are measured by a step of each: the batch in parts whose gradients are accumulated, blocks recomputed in backward,
on a device what is saved for backward kept on the CPU, bfloat16, an optimizer that goes parameter by parameter. Three
plans come of it: the fastest that fits, the fastest whose gradients stay those of the batch, and the one that takes
least. On the CPU the data of a run are not counted. Exit status 1 if nothing that was measured fits.
"""


def memory(text: str) -> int:
    """Parse the limit."""
    try:
        return memory_limit(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def add(commands: Any) -> argparse.ArgumentParser:
    """Add the command to the parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "fit",
        help="whether a training step fits into a limit of memory, and with which settings",
        description=WORDS,
    )
    arguments.add_project(parser)
    parser.add_argument(
        "--memory",
        type=memory,
        metavar="8GiB",
        help="the limit; without it the memory of the device",
    )
    arguments.add(
        parser,
        "--device",
        "--data",
        "--json",
        *arguments.MODEL,
        *arguments.SETTINGS,
        "--trust",
        "--at",
    )
    parser.set_defaults(command=run, epochs=None, seed=None)
    return parser


def run(options: argparse.Namespace) -> int:
    """Carry the command out."""
    # Else torch's profiler says on stderr when it begins and ends.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    from app.features.fit import cli

    return cli.run(options)
