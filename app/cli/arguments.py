"""The options that several commands share. Each is declared here once; a command names those that it has."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

PICTURES = (".svg", ".pdf", ".png", ".tex", ".dot", ".json")  # endings of a picture
SECONDS = 120.0  # for code of the user's own

# How a model is made and called.
MODEL = ("--args", "--input", "--example")
# What is trained on, and how.
DATA = ("--on", "--loss", "--against")
SETTINGS = (*DATA, "--set")


def positive(text: str) -> int:
    """Parse an integer of at least 1."""
    return _integer(text, 1)


def seed(text: str) -> int:
    """Parse an integer of at least 0."""
    return _integer(text, 0)


def _integer(text: str, lowest: int) -> int:
    """Parse an integer that fits into 63 bits; argparse reports other values with this name."""
    try:
        number = int(text)
    except ValueError:  # of thousands of digits too
        number = -1
    if not lowest <= number < 2**63:
        raise argparse.ArgumentTypeError(
            f"{text:.40} is not an integer of at least {lowest}"
        )
    return number


def above_zero(text: str) -> float:
    """Parse a number above 0."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not number > 0:
        raise argparse.ArgumentTypeError(f"{text:.40} is not a number above 0")
    return number


_SHARED: dict[str, dict[str, Any]] = {
    "--args": {
        "default": "{}",
        "metavar": "JSON",
        "help": 'of a model: arguments of its constructor as JSON: {"num_classes": 10}',
    },
    "--input": {
        "action": "append",
        "default": [],
        "metavar": "[NAME=]1x3x32x32[:int64][:0..9]",
        "help": "of a model: an argument of forward by its sizes with the batch first, its dtype and its values: a "
        "range, one number, or arange. NAME may lead into a dictionary (batch.ids), a tuple (state.0) or a list "
        "(boxes[0]); may be repeated. Proposed if missing",
    },
    "--example": {
        "metavar": "FILE",
        "help": "of a model: its inputs, from file.py:function, or a file of tensors that ends in .pt, .npz or "
        ".safetensors; on: the first batch of --on DATA",
    },
    "--on": {
        "metavar": "DATA",
        "help": "data: a name such as digits or made.moons, a folder of images, a .csv, .npz, .pt or .txt, or a "
        'Dataset: file.py:Class, file.py:Class("root", train=True)',
    },
    "--loss": {
        "metavar": "NAME",
        "help": "own: the model's own loss; or one of torch, such as MSELoss or cross_entropy. Without it the model's "
        "own loss where it has one, else the one that fits the data",
    },
    "--against": {
        "metavar": "NAME",
        "help": "what the main output of a model is compared with: input, or a target of the data",
    },
    "--set": {
        "action": "append",
        "default": [],
        "metavar": "NAME=VALUE",
        "help": "a setting of the training, as in a project file: batch_size=32, loss=MSELoss, "
        "optimizer.params.lr=0.1, inputs.labels=(target), data.options.size=[32,32]",
    },
    "--weights": {
        "type": Path,
        "metavar": "FILE",
        "help": "its weights: a state_dict as .safetensors or .pt, a checkpoint of a trainer, or a folder of shards",
    },
    "--at": {
        "dest": "elsewhere",
        "metavar": "PLACE",
        "help": "run this command at a place of `tapedeck places`, where tapedeck-torch is installed: files here that "
        "it names are sent there, PLACE:path is a path there, and what it writes comes back",
    },
    "--trust": {
        "action": "store_true",
        "help": "trust the code of your own files, which you have reviewed, until one of those imported changes",
    },
    "--timeout": {
        "type": above_zero,
        "default": SECONDS,
        "metavar": "SECONDS",
        "help": "time limit for your code (%(default).0f)",
    },
    "--device": {
        "help": "auto, cpu or an accelerator as torch names it, such as cuda:0"
    },
    "--data": {
        "type": Path,
        "metavar": "DIR",
        "help": "folder for downloaded datasets",
    },
    "--json": {
        "action": "store_true",
        "help": "JSON on stdout, one object, or one a line",
    },
    "--seed": {
        "type": seed,
        "default": 0,
        "metavar": "N",
        "help": "seed of weights and of dropout (%(default)s)",
    },
    "--train": {"action": "store_true", "help": "run in train mode"},
    "--eval": {"action": "store_true", "help": "run in eval mode"},
}


