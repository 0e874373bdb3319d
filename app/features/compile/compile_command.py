"""`tapedeck compile`: graph breaks and recompiles of torch.compile, and the time of a compiled call."""

from __future__ import annotations

import argparse
from typing import Any

from app.cli import arguments

WORDS = """
Compiles a project's net, or a model, and calls it: twice with its inputs, with two other batch sizes, and twice with
each --also. Every graph break is named with the module, the line, the reason and a cure, and every recompile with the
guard that failed, what it held for and what was met. That the first other batch size is compiled too is not counted:
torch takes any from then on. Breaks and recompiles need no C++ compiler; the compiled time is Inductor's, which does. A
call is the forward pass in eval mode, with --train forward and backward in train mode. Exit status 1 if there are
breaks or recompiles.
"""


def add(commands: Any) -> argparse.ArgumentParser:
    """Add the command to the parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "compile",
        help="graph breaks and recompiles of torch.compile with line and cure, and what compiling gains",
        description=WORDS,
    )
    arguments.add_project(parser)
    arguments.add(parser, *arguments.MODEL, "--on", "--data")
    parser.add_argument(
        "--also",
        action="append",
        nargs="+",
        default=[],
        metavar="[NAME=]4x3x32x32",
        help="the inputs of a further call, as --input describes them; may be repeated",
    )
    parser.add_argument(
        "--code",
        action="store_true",
        help="print the code that Inductor generates too, of forward and backward of each graph",
    )
    arguments.add_first_batch(parser)
    arguments.add(parser, "--train", "--seed", "--timeout", "--json", "--trust", "--at")
    parser.set_defaults(command=run)
    return parser


def run(options: argparse.Namespace) -> int:
    """Carry the command out."""
    from app.features.compile import cli

    return cli.run(options)
