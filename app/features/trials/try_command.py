"""`tapedeck try`: a dry run on synthetic data, the learning rate finder, or the memory or profile of a step."""

from __future__ import annotations

import argparse
from typing import Any

from app.cli import arguments


def add(commands: Any) -> argparse.ArgumentParser:
    """Add the command to the parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "try",
        help="dry run: two steps on synthetic data, with shapes and time per step; or find a learning rate, or measure "
        "the memory or the time of a step",
    )
    arguments.add_project(parser)
    parser.add_argument(
        "--find-rate",
        action="store_true",
        help=(
            "learning rate finder: train on a few real batches with an increasing rate, and report where the loss "
            "falls most steeply"
        ),
    )
    parser.add_argument(
        "--batches",
        type=int,
        default=100,
        metavar="N",
        help="batches of the range test (100)",
    )
    parser.add_argument(
        "--memory",
        action="store_true",
        help="measure the memory of a step by layer: parameters, gradients, optimizer state and activations",
    )
    parser.add_argument(
        "--profile",
        nargs="?",
        const="",
        metavar="TRACE",
        help="profile a step by operation (torch.profiler); TRACE is a JSON file for ui.perfetto.dev to write",
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
    from app.features.trials import cli

    return cli.run(options)
