"""`tapedeck attribute`: contribution of each input value to a score, computed by captum."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from app.features.interpret.cli import options
from app.features.interpret.values import INTEGRATED_GRADIENTS, METHODS

DETAILS = """
The baseline of integrated gradients is zero, for token ids one token everywhere. Their sum is verified against the
difference of the scores: the command exits with 1 if it is off by more than 1 %. Token ids are attributed by their
embedding.
"""


def add(commands: Any) -> argparse.ArgumentParser:
    """Add the command to the parser."""

    parser: argparse.ArgumentParser = commands.add_parser(
        "attribute",
        help="saliency, integrated gradients or Grad-CAM of samples",
        description=options.INTERPRETED + DETAILS,
    )
    options.add_to(parser, several=True)
    parser.add_argument(
        "--method",
        choices=METHODS,
        default=INTEGRATED_GRADIENTS,
        help="(integrated-gradients)",
    )
    parser.add_argument(
        "--target",
        type=int,
        metavar="CLASS",
        help="number of the class or output to explain (the predicted one)",
    )
    parser.add_argument(
        "--layer",
        default="",
        metavar="PATH",
        help="layer for Grad-CAM (default: the last whose output is N×C×H×W)",
    )
    parser.add_argument(
        "--argument",
        type=int,
        default=0,
        metavar="N",
        help="number of the input tensor, from 0 (0)",
    )
    parser.add_argument(
        "--out", type=Path, help="file of attributions ending in .json, .npz or .png"
    )
    parser.set_defaults(command=run)
    return parser


def run(chosen: argparse.Namespace) -> int:
    """Carry the command out."""
    from app.features.interpret.cli import attribute

    return attribute.run(chosen)