def add_project(parser: Any) -> None:
    """Add the project, or the model in place of one, that a command is about."""
    parser.add_argument(
        "project",
        metavar="SOURCE",
        type=Path,
        help="a .tape file, or a model: file.py:Class, package.module:Class, file.py:make(), torchvision:resnet18, "
        "timm:NAME, hf:NAME_OR_FOLDER, diffusers:Class",
    )


def add(parser: Any, *names: str, **changed: Any) -> None:
    """Add shared options to a parser or a group; `changed` replaces what is declared, such as the `help` of one."""
    for name in names:
        parser.add_argument(name, **{**_SHARED[name], **changed})


def value_of(options: argparse.Namespace, name: str) -> Any:
    """Return the value of a shared option, its default for a command that has no such option."""
    declared = _SHARED[name]
    fallback = (
        False if declared.get("action") == "store_true" else declared.get("default")
    )
    return getattr(options, name.removeprefix("--").replace("-", "_"), fallback)


def add_paper(parser: Any, *, arranged: bool = False, carries: bool = False) -> None:
    """Add the options of a picture: what it is for, how its boxes are placed, and whether it carries the project."""
    parser.add_argument(
        "--for",
        dest="purpose",
        choices=("column", "page", "slide"),
        default="page",
        help="size of a picture: a column (8.5 cm wide), a page (17 cm) or a slide (16:9); default page",
    )
    canvas = (
        "as on the canvas (the default if its text is readable then), "
        if arranged
        else ""
    )
    parser.add_argument(
        "--arranged",
        choices=(*(("canvas",) if arranged else ()), "rows", "dot"),
        help=f"place the nodes {canvas}in rows that fit the size, or by Graphviz's dot, which sets the size itself",
    )
    if carries:
        parser.add_argument(
            "--no-project",
            action="store_true",
            help="do not put the project into a picture that ends in .svg or .png",
        )


def add_numbers(parser: Any) -> None:
    """Add the option of a file with a number for each layer."""
    parser.add_argument(
        "--numbers",
        type=Path,
        metavar="FILE",
        help="colour the layers by the numbers of a file: CSV, a line 'conv1,0.5' for each layer, or JSON, "
        '{"conv1": 0.5}. A layer that is repeated and drawn once shows the range of its numbers',
    )


def add_graph_output(parser: Any, carries: bool = True) -> None:
    """Add the options of the file that a graph is written to."""

    parser.add_argument(
        "--out",
        type=Path,
        help=f"output file ending in {', '.join(PICTURES)}, or in .html for a page that plays the backward "
        "pass",
    )
    add_paper(parser, carries=carries)
    parser.add_argument(
        "--play",
        action="store_true",
        help="play the backward pass, and add its order, norms and bytes to the JSON file",
    )
    parser.add_argument(
        "--unfolded",
        action="store_true",
        help="show every node instead of one box per layer",
    )
    parser.add_argument(
        "--group",
        choices=("layer", "block", "none"),
        default="layer",
        help="one box per layer, nested blocks, or no grouping",
    )


def add_first_batch(parser: argparse.ArgumentParser, *names: str) -> None:
    """Declare a command whose models are called with the first batch of --on DATA, if no inputs are given; add options
    of the data that it has not yet."""
    add(parser, *names)
    parser.set_defaults(first_batch=True)


def add_source(parser: argparse.ArgumentParser) -> None:
    """Add the arguments for a model and how to run it."""
    parser.add_argument("source", metavar="SOURCE")
    add(parser, *MODEL, "--train", "--trust")
    parser.add_argument(
        "--meta",
        action="store_true",
        help="make it on the meta device: no weights and no values, only shapes",
    )


def add_weights(parser: argparse.ArgumentParser) -> None:
    """Add the weights that a net is evaluated with, and the part of the data."""
    weights = parser.add_mutually_exclusive_group()
    add(weights, "--weights")
    weights.add_argument(
        "--checkpoint",
        type=Path,
        metavar="DIR|FILE",
        help="checkpoint of a run, or the newest in a folder of runs",
    )
    parser.add_argument(
        "--part",
        choices=("validation", "test", "training"),
        default="validation",
        help="part of a project's data in which samples are numbered (validation)",
    )
