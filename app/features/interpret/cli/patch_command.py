"""`tapedeck patch`: the loss with a head, a channel or a layer muted, or taken from another sample."""

from __future__ import annotations

import argparse
from typing import Any

from app.features.interpret.cli import options

DETAILS = """
PART is PATH, the output of a module; PATH:channel=5; or PATH:head=3, a head of the attention that the module computes.
PATH#2 is the second call of a module; without #, all calls are changed. All changes are made in one forward pass.
"""


def add(commands: Any) -> argparse.ArgumentParser:
    """Add the command to the parser."""

    parser: argparse.ArgumentParser = commands.add_parser(
        "patch",
        help="measure the loss with parts set to zero, or patched from another sample",
        description=options.INTERPRETED + DETAILS,
    )
    options.add_to(parser, several=True)
    parser.add_argument(
        "--mute",
        action="append",
        default=[],
        metavar="PART",
        help="replace its output by zeros; may be repeated",
    )
    parser.add_argument(
        "--take",
        action="append",
        default=[],
        metavar="PART",
        help="replace its output by that of sample --from; may be repeated",
    )
    parser.add_argument(
        "--from",
        type=int,
        dest="source",
        metavar="N",
        help="the sample that --take takes from",
    )
    parser.add_argument(
        "--axis",
        type=int,
        help="axis of channels, if not the usual one of the layer's type",
    )
    parser.set_defaults(command=run)
    return parser


def run(chosen: argparse.Namespace) -> int:
    """Carry the command out."""
    from app.features.interpret.cli import patch

    return patch.run(chosen)
