"""`tapedeck export`: code, weights, training script, other formats, and certificate."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.cli import arguments

if TYPE_CHECKING:
    pass


def add(commands: Any) -> argparse.ArgumentParser:
    """Add the command to the parser."""

    parser: argparse.ArgumentParser = commands.add_parser(
        "export", help="write a project's code, weights and training script"
    )
    arguments.add_project(parser)
    parser.add_argument(
        "--code", type=Path, help="the generated class as a Python file"
    )
    parser.add_argument(
        "--weights",
        type=Path,
        help=(
            "state_dict as .safetensors or .pt: the newest weights of a stored run of this network, else the start "
            "weights"
        ),
    )
    whose = parser.add_mutually_exclusive_group()
    whose.add_argument(
        "--start-weights",
        action="store_true",
        help="use the start weights, even if runs are stored",
    )
    whose.add_argument(
        "--best-weights",
        action="store_true",
        help="use the weights of the newest run that had the "
        "smallest validation loss, in place of its newest",
    )
    parser.add_argument("--script", type=Path, help="standalone training script")
    parser.add_argument(
        "--certify",
        action="store_true",
        help="run code and weights in a clean process and compare "
        "outputs and gradients; writes a certificate beside the code",
    )
    parser.add_argument(
        "--pt2",
        type=Path,
        help="export with torch.export (PT2), in eval mode; verified in a clean process",
    )
    parser.add_argument(
        "--drawing",
        type=Path,
        help=(
            "the network as a picture or as data, its blocks open where they are on the canvas: a file ending in "
            ".svg, .pdf, .png, .tex (TikZ), .dot or .json. An .svg or .png carries the project, and can be opened"
        ),
    )
    blocks = parser.add_mutually_exclusive_group()
    blocks.add_argument(
        "--folded", action="store_true", help="with --drawing: close all blocks"
    )
    blocks.add_argument(
        "--unfolded", action="store_true", help="with --drawing: open all blocks"
    )
    arguments.add_paper(parser, arranged=True, carries=True)
    arguments.add_numbers(parser)
    parser.add_argument(
        "--dynamic",
        action="append",
        default=[],
        metavar="NAME.AXIS",
        help="an axis of an input that the PT2 and ONNX files take in any size, such as tokens.1, checked with another "
        "size; may be repeated. The batch, axis 0, is open wherever it can be",
    )
    parser.add_argument(
        "--onnx",
        type=Path,
        help="export as ONNX, verified too (pip install tapedeck-torch[onnx])",
    )
    arguments.add(parser, *arguments.MODEL, *arguments.SETTINGS, "--trust")
    arguments.add_first_batch(parser)
    parser.set_defaults(command=run)
    return parser


def run(options: argparse.Namespace) -> int:
    """Carry the command out."""
    from app.features.export import cli

    return cli.run(options)
