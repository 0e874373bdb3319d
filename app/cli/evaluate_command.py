"""`tapedeck evaluate`: evaluate a project's network with given weights or a checkpoint."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.cli import arguments

if TYPE_CHECKING:
    pass


def add(commands: Any) -> argparse.ArgumentParser:
    """Add the command to the parser."""

    evaluate: argparse.ArgumentParser = commands.add_parser(
        "evaluate", help="evaluate a network: loss, metrics and confusion matrix"
    )
    arguments.add_project(evaluate)
    arguments.add_weights(evaluate)
    evaluate.add_argument(
        "--augment",
        action="append",
        default=[],
        choices=("flip", "shift"),
        help="test-time augmentation of images; may be repeated",
    )
    arguments.add(evaluate, "--device", "--data")
    evaluate.add_argument(
        "--csv",
        type=Path,
        metavar="FILE",
        help="write a line per sample; its `row` counts the samples of all data that could be read",
    )
    arguments.add(evaluate, "--json")
    arguments.add(evaluate, *arguments.MODEL, *arguments.SETTINGS, "--trust")
    evaluate.set_defaults(command=run)
    return evaluate


def run(options: argparse.Namespace) -> int:
    """Carry the command out."""
    from app.cli import evaluate

    return evaluate.run(options)
