"""`tapedeck autograd`: the graph of a project's network, a function in a Python file, or a snippet."""

from __future__ import annotations

import argparse
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.autograd import checks
from app.cli import arguments
from app.util import shelf
from app.util.frozen import FrozenMap

if TYPE_CHECKING:
    pass


WORDS = """
SOURCE is a project, FILE.py with a snippet, FILE.py:FUNCTION, or any model: FILE.py:Class, package.module:Class,
package.module:factory(), torchvision:resnet18, timm:NAME, hf:NAME_OR_FOLDER, diffusers:Class. A snippet shows the graph
of its last expression, its `loss`, or its newest tensor; a FUNCTION the graph of what it returns: a loss, tensors, or a
network that is then called with --input; a model the graph of the loss it computes itself, else of all its outputs.
Your own files run once they are trusted, by --trust or in the window, until one changes, in a separate process.
"""


def add(commands: Any) -> argparse.ArgumentParser:
    """Add the command to the parser."""
    summary = "write the grad_fn graph of one batch, or of a file's code, as a picture or as data"
    parser = commands.add_parser("autograd", help=summary, description=WORDS)
    parser.add_argument("project", type=Path, metavar="SOURCE")
    arguments.add_graph_output(parser)
    parser.add_argument(
        "--findings",
        action="store_true",
        help="diagnose the gradients: problem, location and fix",
    )
    for check in checks.names():
        summary = checks.explanation(check)
        parser.add_argument(
            f"--{check}", nargs="?", const="", metavar="LAYER", help=summary
        )
    arguments.add(parser, "--trust", "--at")
    batch = parser.add_argument_group("project options")
    batch.add_argument(
        "--batch",
        type=arguments.positive,
        help="samples in the batch (default: the training batch size; fewer if random inputs would exceed 1 GiB)",
    )
    mode = batch.add_mutually_exclusive_group()
    arguments.add(
        mode, "--train", help="use train mode, which is the default for a project"
    )
    arguments.add(
        mode, "--eval", help="use eval mode, which is the default for a model"
    )
    arguments.add(batch, "--weights")
    batch.add_argument(
        "--start-weights",
        action="store_true",
        help="use the start weights of a run, not the newest weights of a stored run",
    )
    arguments.add(batch, "--data")
    _add_capture(batch)
    model = parser.add_argument_group("model options")
    arguments.add(model, *arguments.MODEL, "--seed")
    arguments.add_first_batch(parser, "--on")
    file = parser.add_argument_group("file options")
    arguments.add(file, "--timeout")
    for name in shelf.modules("cli.graph_of_file"):
        import_module(name).add(file)
    parser.set_defaults(command=run)
    return parser


def _add_capture(batch: Any) -> None:
    """Add the options for running the batch."""
    from app.autograd.capture_options import VECTORS

    batch.add_argument(
        "--random",
        action="store_true",
        help="use random inputs of the network's input shapes and dtypes, and random targets, instead of the data",
    )
    batch.add_argument(
        "--outputs",
        metavar="1,2",
        help="start at these outputs of the network, or at all, instead of the loss",
    )
    batch.add_argument(
        "--vector",
        metavar=f"{'|'.join(VECTORS)}[:INDEX]",
        help="gradient vector that backward starts with there (ones)",
    )
    batch.add_argument(
        "--amp",
        choices=("bfloat16", "float16"),
        help="run network and loss under torch.autocast",
    )
    batch.add_argument(
        "--checkpoint",
        action="append",
        default=[],
        metavar="MODULE",
        help="run a module under torch.utils.checkpoint",
    )
    batch.add_argument(
        "--second-order",
        action="store_true",
        help=(
            "second order: the graph of the squared norm of the loss gradient with respect to all parameters "
            "(create_graph=True)"
        ),
    )


def run(options: argparse.Namespace) -> int:
    """Capture the graph and write what was requested; return 1 if there are findings."""
    from app.cli import console, models
    from app.cli.autograd import model_graph, project_graph

    layers = {name: getattr(options, name) for name in checks.names()}
    options.checks = FrozenMap(
        {name: layer for name, layer in layers.items() if layer is not None}
    )
    if options.out is None and not options.findings and not options.checks:
        others = ["--findings", *(f"--{name}" for name in checks.names())]
        raise console.CommandError(f"pass --out FILE or one of {', '.join(others)}")
    console.check_graph_output(options)
    if models.is_model(options):
        return model_graph.of_model(options)
    file, _, function = str(options.project).rpartition(":")
    if not (function.isidentifier() and file.endswith(".py")):
        file, function = str(options.project), ""
    if not file.endswith(".py"):
        return project_graph.of_project(options)
    for name in shelf.modules("cli.graph_of_file"):
        status: int = import_module(name).run(options, Path(file), function)
        return status
    raise console.CommandError(f"{options.project} is neither a project nor a model")
