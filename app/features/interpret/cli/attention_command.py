"""`tapedeck attention`: the attention maps of every head, for one sample."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from app.features.interpret.cli import options

DETAILS = """
Finds every scaled-dot-product attention, fused or written out as a softmax between two matmuls. Its weights are
computed separately and verified: multiplied by the values they must give the output of the same call, up to rounding.
Exits with 1 if they do not, or if there is no attention.
"""


def add(commands: Any) -> argparse.ArgumentParser:
    """Add the command to the parser."""

    parser: argparse.ArgumentParser = commands.add_parser(
        "attention",
        help="attention maps of every head, for one sample",
        description=options.INTERPRETED + DETAILS,
    )
    options.add_to(parser, several=False)
    parser.add_argument(
        "--layer",
        action="append",
        metavar="PATH",
        help="maps of this module only; may be repeated",
    )
    parser.add_argument(
        "--out", type=Path, help="file of maps ending in .json, .npz or .png"
    )
    parser.set_defaults(command=run)
    return parser


def run(chosen: argparse.Namespace) -> int:
    """Carry the command out."""
    from app.features.interpret.cli import attention

    return attention.run(chosen)
