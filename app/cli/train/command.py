"""`tapedeck train`: train without a window, stored in a folder, with stop and resume."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.cli import arguments

if TYPE_CHECKING:
    pass


WORDS = """
--surgery continues after a step with the net of an edited copy of the project: layers that stay keep their weights and
optimizer state. Inputs, outputs, data and settings stay those of PROJECT. It is not supported on several processes,
with LBFGS or for opened models. A resumed run includes the surgeries that were made.
"""


def add(commands: Any) -> argparse.ArgumentParser:
    """Add the command to the parser."""
    train: argparse.ArgumentParser = commands.add_parser(
        "train",
        help="train a project or a model, and write code, weights, metrics and pictures",
    )
    arguments.add_project(train)
    train.add_argument("--out", type=Path, required=True, help="output folder")
    train.add_argument(
        "--epochs", type=arguments.positive, help="overrides the project's"
    )
    arguments.add(train, "--device")
    train.add_argument("--seed", type=arguments.seed, help="overrides the project's")
    train.add_argument(
        "--save-every",
        type=arguments.positive,
        metavar="N",
        help="save a checkpoint every N batches, besides the best epoch and the end",
    )
    train.add_argument(
        "--resume",
        type=Path,
        metavar="DIR|FILE",
        help="resume from a checkpoint, or from the newest in the folder of an earlier run",
    )
    train.add_argument(
        "--revisit-seconds",
        type=float,
        metavar="N",
        help="keep checkpoints so that `tapedeck revisit` reaches any step within about N seconds",
    )
    train.add_argument(
        "--leave-out",
        type=arguments.positive,
        action="append",
        default=[],
        metavar="N",
        help="do not train on the batch of step N; with --resume a new run continues from a checkpoint before it",
    )
    _add_surgery(train)
    arguments.add(train, "--data")
    train.add_argument(
        "--own-process",
        action="store_true",
        help="run in a separate process, whose crash is reported",
    )
    train.add_argument(
        "--processes",
        type=arguments.positive,
        metavar="N",
        help="split every batch between N processes of this machine (loopback only)",
    )
    arguments.add(train, "--json")
    arguments.add(train, *arguments.MODEL, *arguments.SETTINGS, "--trust")
    train.add_argument(
        "--at",
        metavar="PLACE",
        help="train at a place of `tapedeck places`, by the exported script; --data and --device are those there",
    )
    train.set_defaults(command=run)
    return train


def _add_surgery(train: argparse.ArgumentParser) -> None:
    """Add the option to a parser."""
    train.add_argument(
        "--surgery",
        type=_parse_surgery,
        action="append",
        default=[],
        metavar="STEP:EDITED",
        help="after this step, continue with the net of an edited copy of the project; may be repeated",
    )
    train.epilog = WORDS


def _parse_surgery(text: str) -> tuple[int, Path]:
    step, colon, path = text.partition(":")
    if not colon or not step.isascii() or not step.isdecimal() or not path:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not STEP:EDITED, such as 200:wider.tape"
        )
    return int(step), Path(path)


def run(options: argparse.Namespace) -> int:
    """Carry the command out."""
    from app.cli.train import train

    return train.run(options)
