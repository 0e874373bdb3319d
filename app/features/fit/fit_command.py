"""`tapedeck fit`: whether a training step fits into a limit of memory, and the settings with which it does."""

from __future__ import annotations

import argparse
import re
from typing import Any

from app.cli import arguments

UNITS = {"": 1, "k": 10, "m": 20, "g": 30, "t": 40}
WORDS = """
Measures a step on synthetic data: its peak by kind, and the layer whose operation makes it. Then settings that take
less are measured by a step of each: the batch in parts whose gradients are accumulated, blocks recomputed in backward,
bfloat16, an optimizer that goes parameter by parameter. Three plans come of it: the fastest that fits, the fastest
whose gradients stay those of the batch, and the one that takes least. On the CPU the bytes are counted at torch's
operations. Exit status 1 if nothing that was measured fits.
"""


def memory(text: str) -> int:
    """Parse bytes, such as 8GiB, 512M or 1e9; units are binary."""
    match = re.fullmatch(
        r"([0-9.]+(?:e[0-9]+)?)\s*([kmgt]?)(?:i?b)?", text.strip().lower()
    )
    try:
        if match is None:
            raise ValueError
        size = float(match[1]) * (1 << UNITS[match[2]] if match[2] else 1)
        if not 1 <= size < 2**63:
            raise ValueError
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(
            f"{text:.40} is no amount of memory; write 8GiB, 512MiB or a number of bytes"
        ) from None
    return int(size)


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
    )
    parser.set_defaults(command=run, epochs=None, seed=None)
    return parser


def run(options: argparse.Namespace) -> int:
    """Carry the command out."""
    from app.features.fit import cli

    return cli.run(options)
