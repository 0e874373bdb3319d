"""`tapedeck autograd`: the graph of a project's network, a function in a Python file, or a snippet."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from app.cli import arguments, console, models
from app.cli.autograd import graph_output, model_graph, project_graph

if TYPE_CHECKING:
    from app.autograd.snippets.snippet import SnippetAnswer, TensorGraph

WORDS = """
SOURCE is a project, FILE.py with a snippet, FILE.py:FUNCTION, or any model: FILE.py:Class, package.module:Class,
package.module:factory(), torchvision:resnet18, timm:NAME, hf:NAME_OR_FOLDER, diffusers:Class. A snippet shows the graph
of its last expression, its `loss`, or its newest tensor; a FUNCTION the graph of what it returns: a loss, tensors, or a
network that is then called with --input; a model the graph of the loss it computes itself, else of all its outputs.
Your own files run once they are trusted, by --trust or in the window, until one changes, in a separate process.
"""
GIGABYTES = 4.0


def add(commands: Any) -> argparse.ArgumentParser:
    """Add the command to the parser."""
    words = "write the grad_fn graph of one batch, or of a file's code, as a picture or as data"
    parser = commands.add_parser("autograd", help=words, description=WORDS)
    parser.add_argument("project", type=Path, metavar="SOURCE")
    graph_output.add_output(parser)
    parser.add_argument(
        "--findings",
        action="store_true",
        help="diagnose the gradients: problem, location and fix",
    )
    parser.add_argument(
        "--gradcheck",
        nargs="?",
        const="",
        metavar="LAYER",
        help="compare backward's gradient with finite differences (gradcheck), for a layer or for all",
    )
    arguments.add(parser, "--trust")
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
    project_graph.add_options(batch)
    model = parser.add_argument_group("model options")
    arguments.add(model, *arguments.MODEL, "--seed")
    models.add_first_batch(parser, "--on")
    file = parser.add_argument_group("file options")
    file.add_argument(
        "--of", metavar="NAME", help="name of the tensor whose graph to show"
    )
    arguments.add(file, "--timeout")
    file.add_argument(
        "--memory",
        type=arguments.above_zero,
        default=GIGABYTES,
        help=f"memory limit in GiB ({GIGABYTES:.0f})",
    )
    parser.set_defaults(command=run)
    return parser


def run(options: argparse.Namespace) -> int:
    """Capture the graph and write what was requested; return 1 if there are findings."""

    if options.out is None and not options.findings and options.gradcheck is None:
        raise console.CommandError("pass --out FILE, --findings or --gradcheck")
    graph_output.check_output(options)
    if models.is_model(options):
        return model_graph.of_model(options)
    file, _, function = str(options.project).rpartition(":")
    if function.isidentifier() and file.endswith(".py"):
        return _of_file(options, Path(file), function)
    if options.project.suffix == ".py":
        return _of_file(options, options.project, "")
    return project_graph.of_project(options)


def _of_file(options: argparse.Namespace, file: Path, function: str) -> int:
    """Run a file in a separate process; its output goes to stderr."""
    from app.autograd.snippets.snippet import Limits, Snippet
    from app.engine import snippet_process
    from app.engine.requests import import_model

    project_graph.refuse_options(options)
    if options.gradcheck is not None and not function:
        raise console.CommandError(
            "--gradcheck needs a network or a function: pass FILE.py:FUNCTION"
        )
    text = _trusted(options, file)
    inputs = tuple(
        (one.shape, one.dtype or "float32")
        for one in map(import_model.parse_input, options.input)
    )
    folder, plays = str(file.resolve().parent), graph_output.plays(options)
    snippet = Snippet(
        text,
        file.name,
        function,
        inputs,
        folder,
        plays,
        options.findings,
        options.gradcheck,
    )
    answer = snippet_process.run(
        snippet, Limits(options.timeout, int(options.memory * (1 << 30)))
    )
    sys.stderr.write(answer.output)
    graph = _selected_graph(answer, options.of)
    if graph is not None and options.out is not None:
        graph_output.write(
            graph.tape,
            options,
            _playback_json(answer, graph),
            graph.played,
            graph.stopped,
        )
    for line in answer.report_lines:
        print(console.printable(line))
    looked = options.out is None and answer.report_lines
    if (
        answer.error is not None
        or answer.ended != "done"
        or (graph is None and not looked)
    ):
        raise console.CommandError(
            f"{options.project}: {_no_graph_reason(answer, options.of)}", 1
        )
    return int(answer.found > 0)


def _trusted(options: argparse.Namespace, file: Path) -> str:
    """Return the text of a file that is trusted with what it imports from its folder."""
    from app.source import layer_files, own_files
    from app.source.trust import TrustStore, default_file
    from app.util import regular_files

    try:
        regular_files.check(file)
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise console.CommandError(f"{file}: {reason}") from error
    files = own_files.read(file, file.stem)
    shown = TrustStore(default_file()).entry(
        layer_files.digest(text)
    )  # in the window, where it runs without others
    alone = (
        files is not None
        and len(files.files) == 1
        and shown is not None
        and shown.path == str(file.absolute())
    )
    models.admit_files(files, str(file), options.trust or alone)
    return text


def _selected_graph(answer: SnippetAnswer, name: str | None) -> TensorGraph | None:
    return answer.graph if name is None else answer.graph_of(name)


def _no_graph_reason(answer: SnippetAnswer, name: str | None) -> str:
    """Explain in one line why there is no graph."""
    if answer.error is not None:
        return answer.error.sentence(answer.error.message)
    if answer.words:
        return answer.words
    known = ", ".join(graph.name for graph in answer.graphs)
    return f"no tensor called {name} has a graph; there are {known}"


def _playback_json(answer: SnippetAnswer, graph: TensorGraph) -> dict[str, Any]:
    """Return the additional entries of a JSON file."""
    return {
        "of": graph.name,
        "freed_at": graph.freed_at,
        "tensors": to_builtins(answer.tensors),
    }
