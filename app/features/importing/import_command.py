"""`tapedeck import`: import an existing model as a project."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.cli import arguments

if TYPE_CHECKING:
    pass


WORDS = """
SOURCE is torchvision:resnet18, file.py:Class, file.py:make_model(), or any other that `tapedeck draw` takes. Your own
files run once they are trusted, by --trust or in the window, until one changes, in a separate process. The project
starts from the weights and buffers of the model, saved beside it; with --no-weights from the buffers only. SOURCE may
also be a state_dict, FILE.pt, .ckpt, .bin, .safetensors or a folder of them with an index; FILE:NAME is one of several
in a checkpoint, such as c.pt:model_ema. It is printed as a table, and with --into P compared with the network of P,
key by key.
"""


def add(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "import", help="import an existing model as a project", description=WORDS
    )
    parser.add_argument("source", metavar="SOURCE")
    parser.add_argument("-o", "--out", type=Path, help="the project, a .tape file")
    arguments.add(parser, *arguments.MODEL)
    weights = parser.add_mutually_exclusive_group()
    weights.add_argument(
        "--keep-weights",
        action="store_true",
        help="start from its weights, saved beside the project (the default)",
    )
    weights.add_argument(
        "--no-weights",
        action="store_true",
        help="omit its weights; buffers are always included",
    )
    parser.add_argument(
        "--take-inits",
        action="store_true",
        help="initialise new weights as the model does, where torch.nn.init supports it",
    )
    parser.add_argument(
        "--synthetic-data",
        action="store_true",
        help="use synthetic data of its input's shape instead of a new project's digits",
    )
    parser.add_argument(
        "--pretrained",
        action="store_true",
        help="with torchvision's pretrained weights, if already downloaded",
    )
    arguments.add(parser, "--trust", "--timeout")
    parser.add_argument(
        "--observe",
        action="store_true",
        help="keep the model's own code instead of drawing it: a project to train and evaluate",
    )
    parser.add_argument(
        "--into",
        type=Path,
        metavar="P",
        help="for a state_dict: the project to compare it with",
    )
    ways = parser.add_mutually_exclusive_group()
    ways.add_argument(
        "--strict", action="store_true", help="let P start from it if every key matches"
    )
    ways.add_argument(
        "--partial", action="store_true", help="let P start from the keys that match"
    )
    parser.add_argument(
        "--suggested",
        action="store_true",
        help="apply the suggested mapping of renamed keys",
    )
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Carry the command out."""
    from app.features.importing import cli

    return cli.run(options)
