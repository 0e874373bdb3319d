"""`tapedeck draw`: a picture of any model, from one forward pass."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.cli import arguments

if TYPE_CHECKING:
    pass


WORDS = """
SOURCE is package.module:Class, module:factory(), file.py:Class, torchvision:resnet18, timm:NAME, hf:NAME_OR_FOLDER or
diffusers:Class. The model runs once with the inputs of --input or --example, with the first batch of --on DATA, else
with proposed ones, and what it called is drawn, with equal layers folded. If it raises, everything up to the call that
raised is drawn, that call in red, and the command exits with 1. Your own files run once they are trusted, by --trust or
in the window, until one of them changes, in a separate process.
"""


def add(commands: Any) -> argparse.ArgumentParser:
    """Add the command to the parser."""

    parser: argparse.ArgumentParser = commands.add_parser(
        "draw", help="draw any model from one forward pass", description=WORDS
    )
    arguments.add_source(parser)
    arguments.add_first_batch(parser, "--on", "--data")
    parser.add_argument(
        "--out",
        type=Path,
        required=True,
        help=f"output file ending in {', '.join(arguments.PICTURES)}",
    )
    arguments.add_paper(parser)
    parser.add_argument(
        "--depth",
        type=arguments.seed,
        metavar="N",
        help="open N levels of modules, 0 for the model as one box",
    )
    parser.add_argument(
        "--unfold",
        action="append",
        default=[],
        metavar="PATH",
        help="open this module and what is around it, beside --depth (1); * matches any: 'blocks.*.attention'",
    )
    parser.add_argument(
        "--unfolded",
        action="store_true",
        help="open every module, and draw every operation; "
        "otherwise as many levels are open as fit the size",
    )
    parser.add_argument(
        "--weights",
        metavar="LAYER",
        help="for hf:FOLDER: also describe the stored weights of a layer, reading only those",
    )
    arguments.add_numbers(parser)
    arguments.add(parser, "--timeout", "--at")
    parser.set_defaults(command=run)
    return parser


def run(options: argparse.Namespace) -> int:
    """Carry the command out."""
    from app.features.opened import cli

    return cli.run(options)
