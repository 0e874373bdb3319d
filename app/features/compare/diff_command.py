"""`tapedeck diff`: where two models, runs or checkpoints part, or one model in two modes."""

from __future__ import annotations

import argparse
from typing import Any

from app.cli import arguments

WORDS = """
A and B are projects (net.tape), models as `tapedeck draw` takes them (file.py:Class, torchvision:resnet18), runs
(net.tape@3, net.tape@NAME/best, a folder of a run, or of `train --out` with one run, OUT@2 with several), steps of
runs (net.tape@3/4000, FOLDER@4000), which are recomputed where no checkpoint has them, or files of weights;
SOURCE@weights.pt is a model with weights. Of two files of a graph, ONNX or exported programs (.pt2), operations,
sizes, attributes and stored weights are compared, and nothing is run. Of all others the modules are matched, both run
on the same batch with the same weights and seed, forward and backward, and the first layer that adds more than
rounding explains is named, with its line in each. With --modes A is compared with itself, such as in float32 and in
bfloat16. Exit code 0: nothing differs beyond rounding, 1: something does, 2: they could not be compared. Your own
files run once they are trusted, by --trust or in the window, until one changes, in a separate process; else the exit
code is 1.
"""


SECONDS = 300.0


def add(commands: Any) -> argparse.ArgumentParser:
    """Add the command to the parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "diff",
        help="find the first layer at which two models, runs or checkpoints differ",
        description=WORDS,
    )
    parser.add_argument("a", metavar="A")
    parser.add_argument("b", metavar="B", nargs="?")
    arguments.add(parser, *arguments.MODEL)
    parser.add_argument(
        "--args-b", metavar="JSON", help="arguments of B's constructor, if different"
    )
    parser.add_argument("--weights-a", metavar="FILE", help="weights of A, as A@FILE")
    parser.add_argument("--weights-b", metavar="FILE", help="weights of B, as B@FILE")
    parser.add_argument(
        "--modes",
        nargs=2,
        metavar=("MODE", "MODE"),
        help="compare A with itself: float32 bfloat16, "
        "cpu cuda:0, eval train, eager compiled",
    )
    parser.add_argument(
        "--python",
        metavar="FILE",
        help="compare A with itself in another Python interpreter that has "
        "torch, such as one of an older version: /path/to/env/bin/python",
    )
    mode = parser.add_mutually_exclusive_group()
    arguments.add(
        mode, "--train", help="run in train mode only (eval mode, then train mode)"
    )
    arguments.add(mode, "--eval", help="run in eval mode only")
    parser.add_argument(
        "--structure",
        action="store_true",
        help="compare modules and settings only; run nothing",
    )
    parser.add_argument(
        "--batch",
        type=arguments.positive,
        default=2,
        help="samples of a project's random batch (2)",
    )
    arguments.add(parser, "--seed", "--data", "--trust", "--json", "--at")
    arguments.add(parser, "--timeout", default=SECONDS)
    parser.set_defaults(command=run)
    return parser


def run(options: argparse.Namespace) -> int:
    """Carry the command out."""
    from app.features.compare import cli

    return cli.run(options)
